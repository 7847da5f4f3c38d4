"""Site factors from a few measured steps: four multipliers, robust, held by priors.

The estimate is the mode of a posterior: log(measured / predicted) follows Student's t with two
degrees of freedom (one row in ten of the published sets is slow for no visible reason, by up to
eight times), each log factor a normal prior. Few rows therefore move a factor only as far as they
speak for it, and a wild row moves none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.interval import interval_multipliers
from vtrain.site import LARGEST_FACTOR, LEAST_FACTOR, SiteFactors
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
    "matrix": 0.1, "memory": 0.15, "communication": 0.3, "host": 0.15,
}  # fmt: skip
"""Spread of each factor between sites, before any row is seen. Matrix products: laboratories
differ by a factor of 1.05 to 1.15 on the operator tables; the others in proportion."""

RESIDUAL_LOG_SD = 0.05
"""Scale of the t distribution: repeats of one plan differ by 2 to 6 % on the published sets."""

_FREEDOM = 2.0

_PRIOR_RESIDUAL_SD = 0.06
_PRIOR_ROWS = 4.0
_CLIP = 0.5
_STEPS = 20
_FRESH_SLOPES = 2
_DELTA = 1e-3
# A factor moves by at most this much a step, in logs: far from the optimum the model bends.
_STRIDE = 0.3
# No site file can hold more; the priors keep every sensible fit far inside.
_LOG_ENDS = (np.log(LEAST_FACTOR), np.log(LARGEST_FACTOR))

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
        log_sd: standard deviation of the logarithm of each factor after the fit.
        residual_log_sd: standard deviation of log(measured / predicted) expected for other plans.
        interval: multipliers (low, high) on a predicted step time that hold 90 % of new runs.
        rows: measured steps used.
        error_before_pct: error of each row under factors of 1, in % of the measured step;
            negative where the prediction is too fast.
        error_after_pct: the same under the fitted factors.
    """

    factors: SiteFactors
    log_sd: Mapping[str, float] = field(default_factory=dict)
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
    free = [name for name in FACTORS if prior_log_sd.get(name, 0.0) > 0.0]
    prior = np.array([prior_log_sd[name] for name in free])
    target = np.log(measured)
    x = np.zeros(len(free))

    def log_predicted(values: Array) -> Array:
        pairs = dict(zip(free, np.exp(values).tolist(), strict=True))
        return np.log(predict(SiteFactors(**pairs)))

    hessian = np.diag(1.0 / prior**2)
    current = np.log(first)
    jacobian = np.empty((measured.size, len(free)))
    for step_number in range(_STEPS):
        # Time bends little in the factors: after a few steps the slopes serve as they are.
        if step_number < _FRESH_SLOPES:
            jacobian = np.stack(
                [(log_predicted(x + _DELTA * u) - current) / _DELTA for u in np.eye(len(free))],
                axis=1,
            )
        scaled = (target - current) / RESIDUAL_LOG_SD
        weight = (_FREEDOM + 1.0) / (_FREEDOM + scaled**2) / RESIDUAL_LOG_SD**2
        hessian = jacobian.T @ (weight[:, None] * jacobian) + np.diag(1.0 / prior**2)
        gradient = jacobian.T @ (weight * (target - current)) - x / prior**2
        step = np.clip(np.linalg.solve(hessian, gradient), -_STRIDE, _STRIDE)
        x = np.clip(x + step, *_LOG_ENDS)
        current = log_predicted(x)
        if np.max(np.abs(step), initial=0.0) < 1e-4:
            break
    residual_sd = residual_log_sd(target - current)
    low, high = interval_multipliers(residual_sd)
    covariance = np.linalg.inv(hessian)
    return SiteFit(
        factors=SiteFactors(**dict(zip(free, np.exp(x).tolist(), strict=True))),
        log_sd=dict(zip(free, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
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
    total = _PRIOR_ROWS * _PRIOR_RESIDUAL_SD**2 + float(clipped @ clipped)
    return float(np.sqrt(total / (_PRIOR_ROWS + len(clipped))))
