"""Loss against budget over a scaling table, and loss against size under one budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.units import format_count
from vtrain_search.frontier import exponents
from vtrain_search.html_report.content import Chart, Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer

    Row = Mapping[str, Any]

_NEAR_NATS, _NEAR_FACTOR = 0.25, 3.0
"""What is farther from the best says nothing about its neighbourhood and flattens the chart."""
_LEAST_ROWS = 4
_KINDS = (("usd", "cost_usd", "dollars"), ("gpu_hours", "gpu_hours", "GPU-hours"))


def frontier_section(problem: Problem, answers: Sequence[Answer]) -> Section | None:
    """Return loss against cost, None for a single budget."""
    if len(answers) < 2:
        return None
    key, unit = "gpu_hours", "GPU-hours"
    for field, column, name in _KINDS:
        if all(getattr(a.case, field) is not None for a in answers):
            key, unit = column, name
            break
    rows = sorted((a.row for a in answers), key=lambda r: (r[key], r["loss"]))
    first, last = rows[0], rows[-1]
    line = (
        f"From {first['budget']} to {last['budget']} the loss falls from {first['loss']:.3f} to "
        f"{last['loss']:.3f}"
    )
    growth = exponents(rows, problem.loss)
    if growth is not None:
        line += (
            f"; parameters grow as compute to the power {growth['parameters']:.2f}, tokens "
            f"{growth['tokens']:.2f}"
        )
    return Section(
        key="frontier",
        title="Loss and cost",
        lines=(f"{line}.",),
        charts=(
            Chart(
                kind="frontier",
                caption=f"Lowest predicted loss against {unit} spent, with its 90 % interval.",
                data={
                    "x": [float(r[key]) for r in rows],
                    "unit": unit,
                    "loss": [float(r["loss"]) for r in rows],
                    "low": [float(r["loss_low"]) for r in rows],
                    "high": [float(r["loss_high"]) for r in rows],
                    "labels": [
                        f"{r['budget']}: {format_count(r['parameters'])} on "
                        f"{format_count(r['tokens'])} tokens, {r['gpus']:,} GPUs"
                        for r in rows
                    ],
                },
            ),
        ),
    )


def size_section(answer: Answer, tried: Sequence[Row]) -> Section | None:
    """Return loss (or, with a target loss, dollars or days) against size under one budget.

    Args:
        answer: the recommended design.
        tried: rows of every feasible architecture.
    """
    case, best = answer.case, answer.row
    key, unit, near = "loss", "loss, nats a token", best["loss"] + _NEAR_NATS
    if case.target_loss is not None:
        key, unit = ("cost_usd", "dollars") if case.objective == "cost" else ("wall_s", "days")
        near = _NEAR_FACTOR * best[key]
    scale = 86_400.0 if key == "wall_s" else 1.0
    rows = sorted((r for r in tried if r[key] <= near), key=lambda r: (r["parameters"], r[key]))
    if len(rows) < _LEAST_ROWS:
        return None
    others = [r for r in answer.smaller if r[key] <= near]
    what = unit.split(",")[0]
    return Section(
        key="size",
        title=f"{what.capitalize()} and size",
        lines=(
            f"Every point is one architecture with its best plan for {best['budget']}; "
            f"{len(rows)} of {answer.trials} tried are near enough to show.",
        ),
        charts=(
            Chart(
                kind="sizes",
                caption=f"{what.capitalize()} against parameters, all else as in the question.",
                data={
                    "unit": unit,
                    "parameters": [float(r["parameters"]) for r in rows],
                    "values": [float(r[key]) / scale for r in rows],
                    "labels": [
                        f"{r['layers']} x {r['hidden_size']}, {format_count(r['tokens'])} tokens, "
                        f"{r['gpus']:,} GPUs"
                        for r in rows
                    ],
                    "best": [float(best["parameters"]), float(best[key]) / scale],
                    "others": [[float(r["parameters"]), float(r[key]) / scale] for r in others],
                },
            ),
        ),
    )
