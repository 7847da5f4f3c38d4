"""The report as text, as JSON and as one line a row."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from vtrain.validation.score import RowResult

if TYPE_CHECKING:
    from vtrain.validation.score import Entry, Report

SCHEMA_VERSION = 1
_COLUMNS = (
    "source", "GPU", "framework", "rows", "MAPE", "median", "p90", "bias", "in 90 %", "+/-",
    "memory", "plan lost", "plan p90", "random",
)  # fmt: skip
_LEGEND = """\
Columns, in % but for the rows
  rows         measured runs judged; a source is a prefix of run_id, on one GPU and framework
  MAPE         mean of |predicted / measured - 1| of the step time; then its median and 90th
               percentile; bias: the mean with its sign, + is predicted too slow
  in 90 %      runs whose measured time lies in the printed 90 % interval; +/-: half its width
  memory       MAPE of the published peak memory, where there is one
  plan lost    how much slower the plan ranked first is than the fastest measured one: median over
               problems (their number) of three plans and more; plan p90: its 90th percentile;
               random: the median for a plan picked at random"""
_ZERO_SHOT = """\
Zero-shot: no site factors. The few constants that only runs can tell were fitted without the
source that is judged, but for those that the list of fitted constants below calls read off it"""
_CONSTANTS = """\
Fitted constants that touch these sources: "fitted on" names the other sources used for the source
judged; "read off" admits that the rows judged were used"""


def report_json(report: Report) -> dict[str, Any]:
    """Return the documented JSON document; percentages rounded to 1e-3."""
    return {
        "schema_version": SCHEMA_VERSION,
        "zero_shot": [_entry_json(entry, few_shot=False) for entry in report.zero_shot],
        "few_shot": [_entry_json(entry, few_shot=True) for entry in report.few_shot],
        "constants": list(report.constants),
    }


def _entry_json(entry: Entry, *, few_shot: bool) -> dict[str, Any]:
    out = {key: _rounded(value) for key, value in asdict(entry).items()}
    if not few_shot:
        del out["time_mape_range_pct"]
    return out


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, tuple | list):
        return [_rounded(item) for item in value]
    return value


def report_text(report: Report) -> str:
    """Return the report as plain text tables, percentages."""
    blocks = [_table(_ZERO_SHOT, report.zero_shot)]
    if report.few_shot:
        blocks.append(
            _table(
                "Few-shot: site factors fitted to a few rows of the source, the others judged "
                "(mean over seeds)",
                report.few_shot,
            )
        )
    if report.constants:
        blocks.append("\n".join([_CONSTANTS, *(f"  {line}" for line in report.constants)]))
    blocks.append(_LEGEND)
    blocks.append(_skips(report.zero_shot))
    return "\n\n".join(block for block in blocks if block)


def _table(title: str, entries: tuple[Entry, ...]) -> str:
    lines = [_COLUMNS, *(_cells(entry) for entry in entries if entry.judged)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    rows = [
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([title, *rows])


def _cells(entry: Entry) -> tuple[str, ...]:
    regret = _number(entry.plan_regret_median_pct)
    return (
        entry.source,
        entry.gpu,
        entry.framework,
        str(entry.judged),
        _number(entry.time_mape_pct),
        _number(entry.time_median_ape_pct),
        _number(entry.time_p90_ape_pct),
        _number(entry.time_bias_pct, sign=True),
        _number(entry.interval_coverage_pct),
        _number(entry.interval_half_width_pct),
        _number(entry.memory_mape_pct),
        f"{regret} ({entry.regret_groups})" if entry.regret_groups else "-",
        _number(entry.plan_regret_p90_pct),
        _number(entry.random_regret_median_pct),
    )


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1f}" if sign else f"{value:.1f}"


def _skips(entries: tuple[Entry, ...]) -> str:
    lines = []
    for entry in entries:
        if entry.skipped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in entry.skipped.items())
            lines.append(f"{entry.source} {entry.gpu} {entry.framework}: {reasons}")
    return "\n".join(["Rows not judged", *lines]) if lines else ""


def rows_csv(report: Report) -> str:
    """Return one line a judged row; it repeats measured values, so it is not for publication."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([item.name for item in fields(RowResult)])
    for row in report.rows:
        writer.writerow([_plain(getattr(row, item.name)) for item in fields(RowResult)])
    return stream.getvalue()


def _plain(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
