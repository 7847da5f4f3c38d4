"""The scaling table and what goes with it, as text for a terminal or a file."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

from vtrain.units import GIB, format_count, format_usd
from vtrain_search.report.layout import Grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from vtrain_search.report.answer import Answer
    from vtrain_search.sensitivity import Change

_PIPE_WIDTH = 160
_TIES_SHOWN = 3


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or as the tables where output is piped."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = shutil.get_terminal_size(fallback=(_PIPE_WIDTH, 24)).columns
    return Console(file=stream, width=width, highlight=False)


def render(
    answers: Sequence[Answer | None],
    assumed: Mapping[str, Any],
    *,
    exponents: Mapping[str, float] | None = None,
    what_if: tuple[Answer, Sequence[Change]] | None = None,
) -> list[RenderableType]:
    """Return the blocks to print: tables, ties and smaller models, what if, notes, assumptions.

    Args:
        answers: one a budget; None where nothing was feasible.
        assumed: the assumptions of the problem.
        exponents: how parameters and tokens grow along the table, where it is long enough.
        what_if: one answer and its sensitivity.
    """
    from rich.text import Text

    from vtrain_search.report.what_if import what_if_grid, what_if_note

    found = [a for a in answers if a is not None]
    blocks: list[RenderableType] = [_what_table(found), _how_table(found), _choices_table(found)]
    if what_if is not None:
        blocks += [what_if_grid(*what_if), Text(what_if_note(*what_if))]
    for answer in found:
        if (undecided := answer.row["undecided_parameters"]) and undecided[0] < undecided[1]:
            low, high = (format_count(size) for size in undecided)
            blocks.append(
                Text(f" {answer.row['budget']}: by the loss law's own 90 % interval, sizes from "
                     f"{low} to {high} cannot be told apart")
            )  # fmt: skip
        for warning in answer.row["warnings"]:
            blocks.append(Text(f" note, {answer.row['budget']}: {warning}"))
    if exponents is not None:
        blocks.append(Text(f" {_growth(exponents)}"))
    blocks.append(Text(""))
    blocks.append(_assumptions(assumed))
    return blocks


def _growth(exponents: Mapping[str, float]) -> str:
    text = (
        f"along the table parameters grow as C^{exponents['parameters']:.2f} and tokens as "
        f"C^{exponents['tokens']:.2f} of compute"
    )
    if "law_parameters" in exponents:
        text += (
            f"; the bare law says {exponents['law_parameters']:.2f} and "
            f"{exponents['law_tokens']:.2f}"
        )
    return text


def _what_table(answers: Sequence[Answer]) -> Grid:
    """What to train: the model, its tokens, its loss, what it takes, what 10 % more would buy."""
    table = Grid(
        title="What to train",
        heads=("budget", "params", "tokens", "tok/par", "loss (90 % interval)", "layers x width",
               "ffn", "heads/kv", "GPUs", "days", "cost", "+10 % buys"),
    )  # fmt: skip
    for answer in answers:
        r = answer.row
        table.rows.append(
            (
                r["budget"],
                format_count(r["parameters"]),
                format_count(r["tokens"]),
                f"{r['tokens_per_parameter']:.1f}",
                f"{r['loss']:.4f} ({r['loss_low']:.3f}-{r['loss_high']:.3f})",
                f"{r['layers']} x {r['hidden_size']}",
                str(r["ffn_hidden_size"]),
                f"{r['num_attention_heads']}/{r['num_key_value_heads']}",
                f"{r['gpus']:,}",
                f"{r['days']:.1f}",
                format_usd(r["cost_usd"]),
                _next_tenth(r["next_tenth_nats"]),
            )
        )
    return table


def _next_tenth(nats: float | None) -> str:
    """Return what more money takes off the loss; a dash where it takes off nothing."""
    return f"-{nats:.4f}" if nats and nats >= 5e-5 else "-"


def _how_table(answers: Sequence[Answer]) -> Grid:
    """How to train it: the plan, its speed and its memory."""
    table = Grid(
        title="How to train it",
        heads=("budget", "cluster", "TP", "PP", "DP", "CP", "VPP", "mbs", "batch", "recompute",
         "sharding", "step", "MFU", "GiB a GPU"),
        left=("cluster", "recompute", "sharding"),
    )  # fmt: skip
    for answer in answers:
        r = answer.row
        table.rows.append(
            (
                r["budget"],
                r["cluster"],
                *(
                    str(r[k])
                    for k in ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch_size")
                ),
                f"{r['global_batch_size']:,}",
                r["recompute"],
                r["sharding"],
                f"{r['step_time_s']:.2f} s",
                f"{100 * r['mfu']:.1f} %",
                f"{r['mem_peak_bytes'] / GIB:.1f}/{r['mem_limit_bytes'] / GIB:.1f}",
            )
        )
    return table


def _choices_table(answers: Sequence[Answer]) -> RenderableType:
    """Ties and smaller models: what else could be chosen, and what it costs."""
    from rich.text import Text

    table = Grid(
        title="Alternatives: ties (under 1 % of the budget) and smaller models (cheaper to serve)",
        heads=("budget", "choice", "params", "tokens", "tok/par", "loss", "costs", "nats",
         "layers x width", "GPUs", "MFU", "days"),
        left=("choice",),
    )  # fmt: skip
    for answer in answers:
        ties = answer.ties[:_TIES_SHOWN]
        labelled = [(_tie_label(answer, i), tie) for i, tie in enumerate(ties)]
        labelled += [(f"{s['size']} size", s) for s in answer.smaller]
        for position, (label, r) in enumerate(labelled):
            table.rows.append(
                (
                    answer.row["budget"] if position == 0 else "",
                    label,
                    format_count(r["parameters"]),
                    format_count(r["tokens"]),
                    f"{r['tokens_per_parameter']:.1f}",
                    f"{r['loss']:.4f}",
                    f"{100 * r['gap_budget_share']:.1f} %",
                    f"{r['gap_nats']:.4f}",
                    f"{r['layers']} x {r['hidden_size']}",
                    f"{r['gpus']:,}",
                    f"{100 * r['mfu']:.1f} %",
                    f"{r['days']:.1f}",
                )
            )
    return table if table.rows else Text("")


def _tie_label(answer: Answer, position: int) -> str:
    if position == 0 and answer.ties[0]["parameters"] < answer.row["parameters"]:
        return "smallest tie"
    return "tie"


def assumption_words(key: str, value: object) -> str:
    """Return the value of one assumption as people write it."""
    if key == "unique_tokens" and isinstance(value, int | float):
        return format_count(value)
    if isinstance(value, list):
        return ", ".join(assumption_words(key, v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _assumptions(assumed: Mapping[str, Any]) -> RenderableType:
    from rich.text import Text

    lines = ["assumptions"]
    for key, value in assumed.items():
        if key == "clusters":
            for name, c in value.items():
                price = f"${c['price_usd_per_gpu_hour']:.2f} a GPU-hour"
                listed = c["hyperscaler_price_usd_per_gpu_hour"]
                beside = f"; hyperscaler list ${listed:.2f}" if listed else ""
                lines.append(
                    f"  cluster: {name}, {c['gpus_per_node']} a node, at most {c['max_gpus']:,} "
                    f"GPUs, {price} ({c['price_source'].removeprefix(price).strip(' ()')}){beside}"
                )
        else:
            lines.append(f"  {key.replace('_', ' ')}: {assumption_words(key, value)}")
    return Text("\n".join(lines))
