"""How good predictions are: errors, intervals, memory, rank correlation of one group of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeScore:
    """Errors of predicted step time over one set of rows, in percent.

    Attributes:
        mape_pct: mean of |predicted / measured - 1|.
        median_ape_pct: its median.
        p90_ape_pct: its 90th percentile.
        bias_pct: mean of predicted / measured - 1.
        coverage_pct: rows whose measured time lies in the 90 % interval.
        half_width_pct: median of half the interval over the prediction.
    """

    mape_pct: float
    median_ape_pct: float
    p90_ape_pct: float
    bias_pct: float
    coverage_pct: float
    half_width_pct: float


def time_score(predicted: Array, measured: Array, low: Array, high: Array) -> TimeScore:
    """Score predictions, [n] each.

    Args:
        predicted: seconds.
        measured: seconds.
        low: multiplier of the lower end of each interval.
        high: multiplier of the upper end.
    """
    error = predicted / measured - 1.0
    absolute = np.abs(error) * 100.0
    inside = (measured >= predicted * low) & (measured <= predicted * high)
    return TimeScore(
        mape_pct=float(absolute.mean()),
        median_ape_pct=float(np.median(absolute)),
        p90_ape_pct=float(np.quantile(absolute, 0.9)),
        bias_pct=float(error.mean() * 100.0),
        coverage_pct=float(inside.mean() * 100.0),
        half_width_pct=float(np.median((high - low) / 2.0) * 100.0),
    )


def rank_correlation(predicted: Array, measured: Array) -> float | None:
    """Return Spearman's correlation, None where it is not defined."""
    if len(predicted) < 3:
        return None
    ranks = [_ranks(values) for values in (predicted, measured)]
    if any(np.ptp(r) == 0.0 for r in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks with ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Array = (ends - (counts - 1) / 2.0)[inverse]
    return ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class RegretScore:
    """How much slower the plan we would pick is than the best measured one, in percent."""

    groups: int
    median_pct: float | None
    p90_pct: float | None
    random_median_pct: float | None


def regret_score(
    problems: Sequence[object], plans: Sequence[object], predicted: Array, measured: Array
) -> RegretScore:
    """Judge the choice of plan within each problem that has at least three plans.

    Repeated measurements of one plan count as their mean, so that luck of one run is neither
    rewarded nor punished. A random pick is the mean over the plans of a problem.

    Args:
        problems: what was to be done (model, GPUs, batch, sequence, precision), [n].
        plans: how, [n].
        predicted: seconds, [n].
        measured: seconds, [n].
    """
    members: dict[object, dict[object, list[int]]] = {}
    for row, (problem, plan) in enumerate(zip(problems, plans, strict=True)):
        members.setdefault(problem, {}).setdefault(plan, []).append(row)
    ours, random = [], []
    for rows_of_plan in members.values():
        if len(rows_of_plan) < 3:
            continue
        rows = list(rows_of_plan.values())
        seconds = np.array([measured[r].mean() for r in rows])
        guess = np.array([predicted[r].mean() for r in rows])
        best = seconds.min()
        ours.append(float(seconds[guess.argmin()] / best - 1.0) * 100.0)
        random.append(float(seconds.mean() / best - 1.0) * 100.0)
    if not ours:
        return RegretScore(groups=0, median_pct=None, p90_pct=None, random_median_pct=None)
    return RegretScore(
        groups=len(ours),
        median_pct=float(np.median(ours)),
        p90_pct=float(np.quantile(ours, 0.9)),
        random_median_pct=float(np.median(random)),
    )
