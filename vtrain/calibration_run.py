"""From logs to a site file: steady steps, plausibility, fit, what is left, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtrain.calibrate import FACTORS, SiteFit, factor_range, fit_factors
from vtrain.calibration_check import REFUSE_PCT, WARN_PCT, Rates, error_pct
from vtrain.calibration_suspects import Suspect, suspects
from vtrain.estimate import step_seconds
from vtrain.formats.logs.plausible import Claim, Flag, flags
from vtrain.formats.logs.steady import Steady, steady_steps
from vtrain.mfu import Work
from vtrain.operators.workload import device_precision
from vtrain.plan import Plan, PlanTable
from vtrain.presets import device_names, load_device
from vtrain.units import format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.cli_options import Setting
    from vtrain.formats.logs.model import Log
    from vtrain.site import SiteFactors


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One log and the plan it was run with."""

    log: Log
    plan: Plan


FEW_STEPS = 5
"""The median of fewer steps cannot outvote two odd ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogResult:
    """What one log said.

    Attributes:
        reading: log and plan.
        steady: the steps used.
        claim: what the user says it is of.
        flags: what is wrong or odd.
        before_s: predicted step time before the fit: shipped constants, or those of --site.
        after_s: predicted with the fitted factors.
    """

    reading: Reading
    steady: Steady
    claim: Claim
    flags: tuple[Flag, ...]
    before_s: float
    after_s: float

    @property
    def name(self) -> str:
        """File name of the log."""
        return Path(self.reading.log.source).name

    @property
    def measured(self) -> Rates:
        """The median steady step."""
        return Rates.of(self.steady.median_s, self.claim)

    @property
    def before(self) -> Rates:
        """The predicted step before the fit."""
        return Rates.of(self.before_s, self.claim)

    @property
    def after(self) -> Rates:
        """The predicted step with the fitted factors."""
        return Rates.of(self.after_s, self.claim)

    @property
    def error_before_pct(self) -> float:
        """Error before the fit, in % of the measured step; negative: predicted too fast."""
        return error_pct(self.before_s, self.steady.median_s)

    @property
    def error_after_pct(self) -> float:
        """The same with the fitted factors."""
        return error_pct(self.after_s, self.steady.median_s)

    @property
    def off(self) -> bool:
        """Whether the fitted factors leave a large error."""
        return abs(self.error_after_pct) > WARN_PCT


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The fit and the logs behind it.

    Attributes:
        setting: what was said to be trained, where and with what.
        fit: the factors.
        logs: every log, in the order given.
        suspects: inputs that explain the logs that are off, the likeliest first.
    """

    setting: Setting
    fit: SiteFit
    logs: tuple[LogResult, ...]
    suspects: tuple[Suspect, ...] = ()

    @property
    def error_before_pct(self) -> float:
        """Median absolute error of the logs before the fit, in %."""
        return float(np.median([abs(log.error_before_pct) for log in self.logs]))

    @property
    def error_after_pct(self) -> float:
        """The same with the fitted factors: half of the logs are off by this much or more."""
        return float(np.median([abs(log.error_after_pct) for log in self.logs]))

    @property
    def at_range_end(self) -> tuple[str, ...]:
        """Factors at or beyond the end of the range that sites show."""
        out = []
        for name in FACTORS:
            low, high = factor_range(name)
            if not low < getattr(self.fit.factors, name) < high:
                out.append(name)
        return tuple(out)

    @property
    def fatal(self) -> list[str]:
        """Flags that cannot be true of any site."""
        return [
            f"{result.name}: {flag.text}"
            for result in self.logs
            for flag in result.flags
            if flag.fatal
        ]

    @property
    def likely(self) -> str:
        """Which input is most likely wrong, a clause."""
        if self.suspects:
            return "most likely wrong: " + ", or ".join(
                f"{one.change} (would be {one.error_pct:.1f} % off)" for one in self.suspects
            )
        worst = max(self.logs, key=lambda log: abs(log.error_after_pct))
        parameters = self.setting.architecture.parameters
        needed = parameters * worst.steady.median_s / worst.before_s
        return (
            "no other batch, GPU count, sequence length, recomputation, cluster or stack explains "
            f"it alone; the time of {worst.name} is that of a model of about "
            f"{format_count(needed)} parameters, --model has {format_count(parameters)}; else the "
            "steps hold what vtrain does not count (data loading, evaluation, checkpoints, "
            "another job)"
        )

    @property
    def warnings(self) -> list[str]:
        """What should make the user doubt the factors, one line each."""
        out = [
            f"{log.name}: {log.error_after_pct:+.1f} % off even with the fitted factors (warned "
            f"above {WARN_PCT:.0f} %): measured {log.measured.brief}; predicted {log.before.brief}"
            for log in self.logs
            if log.off
        ]
        if out:
            out.append(self.likely)
        out += [
            f"{log.name}: {len(log.steady.lines)} steady step(s), fewer than {FEW_STEPS}: the "
            "factors' spread does not know how far single steps scatter"
            for log in self.logs
            if len(log.steady.lines) < FEW_STEPS
        ]
        for name in self.at_range_end:
            low, high = factor_range(name)
            out.append(
                f"factor {name} = {getattr(self.fit.factors, name):.3f} lies at the end of its "
                f"range ({low:.2f} to {high:.2f}, which 95 of 100 sites keep): an input is more "
                "likely wrong than the site that unusual"
            )
        return out

    @property
    def refusal(self) -> str | None:
        """Why no site file should be written; None where nothing speaks against it."""
        if self.fatal:
            return self.fatal[0]
        if self.error_after_pct <= REFUSE_PCT:
            return None
        return (
            f"even the fitted factors leave the steps {self.error_after_pct:.1f} % off (median "
            f"over {len(self.logs)} log(s); bound {REFUSE_PCT:.0f} %), so they describe no site; "
            f"{self.likely}"
        )


def calibrate(setting: Setting, readings: list[Reading]) -> Calibration:
    """Fit site factors to the median steady step of each log.

    Raises:
        UserInputError: a log without a steady step of the plan's batch.
    """
    steadies = [
        steady_steps(
            reading.log, global_batch_size=reading.plan.global_batch_size,
            seq_length=setting.seq_length, gpus=reading.plan.gpus,
        )
        for reading in readings
    ]  # fmt: skip
    plans = PlanTable.from_plans([reading.plan for reading in readings])

    def predict(site: SiteFactors) -> NDArray[np.float64]:
        return step_seconds(
            setting.architecture, setting.cluster, setting.stack, plans,
            seq_length=setting.seq_length, site=site,
        )  # fmt: skip

    fit = fit_factors(predict, [steady.median_s for steady in steadies])
    before, after = predict(setting.site), predict(fit.factors)
    claims = [_claim(setting, reading.plan) for reading in readings]
    results = [
        LogResult(
            reading=reading, steady=steady, claim=claim, flags=tuple(flags(steady, claim)),
            before_s=float(before[at]), after_s=float(after[at]),
        )
        for at, (reading, steady, claim) in enumerate(zip(readings, steadies, claims, strict=True))
    ]  # fmt: skip
    off = [log for log in results if log.off]
    found = suspects(setting, [log.reading.plan for log in off], [log.steady for log in off])
    return Calibration(setting=setting, fit=fit, logs=tuple(results), suspects=tuple(found))


def _claim(setting: Setting, plan: Plan) -> Claim:
    device = setting.cluster.device
    peak = device.peak_flops[device_precision(setting.cluster, setting.stack)]
    peaks = {f"{device.name} {name}": float(value) for name, value in device.peak_flops.items()}
    for name in device_names():
        for precision, value in load_device(name).peak_flops.items():
            if float(value) not in peaks.values():
                peaks[f"{name} {precision}"] = float(value)
    return Claim(
        work=Work(
            architecture=setting.architecture, seq_length=setting.seq_length, tp=plan.tp,
            recompute=plan.recompute,
        ),
        gpus=plan.gpus, global_batch_size=plan.global_batch_size, peak_flops=float(peak),
        peaks=peaks,
    )  # fmt: skip
