"""How many site factors a few rows can tell apart: from none to four, weighed by evidence.

Eight rows that differ by 5 to 10 % for reasons of their own seldom tell four factors apart: a fit
with all four free raises one and lowers another to meet scatter, and predicts other plans worse
than the shipped constants. So every answer is worked out: nothing differs; all work by one factor;
work inside a GPU and between GPUs; each kind of work alone. Each keeps its own scale of scatter,
and counts by its marginal likelihood (Laplace's approximation; MacKay, Information Theory, ch. 28),
which charges a factor for the room it adds. Nothing but the measured rows enters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.site import LARGEST_FACTOR, LEAST_FACTOR

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

NONE = "nothing differs"
COMMON = "all by one factor"
INSIDE_OR_BETWEEN = "inside and between GPUs"
EACH = "each by its own"

PRIOR_ROWS = 4.0
PRIOR_RESIDUAL_SD = 0.06
"""What is known of the scatter before any row: as much as four rows of 6 % say (repeats of one
plan differ by 2 to 6 % on the published sets)."""

_FREEDOM = 2.0
_LEAST_SCALE = 0.02
_STEPS = 30
_SCALE_STEPS = 50
_FRESH_SLOPES = 2
_DELTA = 1e-3
# A factor moves by at most this much a step, in logs: far from the optimum the model bends.
_STRIDE = 0.3
# No site file can hold more; the priors keep every sensible fit far inside.
_LOG_ENDS = (np.log(LEAST_FACTOR), np.log(LARGEST_FACTOR))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One answer to what differs at a site.

    Attributes:
        name: for people.
        spread: which free numbers each factor follows, 0 or 1, [factors, k].
        log_sd: spread of those numbers between sites, [k].
    """

    name: str
    spread: Array
    log_sd: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """The most likely factors of one rung.

    Attributes:
        log_factors: [factors].
        covariance: of the log factors, [factors, factors].
        log_evidence: logarithm of the marginal likelihood, up to a constant of all rungs.
    """

    log_factors: Array
    covariance: Array
    log_evidence: float


def informed(slopes: Array, log_sd: Array) -> npt.NDArray[np.bool_]:
    """Return which factors the rows tell more of than is known without them.

    A factor whose kind of work takes hardly any of the measured time gains nothing but noise.

    Args:
        slopes: change of the log step time by the log factor, [rows, factors].
        log_sd: spread of each factor between sites, [factors].
    """
    gained = log_sd**2 * np.sum(slopes**2, axis=0) / PRIOR_RESIDUAL_SD**2
    return np.asarray(gained >= 1.0)


def rungs(free: npt.NDArray[np.bool_], log_sd: Array, between: npt.NDArray[np.bool_]) -> list[Rung]:
    """Return the answers that differ, from no free number to one a factor.

    What factors share spreads no further between sites than the least of them does.

    Args:
        free: factors that may move, [factors].
        log_sd: spread of each between sites, [factors].
        between: factors of work between GPUs, [factors].
    """
    inside, across = free & ~between, free & between
    named: tuple[tuple[str, list[npt.NDArray[np.bool_]]], ...] = (
        (NONE, []),
        (COMMON, [free]),
        (INSIDE_OR_BETWEEN, [inside, across]),
        (EACH, [one & free for one in np.eye(len(free), dtype=bool)]),
    )
    out: dict[int, Rung] = {}
    for name, groups in named:
        kept = [group for group in groups if group.any()]
        # With one factor free, or one on each side, two answers are the same.
        out.setdefault(
            len(kept),
            Rung(
                name=name,
                spread=np.array(kept, dtype=np.float64).reshape(len(kept), len(free)).T,
                log_sd=np.array([log_sd[group].min() for group in kept]),
            ),
        )
    return list(out.values())


def mode(rung: Rung, log_predicted: Callable[[Array], Array], target: Array) -> Mode:
    """Return the most likely factors of one rung and how well it explains the rows.

    log(measured / predicted) follows Student's t with two degrees of freedom (one row in ten of
    the published sets is slow for no visible reason, by up to eight times), whose scale is found
    with the factors: rows that scatter widely move them less.

    Args:
        rung: which factors move together.
        log_predicted: log step seconds under given log factors, [factors] to [rows].
        target: log of the measured seconds, [rows].
    """
    free = len(rung.log_sd)
    values = np.zeros(free)
    current = log_predicted(rung.spread @ values)
    slopes = np.empty((len(target), free))
    precision = np.diag(1.0 / rung.log_sd**2)
    for number in range(_STEPS if free else 0):
        # Time bends little in the factors: after a few steps the slopes serve as they are.
        if number < _FRESH_SLOPES:
            slopes = log_slopes(lambda x: log_predicted(rung.spread @ x), values, current)
        residual = target - current
        weight = _weights(residual, _scale(residual))
        hessian = slopes.T @ (weight[:, None] * slopes) + precision
        gradient = slopes.T @ (weight * residual) - precision @ values
        step = np.clip(np.linalg.solve(hessian, gradient), -_STRIDE, _STRIDE)
        values = np.clip(values + step, *_LOG_ENDS)
        current = log_predicted(rung.spread @ values)
        if np.max(np.abs(step)) < 1e-4:
            break
    residual = target - current
    scale = _scale(residual)
    hessian = slopes.T @ (_weights(residual, scale)[:, None] * slopes) + precision
    evidence = (
        -0.5 * (_FREEDOM + 1.0) * float(np.sum(np.log1p((residual / scale) ** 2 / _FREEDOM)))
        - (len(target) + PRIOR_ROWS) * float(np.log(scale))
        - 0.5 * PRIOR_ROWS * (PRIOR_RESIDUAL_SD / scale) ** 2
        - 0.5 * float(values @ precision @ values)
        + 0.5 * float(np.linalg.slogdet(precision)[1] - np.linalg.slogdet(hessian)[1])
    )
    return Mode(
        log_factors=rung.spread @ values,
        covariance=rung.spread @ np.linalg.inv(hessian) @ rung.spread.T,
        log_evidence=evidence,
    )


def weights_of(modes: list[Mode]) -> Array:
    """Return the share of each rung, equally likely before the rows, [rungs]."""
    evidence = np.array([one.log_evidence for one in modes])
    shares = np.exp(evidence - evidence.max())
    return np.asarray(shares / shares.sum())


def log_slopes(log_predicted: Callable[[Array], Array], at: Array, there: Array) -> Array:
    """Return the change of the log step times by each argument, [rows, arguments].

    Args:
        log_predicted: of the arguments.
        at: the arguments.
        there: its values at them.
    """
    moved = [(log_predicted(at + _DELTA * unit) - there) / _DELTA for unit in np.eye(len(at))]
    return np.stack(moved, axis=1)


def _weights(residual: Array, scale: float) -> Array:
    weight: Array = (_FREEDOM + 1.0) / (_FREEDOM + (residual / scale) ** 2) / scale**2
    return weight


def _scale(residual: Array) -> float:
    """Return the scale of the t distribution, with what is known before the rows."""
    scale = max(float(np.median(np.abs(residual))), _LEAST_SCALE)
    for _ in range(_SCALE_STEPS):
        counted = _weights(residual, scale) * scale**2 * residual**2
        before, total = scale, PRIOR_ROWS * PRIOR_RESIDUAL_SD**2 + float(counted.sum())
        scale = float(np.sqrt(total / (PRIOR_ROWS + len(residual))))
        if abs(scale - before) < 1e-6:
            break
    return scale
