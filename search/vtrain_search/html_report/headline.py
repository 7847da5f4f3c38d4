"""The first screen: the recommendation in one sentence, its figures, its caveats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.interval import interval_multipliers
from vtrain.units import GIB, format_count, format_duration, format_usd
from vtrain_search.html_report.content import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain_search.problem import Problem

    Row = Mapping[str, Any]

Z90 = 1.645
"""Half-width of the central 90 % of a normal distribution in standard deviations."""


def degrees(row: Row) -> str:
    """Return the parallel degrees of a row, those of 1 left out."""
    names = (("TP", "tp"), ("CP", "cp"), ("PP", "pp"), ("DP", "dp"))
    said = [f"{name} {row[key]}" for name, key in names if row[key] > 1]
    return " x ".join(said) or "no parallelism"


def recommendation(row: Row) -> str:
    """Return the answer in one sentence."""
    time = float(row["wall_s"])
    days = f"{time / 86_400.0:.1f} days" if time >= 86_400.0 else format_duration(time)
    aimed = row["target_loss"] is not None
    at_cost = f", at {format_usd(row['cost_usd'])}" if aimed else ""
    return (
        f"{'For' if aimed else 'With'} {row['budget']} on {row['cluster']} at "
        f"${row['price_usd_per_gpu_hour']:.2f} a GPU-hour, train a model of "
        f"{format_count(row['parameters'])} parameters ({row['layers']} layers of width "
        f"{row['hidden_size']:,}) on {format_count(row['tokens'])} tokens with "
        f"{row['gpus']:,} GPUs ({degrees(row)}) for {days}: predicted loss {row['loss']:.3f}, "
        f"90 % interval {row['loss_low']:.3f} to {row['loss_high']:.3f}{at_cost}."
    )


def interval(value: float, log_sd: float) -> tuple[float, float]:
    """Return the 90 % interval of a value whose logarithm has a normal error."""
    spread = float(np.exp(Z90 * log_sd))
    return value / spread, value * spread


def figures(problem: Problem, row: Row) -> tuple[Figure, ...]:
    """Return what a reader wants at a glance, each with its interval where it has one."""
    step_s, mfu = float(row["step_time_s"]), float(row["mfu"])
    fast, slow = (float(end) for end in interval_multipliers(problem.stack.time_log_sd))
    peak = float(row["mem_peak_bytes"])
    memory = interval(peak, problem.stack.memory_log_sd)
    plan = f"{degrees(row)}, micro-batch {row['micro_batch_size']}"
    if row["virtual_stages"] > 1:
        plan += f", {row['virtual_stages']} virtual stages"
    return (
        Figure("loss", f"{row['loss']:.3f}", f"{row['loss_low']:.3f} to {row['loss_high']:.3f} "
               f"{problem.loss.law.unit}"),
        Figure("model", format_count(row["parameters"]),
               f"{row['layers']} x {row['hidden_size']:,}, "
               f"{row['num_attention_heads']} heads, {row['num_key_value_heads']} key-value, "
               f"ffn {row['ffn_hidden_size']:,}"),
        Figure("tokens", format_count(row["tokens"]),
               f"{row['tokens_per_parameter']:.1f} a parameter; {row['steps']:,} steps of "
               f"{format_count(row['global_batch_size'] * row['seq_length'])}"),
        Figure("GPUs", f"{row['gpus']:,}", plan),
        Figure("time", format_duration(float(row["wall_s"])),
               f"goodput {100 * row['goodput']:.1f} %; step {step_s:.2f} s "
               f"({step_s * fast:.2f} to {step_s * slow:.2f})"),
        Figure("cost", format_usd(row["cost_usd"]),
               f"{row['gpu_hours']:,.0f} GPU-hours at ${row['price_usd_per_gpu_hour']:.2f}"),
        Figure("MFU", f"{100 * mfu:.1f} %", f"{100 * mfu / slow:.0f} to {100 * mfu / fast:.0f} %, "
               "dense peak, attention at full s²"),
        Figure("memory", f"{peak / GIB:.1f} GiB",
               f"{memory[0] / GIB:.1f} to {memory[1] / GIB:.1f}; limit "
               f"{row['mem_limit_bytes'] / GIB:.1f}"),
    )  # fmt: skip
