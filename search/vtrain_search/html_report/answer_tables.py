"""The scaling table and the alternatives as text cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.units import GIB, format_count, format_duration, format_usd
from vtrain_search.html_report.content import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.report import Answer

    Row = Mapping[str, Any]

TIES_SHOWN = 8


def what_table(answers: Sequence[Answer], focus: int) -> Table:
    """Return what to train, one row a budget."""
    rows = tuple(
        (
            str(r["budget"]),
            format_count(r["parameters"]),
            format_count(r["tokens"]),
            f"{r['tokens_per_parameter']:.1f}",
            f"{r['loss']:.4f}",
            f"{r['loss_low']:.3f} to {r['loss_high']:.3f}",
            f"{r['layers']} x {r['hidden_size']:,}",
            f"{r['num_attention_heads']}/{r['num_key_value_heads']}",
            f"{r['ffn_hidden_size']:,}",
            format_usd(r["cost_usd"]),
        )
        for r in (a.row for a in answers)
    )
    return Table(
        heads=("budget", "parameters", "tokens", "tokens/par.", "loss", "90 % interval",
               "layers x width", "heads/kv", "ffn", "cost"),
        rows=rows, left=("budget",), marked=(focus,) if len(rows) > 1 else (),
    )  # fmt: skip


def how_table(answers: Sequence[Answer], focus: int) -> Table:
    """Return how to train it, one row a budget."""
    rows = tuple(
        (
            str(r["budget"]),
            str(r["cluster"]),
            f"{r['gpus']:,}",
            *(str(r[k]) for k in ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch_size")),
            f"{r['global_batch_size']:,}",
            str(r["recompute"]),
            str(r["sharding"]),
            f"{r['step_time_s']:.2f} s",
            f"{100 * r['mfu']:.1f} %",
            f"{r['mem_peak_bytes'] / GIB:.1f} of {r['mem_limit_bytes'] / GIB:.1f}",
            format_duration(float(r["wall_s"])),
        )
        for r in (a.row for a in answers)
    )
    return Table(
        heads=("budget", "cluster", "GPUs", "TP", "PP", "DP", "CP", "VPP", "mbs", "batch",
               "recompute", "sharding", "step", "MFU", "GiB a GPU", "time"),
        rows=rows, left=("budget", "cluster", "recompute", "sharding"),
        marked=(focus,) if len(rows) > 1 else (),
    )  # fmt: skip


def choices_table(answer: Answer) -> Table:
    """Return the answer, its ties and its smaller models, each with its price."""
    of_what = "of budget" if answer.case.target_loss is None else f"of {answer.case.objective}"
    labelled = [("recommended", dict(answer.row) | {"gap_nats": 0.0, "gap_budget_share": 0.0})]
    labelled += [("tie", dict(tie)) for tie in answer.ties[:TIES_SHOWN]]
    labelled += [(f"{s['size']} the size", dict(s)) for s in answer.smaller]
    rows = tuple(
        (
            label,
            format_count(r["parameters"]),
            format_count(r["tokens"]),
            f"{r['tokens_per_parameter']:.1f}",
            f"{r['loss']:.4f}",
            f"{r['gap_nats']:+.4f}" if position else "",
            f"{100 * r['gap_budget_share']:.1f} %" if position else "",
            f"{r['layers']} x {r['hidden_size']:,}",
            f"{r['gpus']:,}",
            f"{r['tp']}/{r['pp']}/{r['dp']}",
            f"{100 * r['mfu']:.1f} %",
            f"{r['days']:.1f}",
        )
        for position, (label, r) in enumerate(labelled)
    )
    return Table(
        heads=("choice", "parameters", "tokens", "tokens/par.", "loss", "nats", of_what,
               "layers x width", "GPUs", "TP/PP/DP", "MFU", "days"),
        rows=rows, left=("choice",), marked=(0,),
    )  # fmt: skip
