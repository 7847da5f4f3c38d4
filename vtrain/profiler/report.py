"""Text of the profile commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.units import format_bytes, format_duration

if TYPE_CHECKING:
    from vtrain.profiler.fit.profile import ProfileFit
    from vtrain.profiler.operators import Operator
    from vtrain.profiler.prediction import Profile
    from vtrain.profiler.session import Outcome
    from vtrain.profiler.verify import Check, Verdict

SCHEMA_VERSION = 1


def dry_run_text(operators: list[Operator], minutes: float) -> str:
    """Return what would be measured, one line a row."""
    counts: dict[str, int] = {}
    for operator in operators:
        counts[operator.table] = counts.get(operator.table, 0) + 1
    parts = ", ".join(f"{count} {table}" for table, count in counts.items())
    head = f"{len(operators)} rows ({parts}), at most {minutes:g} min; nothing was measured"
    return "\n".join([head, *(f"  {operator.label}" for operator in operators)])


def outcome_lines(folder: Path, outcome: Outcome) -> Iterator[str]:
    """Yield what a session measured, left over and skipped."""
    yield (
        f"{folder}: {outcome.measured} rows measured in {format_duration(outcome.seconds)}"
        + (f", {outcome.kept} kept from before" if outcome.kept else "")
    )
    if outcome.left:
        yield f"{outcome.left} rows left by the time limit: --resume goes on"
    for entry in outcome.skipped:
        yield f"skipped {entry}"
    for warning in outcome.meta.warnings:
        yield f"warning: {warning}"


def fit_lines(folder: Path, found: ProfileFit) -> Iterator[str]:
    """Yield held-out errors of a fit and how to use it."""
    for operator, error in found.errors:
        yield (
            f"  {operator:38} {error.rows:5d} rows  {error.mape_pct:5.1f} % "
            f"({error.median_ape_pct:.1f})"
        )
    verdict = found.residual
    if "residual_mape_pct" in verdict:
        yield (
            f"  learned residual of products: {verdict['analytic_mape_pct']} % -> "
            f"{verdict['residual_mape_pct']} %, {'used' if verdict['used'] else 'not used'}"
        )
    else:
        yield f"  learned residual of products: not used, {verdict['why']}"
    # A bare word is a shipped name to every command; a path has a slash.
    path = folder if len(folder.parts) > 1 else f"./{folder}"
    yield f"use it: --cluster {path} --stack {path}"


def verdict_text(profile: Profile, verdict: Verdict, *, as_json: bool) -> str:
    """Return a verdict as a table or as one JSON document."""
    if as_json:
        return json.dumps(verdict_document(profile, verdict), indent=2)
    lines = [
        f"{'configuration':42} {'measured':>9} {'predicted':>9} {'error':>7} {'spread':>6} "
        f"{'memory':>9} {'predicted':>9} {'error':>7}"
    ]
    lines += [_line(check) for check in verdict.checks]
    lines += [f"skipped {entry}" for entry in verdict.skipped]
    lines += [f"warning: {entry}" for entry in verdict.warnings]
    if verdict.checks:
        mean, worst = verdict.error("time_error")
        lines.append(
            f"step time: MAPE {100 * mean:.1f} %, worst {100 * worst:.1f} % over "
            f"{len(verdict.checks)} configurations"
        )
        inside = sum(check.covered for check in verdict.checks)
        lines.append(f"90 % interval: holds {inside} of {len(verdict.checks)}")
        if any(check.measured_bytes for check in verdict.checks):
            mean, worst = verdict.error("memory_error")
            lines.append(f"peak memory: MAPE {100 * mean:.1f} %, worst {100 * worst:.1f} %")
        missed = sorted({shape for check in verdict.checks for shape in check.predicted.missed})
        if missed:
            lines.append(
                f"{len(missed)} products lie outside the measured range (analytic model): "
                + ", ".join(missed[:6]) + (", ..." if len(missed) > 6 else "")
            )  # fmt: skip
    return "\n".join(lines)


def _line(check: Check) -> str:
    memory = ""
    if check.measured_bytes:
        sizes = (check.measured_bytes, check.predicted.mem_peak_bytes)
        memory = " ".join(f"{format_bytes(size):>9}" for size in sizes)
        memory += f" {100 * check.memory_error:+6.1f}%"
    return (
        f"{check.label:42} {format_duration(check.measured_s):>9} "
        f"{format_duration(check.predicted.step_time_s):>9} {100 * check.time_error:+6.1f}% "
        f"{100 * check.spread:5.1f}% {memory}"
    )


def verdict_document(profile: Profile, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values."""
    meta = profile.meta
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "profile": {
            "name": meta.name, "gpu": meta.gpu, "dtype": meta.dtype, "torch": meta.torch,
            "date": meta.date, "clock": meta.clock, "anchor_s": meta.anchor_s,
        },
        "anchor_s": verdict.anchor_s,
        "anchor_spread": verdict.unrest,
        "rows": [
            {
                "configuration": c.label, "measured_s": c.measured_s, "raw_s": c.raw_s,
                "spread": c.spread, "predicted_s": c.predicted.step_time_s,
                "low_s": c.predicted.low_s, "high_s": c.predicted.high_s,
                "analytic_s": c.predicted.analytic_s, "time_error": c.time_error,
                "measured_bytes": c.measured_bytes,
                "predicted_bytes": c.predicted.mem_peak_bytes, "memory_error": c.memory_error,
                "missed_products": list(c.predicted.missed),
            }
            for c in verdict.checks
        ],
        "skipped": list(verdict.skipped),
        "warnings": list(verdict.warnings),
    }  # fmt: skip
    if verdict.checks:
        for key in ("time_error", "memory_error"):
            mean, worst = verdict.error(key)
            document[f"{key}_mape"], document[f"{key}_worst"] = mean, worst
        document["covered"] = sum(check.covered for check in verdict.checks)
    return document
