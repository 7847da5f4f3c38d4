"""What `vtrain calibrate` writes and prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.calibrate import FACTORS, factor_range
from vtrain.calibration_check import REFUSE_PCT, WARN_PCT
from vtrain.files import write_text
from vtrain.site_file import site_table
from vtrain.units import format_duration

if TYPE_CHECKING:
    from vtrain.calibration_run import Calibration, LogResult

SCHEMA_VERSION = 1


def write_site(result: Calibration, out: str | Path, *, forced: bool = False) -> None:
    """Write the site file.

    Args:
        result: the calibration.
        out: file to write, over one that is there.
        forced: the calibration was refused and is written all the same; the file says so.
    """
    import tomli_w

    table = _site_table(result)
    if forced and result.refusal is not None:
        table["forced"] = result.refusal
    write_text(out, tomli_w.dumps(table))


def _site_table(result: Calibration) -> dict[str, Any]:
    fit, setting = result.fit, result.setting
    return site_table(
        fit.factors,
        cluster=setting.cluster.name, stack=setting.stack.name,
        model=setting.architecture.name or "(file)",
        date=datetime.now(UTC).date().isoformat(),
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        rows=fit.rows, residual_log_sd=fit.residual_log_sd, interval=list(fit.interval),
        error_before_pct=result.error_before_pct, error_after_pct=result.error_after_pct,
        warnings=result.warnings, log_sd=dict(fit.log_sd), held=dict(fit.held),
        answers=dict(fit.answers),
        logs=[
            {
                "file": log.name, "format": log.reading.log.format,
                "steps": int(log.steady.step_times_s.size), "warm_up": log.steady.warm_up,
                "outliers": log.steady.outliers, "median_s": log.steady.median_s,
                "error_before_pct": log.error_before_pct, "error_after_pct": log.error_after_pct,
                "flags": [flag.text for flag in log.flags],
            }
            for log in result.logs
        ],
    )  # fmt: skip


def text_lines(result: Calibration) -> Iterator[str]:
    """Yield the report for people."""
    for log in result.logs:
        yield from _log_lines(log)
    for name, sd in result.fit.log_sd.items():
        factor = getattr(result.fit.factors, name)
        line = f"{name:14} x {factor:.3f}  +- {100 * sd:.0f} % on its predicted seconds"
        if name in result.fit.held:
            line += (
                f"; left at 1: it moves {result.fit.held[name]:.1%} of these steps, too little to "
                "tell more of it than is known of sites"
            )
        yield line
    if len(result.fit.answers) > 1:
        yield "what differs here, by how well it explains the steps: " + ", ".join(
            f"{name} {part:.0%}" for name, part in result.fit.answers.items()
        )
    yield (
        f"off by {result.error_before_pct:.1f} % before the fit, {result.error_after_pct:.1f} % "
        f"with the factors (median of {len(result.logs)} log(s))"
    )
    low, high = result.fit.interval
    yield f"90 % of new runs within x {low:.2f} to {high:.2f} of the predicted step time"


def _log_lines(log: LogResult) -> Iterator[str]:
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
        f"  predicted {format_duration(log.before_s)} ({log.error_before_pct:+.1f} %) before the "
        f"fit, {format_duration(log.after_s)} ({log.error_after_pct:+.1f} %) with the factors"
    )
    if log.off:
        yield f"  measured:     {log.measured.arithmetic}"
        yield f"  predicted:    {log.before.arithmetic}"
        yield f"  with factors: {log.after.arithmetic}"
    for flag in log.flags:
        yield f"  {'error' if flag.fatal else 'warning'}: {flag.text}"


def document(result: Calibration, out: str | Path, *, written: bool) -> dict[str, Any]:
    """Return the report as plain values: the site file, and what led to it.

    Args:
        result: the calibration.
        out: the site file.
        written: whether it was.
    """
    table = _site_table(result)
    for entry, log in zip(table["logs"], result.logs, strict=True):
        entry |= {
            "gpus": log.reading.plan.gpus, "tokens": log.claim.tokens,
            "measured": log.measured.document(), "predicted": log.before.document(),
            "predicted_with_factors": log.after.document(),
        }  # fmt: skip
    return {
        **table, "schema_version": SCHEMA_VERSION, "site": str(out), "written": written,
        "refusal": result.refusal, "warn_above_pct": WARN_PCT, "refuse_above_pct": REFUSE_PCT,
        "at_range_end": list(result.at_range_end),
        "factor_range": {name: list(factor_range(name)) for name in FACTORS},
        "suspects": [
            {"change": one.change, "error_pct": one.error_pct} for one in result.suspects
        ],
    }  # fmt: skip
