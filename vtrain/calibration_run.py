"""From logs to a site file: steady steps, plausibility, fit, report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.calibrate import SiteFit, fit_factors
from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.files import write_text
from vtrain.formats.logs.plausible import Claim, Flag, flags
from vtrain.formats.logs.steady import Steady, steady_steps
from vtrain.mfu import Work
from vtrain.operators.workload import device_precision
from vtrain.plan import Plan, PlanTable
from vtrain.presets import device_names, load_device
from vtrain.site_file import site_table
from vtrain.units import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.cli_options import Setting
    from vtrain.formats.logs.model import Log
    from vtrain.site import SiteFactors

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One log and the plan it was run with."""

    log: Log
    plan: Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class LogResult:
    """What one log said.

    Attributes:
        reading: log and plan.
        steady: the steps used.
        flags: what is wrong or odd.
        before_s: predicted step time with the shipped constants.
        after_s: predicted with the site factors.
    """

    reading: Reading
    steady: Steady
    flags: tuple[Flag, ...]
    before_s: float
    after_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The fit and the logs behind it."""

    setting: Setting
    fit: SiteFit
    logs: tuple[LogResult, ...]

    @property
    def fatal(self) -> list[str]:
        """Flags that cannot be true of any site."""
        return [
            f"{Path(result.reading.log.source).name}: {flag.text}"
            for result in self.logs
            for flag in result.flags
            if flag.fatal
        ]


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
    results = [
        LogResult(
            reading=reading, steady=steady,
            flags=tuple(flags(steady, _claim(setting, reading.plan))),
            before_s=float(before[at]), after_s=float(after[at]),
        )
        for at, (reading, steady) in enumerate(zip(readings, steadies, strict=True))
    ]  # fmt: skip
    return Calibration(setting=setting, fit=fit, logs=tuple(results))


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


def write_site(result: Calibration, out: str | Path, *, force: bool) -> None:
    """Write the site file.

    Raises:
        UserInputError: a log cannot be true, or the file is there, and not `force`.
    """
    import tomli_w

    if result.fatal and not force:
        raise UserInputError(result.fatal[0], hint="--force fits it all the same")
    if Path(out).exists() and not force:
        raise UserInputError(f"{out} exists", hint="--force writes over it")
    write_text(out, tomli_w.dumps(_site_table(result)))


def _site_table(result: Calibration) -> dict[str, Any]:
    fit, setting = result.fit, result.setting
    return site_table(
        fit.factors,
        cluster=setting.cluster.name, stack=setting.stack.name,
        model=setting.architecture.name or "(file)",
        date=datetime.now(UTC).date().isoformat(),
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        rows=fit.rows, residual_log_sd=fit.residual_log_sd, interval=list(fit.interval),
        log_sd=dict(fit.log_sd),
        logs=[
            {
                "file": Path(log.reading.log.source).name, "format": log.reading.log.format,
                "steps": int(log.steady.step_times_s.size), "warm_up": log.steady.warm_up,
                "outliers": log.steady.outliers, "median_s": log.steady.median_s,
                "flags": [flag.text for flag in log.flags],
            }
            for log in result.logs
        ],
    )  # fmt: skip


def text_lines(result: Calibration, out: str | Path) -> Iterator[str]:
    """Yield the report for people."""
    for log in result.logs:
        steady, source = log.steady, log.reading.log
        left = [
            f"{count} {what}"
            for count, what in (
                (steady.warm_up, "warm-up"), (steady.outliers, "outliers"),
                (steady.other_batch, "of another batch"), (steady.skipped, "skipped steps"),
                (source.damaged, "cut-off lines"), (source.duplicates, "of other ranks"),
            )
            if count
        ]  # fmt: skip
        yield (
            f"{source.source} ({source.format}, {source.runs} start(s)): "
            f"{steady.step_times_s.size} steps, median {format_duration(steady.median_s)}; left "
            f"out: {', '.join(left) or 'nothing'}"
        )
        yield (
            f"  predicted {format_duration(log.before_s)} before, "
            f"{format_duration(log.after_s)} with the factors "
            f"({100 * (log.after_s / steady.median_s - 1):+.1f} %)"
        )
        for flag in log.flags:
            yield f"  {'error' if flag.fatal else 'warning'}: {flag.text}"
    for name, sd in result.fit.log_sd.items():
        yield f"{name:14} x {getattr(result.fit.factors, name):.3f}  +- {100 * sd:.0f} %"
    low, high = result.fit.interval
    yield f"90 % of new runs within x {low:.2f} to {high:.2f} of the prediction"
    yield f"{out}: use it with --site {out}"


def document(result: Calibration, out: str | Path) -> dict[str, Any]:
    """Return the report as plain values."""
    return {**_site_table(result), "schema_version": SCHEMA_VERSION, "site": str(out)}
