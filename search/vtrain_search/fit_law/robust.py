"""Robust fit of a sum of exponentials to log-losses; scipy does the optimisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Exponents = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""theta -> (u [terms, rows], du/dtheta [terms, rows, parameters]); the model is ln sum exp(u)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RobustFit:
    """Best parameters and what they cost."""

    theta: FloatArray
    cost: float
    """Half the summed Huber loss of the log residuals."""
    converged: bool


def predict_ln(exponents: Exponents, theta: FloatArray) -> FloatArray:
    """Return the model's ln loss [rows]."""
    return _ln_sum(exponents(theta)[0])[0]


def fit(
    exponents: Exponents,
    ln_loss: FloatArray,
    starts: FloatArray,
    *,
    huber_delta: float,
    tolerance: float = 1e-10,
    max_evaluations: int = 400,
) -> RobustFit:
    """Minimise the Huber loss of ln(model) - ln(measured) from each start; keep the best.

    Args:
        exponents: the model and its analytic derivative.
        ln_loss: measured ln loss [rows].
        starts: [starts, parameters].
        huber_delta: log residual from which the loss grows linearly (Hoffmann et al. use 1e-3).
        tolerance: relative change of cost and parameters at which to stop.
        max_evaluations: of the model, per start.
    """
    from scipy.optimize import least_squares

    memo: dict[bytes, tuple[FloatArray, FloatArray]] = {}

    def evaluate(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        key = theta.tobytes()
        if key not in memo:
            memo.clear()  # scipy asks for residual and derivative at one point after the other
            u, du = exponents(theta)
            ln_model, share = _ln_sum(u)
            memo[key] = (ln_model - ln_loss, np.einsum("tr,trp->rp", share, du))
        return memo[key]

    best: RobustFit | None = None
    for start in np.atleast_2d(starts):
        solution = least_squares(
            lambda theta: evaluate(theta)[0],
            start,
            jac=lambda theta: evaluate(theta)[1],
            loss="huber",
            f_scale=huber_delta,
            x_scale="jac",
            ftol=tolerance,
            xtol=tolerance,
            gtol=tolerance,
            max_nfev=max_evaluations,
        )
        if best is None or solution.cost < best.cost:
            best = RobustFit(
                theta=solution.x, cost=float(solution.cost), converged=bool(solution.status > 0)
            )
    if best is None:
        raise ValueError("a fit needs at least one start")
    return best


def _ln_sum(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ln sum exp(u) over the terms and each term's share of the sum."""
    top = u.max(axis=0)
    exponentials = np.exp(u - top)
    total = exponentials.sum(axis=0)
    return np.asarray(top + np.log(total)), np.asarray(exponentials / total)
