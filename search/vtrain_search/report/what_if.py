"""The sensitivity of an answer in words and figures: one set of cells for every output."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vtrain.units import GIB, format_count, format_duration, format_usd
from vtrain_search.report.layout import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain_search.report.answer import Answer
    from vtrain_search.sensitivity import Change

_STAR = "another architecture than the answer's"
_EXPLANATION = (
    "The answer and the best of those tried at a quarter to four thirds of its size, planned anew "
    f"under each change: the best of them. A star marks {_STAR}. Under another law: "
)
_LAW_OF_LOSS = (
    "what that law likes best among all architectures tried; its loss and the gap to the answer "
    "are as that law judges both, so the gap is what switching would gain if it is true."
)
_LAW_OF_TARGET = (
    "what reaches the loss as that law judges it; the gap is to the answer under its own law."
)
_NOTE_OF_LOSS = (
    "law rows: what that law likes best of all tried, and what switching would gain if it is true"
)
_NOTE_OF_TARGET = "law rows: what reaches the loss if that law is true"
_DESIGN_KEYS = (
    "loss", "parameters", "tokens", "layers", "hidden_size", "cluster", "gpus", "tp", "pp", "dp",
    "cp", "virtual_stages", "micro_batch_size", "global_batch_size", "recompute", "sharding",
    "mem_peak_bytes", "mem_limit_bytes",
)  # fmt: skip


def explanation(answer: Answer) -> str:
    """Return what the table shows, in sentences."""
    return _EXPLANATION + (_LAW_OF_LOSS if answer.case.target_loss is None else _LAW_OF_TARGET)


def gap_unit(answer: Answer) -> str:
    """Return what gaps are in: nats, or percent of dollars or days."""
    return "nats" if answer.case.target_loss is None else f"% of {answer.case.objective}"


def what_if_cells(
    answer: Answer, changes: Sequence[Change]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows of text, one row a change."""
    heads = (
        "change", "loss", gap_unit(answer), "parameters", "tokens", "GPUs", "TP/PP/DP", "time",
        "cost",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for change in changes:
        r = change.row
        if r is None:
            rows.append((change.name, "nothing feasible", *[""] * (len(heads) - 2)))
            continue
        rows.append((
            change.name, f"{r['loss']:.4f}", _gap(answer, change),
            format_count(r["parameters"]) + ("*" if change.other_model else ""),
            format_count(r["tokens"]), f"{r['gpus']:,}", f"{r['tp']}/{r['pp']}/{r['dp']}",
            format_duration(r["wall_s"] * change.slowdown),
            format_usd(r["cost_usd"] * change.slowdown),
        ))  # fmt: skip
    return heads, rows


def what_if_grid(answer: Answer, changes: Sequence[Change]) -> Grid:
    """Return the table for a terminal."""
    heads, rows = what_if_cells(answer, changes)
    title = f"What if, for {answer.row['budget']}"
    return Grid(title=title, heads=heads, left=("change",), rows=list(rows))


def what_if_note(answer: Answer, changes: Sequence[Change]) -> str:
    """Return the lines under the table."""
    laws = _NOTE_OF_LOSS if answer.case.target_loss is None else _NOTE_OF_TARGET
    return "\n ".join([f" * {_STAR}; {laws}", *memory_notes(changes)])


def memory_notes(changes: Sequence[Change]) -> list[str]:
    """Return how to ask for the safer design, and what of it the table has no column for."""
    found = []
    for change in changes:
        if change.memory_limit_share is None:
            continue
        text = f"memory row: --memory-limit {change.memory_limit_share:g}"
        if (r := change.row) is not None:
            text += (
                f"; {r['virtual_stages']} virtual stages, micro-batch {r['micro_batch_size']}, "
                f"batch {r['global_batch_size']:,}, recompute {r['recompute']}, {r['sharding']}, "
                f"{r['mem_peak_bytes'] / GIB:.1f} GiB a GPU"
            )
        found.append(text)
    return found


def what_if_json(answer: Answer, changes: Sequence[Change]) -> dict[str, Any]:
    """Return the sensitivity as plain values: one record a change, units in the names."""
    aimed = answer.case.target_loss is not None
    key = f"gap_{answer.case.objective}_share" if aimed else "gap_nats"
    records = []
    for change in changes:
        r = change.row
        record: dict[str, Any] = {"change": change.name, "feasible": r is not None}
        if change.memory_limit_share is not None:
            record["mem_limit_share"] = change.memory_limit_share
        if r is not None:
            record |= {
                key: change.gap if math.isfinite(change.gap) else None,
                "same_architecture": not change.other_model,
                **{k: r[k] for k in _DESIGN_KEYS},
                "days": r["wall_s"] * change.slowdown / 86_400.0,
                "cost_usd": r["cost_usd"] * change.slowdown,
            }
        records.append(record)
    return {"budget": answer.row["budget"], "changes": records}


def _gap(answer: Answer, change: Change) -> str:
    if not math.isfinite(change.gap):
        return "answer infeasible"
    if answer.case.target_loss is not None:
        return f"{100.0 * change.gap:+.1f} %"
    return f"{change.gap:+.4f}"
