"""Site factors from a few measured steps: at most four multipliers, robust, held by priors.

How many of them the rows can tell apart is not settled beforehand: answers from "nothing differs"
to "each by its own" are averaged by their evidence (`vtrain.calibration_rungs`). Few rows therefore
move a factor only as far as they speak for it, and a wild row moves none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vtrain.calibration_rungs import (
    PRIOR_RESIDUAL_SD,
    PRIOR_ROWS,
    informed,
    log_slopes,
    mode,
    rungs,
    weights_of,
)
from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.interval import interval_multipliers
from vtrain.site import SiteFactors
from vtrain.site_file import load_site as load_site  # part of this module's surface

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import PlanTable
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]

FACTORS = ("matrix", "memory", "communication", "host")
PRIOR_LOG_SD: dict[str, float] = {
    "matrix": 0.1, "memory": 0.28, "communication": 0.3, "host": 0.15,
}  # fmt: skip
"""Spread of each factor between sites, before any row is seen. Matrix products: laboratories
differ by a factor of 1.05 to 1.15 on the operator tables. Memory-bound kernels: held-out error of
their models, 22.5 % mean over the 690 rows of A100 and H100 in results/operators, x sqrt(pi / 2).
Communication and host: assumed; the tables hold no step in which work contends for them."""

_BETWEEN = np.array([name == "communication" for name in FACTORS])
_CLIP = 0.5

RANGE_SD = 2.0
"""A factor beyond this many prior standard deviations is at the end of its range: 95 of 100 sites
keep within it."""


def factor_range(name: str) -> tuple[float, float]:
    """Return the range of a factor that 95 of 100 sites keep, lowest and highest multiplier.

    Args:
        name: one of FACTORS.
    """
    end = float(np.exp(RANGE_SD * PRIOR_LOG_SD[name]))
    return 1.0 / end, end


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFit:
    """What a few measured steps say about a site.

    Attributes:
        factors: the four multipliers.
        log_sd: standard deviation of the logarithm of each factor after the fit, were all of them
            to differ. A held factor keeps its prior's.
        held: factors left at 1 because the rows tell less of them than is known without, and the
            share of the predicted step time that they multiply (mean over the rows).
        answers: share of each answer to what differs at this site, the sum is 1.
        residual_log_sd: standard deviation of log(measured / predicted) expected for other plans.
        interval: multipliers (low, high) on a predicted step time that hold 90 % of new runs.
        rows: measured steps used.
        error_before_pct: error of each row under factors of 1, in % of the measured step;
            negative where the prediction is too fast.
        error_after_pct: the same under the fitted factors.
    """

    factors: SiteFactors
    log_sd: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, float] = field(default_factory=dict)
    residual_log_sd: float
    interval: tuple[float, float]
    rows: int
    error_before_pct: tuple[float, ...]
    error_after_pct: tuple[float, ...]


def fit_site_factors(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    plans: PlanTable,
    measured_step_s: npt.ArrayLike,
    *,
    seq_length: int,
    prior_log_sd: Mapping[str, float] = PRIOR_LOG_SD,
) -> SiteFit:
    """Fit the site factors of one machine to measured steps of one architecture.

    Args:
        architecture: what was trained.
        cluster: where.
        stack: with what.
        plans: the measured plans.
        measured_step_s: seconds of a step, [n].
        seq_length: tokens of a sequence.
        prior_log_sd: spread of each factor before the rows are seen; 0 holds a factor at 1.

    Raises:
        UserInputError: no rows, lengths that differ, or a time that is not positive.
    """

    def predict(site: SiteFactors) -> Array:
        return step_seconds(architecture, cluster, stack, plans, seq_length=seq_length, site=site)

    return fit_factors(predict, measured_step_s, prior_log_sd=prior_log_sd)


def fit_factors(
    predict: Callable[[SiteFactors], Array],
    measured_step_s: npt.ArrayLike,
    *,
    prior_log_sd: Mapping[str, float] = PRIOR_LOG_SD,
) -> SiteFit:
    """Fit site factors to any set of measured steps.

    Args:
        predict: step seconds of the measured rows under given factors, [n].
        measured_step_s: what was measured, [n].
        prior_log_sd: as in `fit_site_factors`.

    Raises:
        UserInputError: no rows, lengths that differ, or a time that is not positive.
    """
    measured = np.asarray(measured_step_s, dtype=np.float64)
    first = predict(SiteFactors())
    if measured.shape != first.shape or measured.size == 0:
        raise UserInputError(
            f"calibration needs one measured step a plan, got {measured.size} for {first.size}"
        )
    if not np.all(np.isfinite(measured) & (measured > 0.0)):
        raise UserInputError("measured step times must be positive numbers of seconds")
    prior = np.array([prior_log_sd.get(name, 0.0) for name in FACTORS])

    def log_predicted(log_factors: Array) -> Array:
        pairs = dict(zip(FACTORS, np.exp(log_factors).tolist(), strict=True))
        return np.log(predict(SiteFactors(**pairs)))

    slopes = log_slopes(log_predicted, np.zeros(len(FACTORS)), np.log(first))
    free = informed(slopes, prior)
    target = np.log(measured)
    answers = rungs(free, prior, _BETWEEN)
    modes = [mode(answer, log_predicted, target) for answer in answers]
    share = weights_of(modes)
    x = share @ np.array([one.log_factors for one in modes])
    # An answer that moves nothing does not make a factor certain: the spread is that of the
    # richest answer, taken about the mean of all.
    variance = np.diag(modes[-1].covariance) + (modes[-1].log_factors - x) ** 2
    log_sd = np.sqrt(np.where(free, variance, prior**2))
    current = log_predicted(x)
    residual_sd = residual_log_sd(target - current)
    low, high = interval_multipliers(residual_sd)
    named = [(at, name) for at, name in enumerate(FACTORS) if prior[at] > 0.0]
    return SiteFit(
        factors=SiteFactors(**dict(zip(FACTORS, np.exp(x).tolist(), strict=True))),
        log_sd={name: float(log_sd[at]) for at, name in named},
        held={name: float(slopes[:, at].mean()) for at, name in named if not free[at]},
        answers={one.name: float(part) for one, part in zip(answers, share, strict=True)},
        residual_log_sd=residual_sd,
        interval=(float(low), float(high)),
        rows=int(measured.size),
        error_before_pct=tuple((100.0 * (first / measured - 1.0)).tolist()),
        error_after_pct=tuple((100.0 * (np.exp(current) / measured - 1.0)).tolist()),
    )


def residual_log_sd(residuals: Array) -> float:
    """Return the spread that new rows will show, from the residuals of the fitted ones.

    Four rows at 6 % stand for what is known of other sites; with priors as tight as these the fit
    uses up hardly any row. A residual counts with at most 0.5, so one wild row does not widen
    every interval.

    Args:
        residuals: log(measured / predicted) of the fitted rows.
    """
    clipped = np.clip(residuals, -_CLIP, _CLIP)
    total = PRIOR_ROWS * PRIOR_RESIDUAL_SD**2 + float(clipped @ clipped)
    return float(np.sqrt(total / (PRIOR_ROWS + len(clipped))))
