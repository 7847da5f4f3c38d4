"""Robust fits of positive constants to measured times, and their cross-validated error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Predict = Callable[[Array, NDArray[np.intp]], Array]

SOFT_SCALE = 0.1
"""Log ratio beyond which a row counts linearly instead of squared (soft-L1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Error:
    """Absolute percentage error of predictions, as published tables state it."""

    rows: int
    mape_pct: float
    median_ape_pct: float

    @classmethod
    def of(cls, predicted: Array, measured: Array) -> Error:
        """Compare predictions with measurements of the same shape."""
        ape = 100.0 * np.abs(predicted / measured - 1.0)
        return cls(
            rows=int(ape.size),
            mape_pct=float(np.mean(ape)),
            median_ape_pct=float(np.median(ape)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A formula with positive constants between bounds.

    `predict(constants, rows)` returns seconds of the given row indices.
    """

    name: str
    constants: Sequence[str]
    start: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    predict: Predict


def fit(form: Form, measured: Array, rows: NDArray[np.intp]) -> Array:
    """Constants that minimise the soft-L1 norm of log(predicted / measured).

    Args:
        form: formula and bounds; a constant with equal bounds is held.
        measured: seconds of every row.
        rows: indices of the rows to fit on.

    Returns:
        The constants, in the form's order.
    """
    from scipy.optimize import least_squares

    start = np.asarray(form.start, dtype=np.float64)
    low = np.log(np.asarray(form.low, dtype=np.float64))
    high = np.log(np.asarray(form.high, dtype=np.float64))
    free = high > low
    if not free.any():
        return start
    target = np.log(measured[rows])

    def full(free_log: Array) -> Array:
        values = np.log(start)
        values[free] = free_log
        return np.exp(values)

    def residual(free_log: Array) -> Array:
        out: Array = np.log(form.predict(full(free_log), rows)) - target
        return out

    margin = 1e-6 * (high - low)[free]
    first = np.clip(np.log(start)[free], low[free] + margin, high[free] - margin)
    found = least_squares(
        residual,
        first,
        bounds=(low[free], high[free]),
        loss="soft_l1",
        f_scale=SOFT_SCALE,
        diff_step=1e-3,
        max_nfev=100,
    )
    return full(found.x)


def cross_validate(form: Form, measured: Array, groups: NDArray[np.intp], folds: int = 5) -> Error:
    """Error on held-out groups, every row predicted once by constants it did not inform.

    Args:
        form: formula and bounds.
        measured: seconds of every row.
        groups: group number of every row; a group is never split over folds.
        folds: number of folds.
    """
    names = np.unique(groups)
    # A fixed seed: the folds are part of the reported number.
    order = np.random.default_rng(0).permutation(names)
    fold_of = np.empty(int(names.max()) + 1, dtype=np.intp)
    fold_of[order] = np.arange(names.size) % folds
    fold = fold_of[groups]
    predicted = np.empty_like(measured)
    for held in range(min(folds, names.size)):
        test = np.flatnonzero(fold == held)
        constants = fit(form, measured, np.flatnonzero(fold != held))
        predicted[test] = form.predict(constants, test)
    return Error.of(predicted, measured)
