"""What the joint search saves against three usual ways to plan; writes README.md and CSV beside it.

    python results/comparison/comparison.py

Every design is judged by the same simulator and the same loss law, on the default cluster, and
spends its whole budget (but the spreadsheet's, whose error is what it leaves unspent).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtrain_search.api import search

from vtrain import __version__
from vtrain.files import write_text
from vtrain.presets import load_cluster
from vtrain.prices import default_price

HERE = Path(__file__).parent
CLUSTER = "h100-sxm-80g"
BUDGETS_USD = (1e5, 1e6, 1e7)
TOKENS_PER_PARAMETER = 20
ASSUMED_MFU = 0.40
STAGES = (1, 2, 3, 4, 6, 8, 12, 16)
SPENT = 0.95
"""A plan "fits" at full spend when its best design spends this share of the budget."""
SIZE_ERROR = 0.01
TOLERANCE = 0.004
"""Savings under this share of the budget are noise of two searches (0.2 % each)."""
COLUMNS = (
    "budget_usd", "way", "parameters", "tokens", "loss", "loss_low", "loss_high", "gpus", "tp",
    "pp", "dp", "virtual_stages", "micro_batch_size", "global_batch_size", "recompute", "mfu",
    "days", "cost_usd", "same_loss_for_usd",
)  # fmt: skip


def best(budget_usd: float, **fixed: Any) -> dict[str, Any] | None:
    """Return the best design of a budget under pins; None when there is none."""
    from vtrain.errors import InfeasibleError

    try:
        return search(f"{budget_usd}usd", cluster=CLUSTER, fix=fixed).best
    except InfeasibleError:
        return None


def heuristic(budget_usd: float, **fixed: Any) -> dict[str, Any]:
    """Return the design with one node of tensor parallelism and the fewest stages that fit.

    Without recomputation: with all of it fewer stages fit, at a third less speed, and nobody who
    counts dollars plans like that where flash attention leaves little to recompute.
    """
    for stages in STAGES:
        row = best(
            budget_usd, tokens_per_parameter=TOKENS_PER_PARAMETER, tp=8, pp=stages,
            virtual_stages=1, recompute="none", **fixed,
        )  # fmt: skip
        if row is not None and row["cost_usd"] >= SPENT * budget_usd:
            return row
    raise RuntimeError(f"no pipeline of {STAGES} stages fits at ${budget_usd:,.0f}")


def spreadsheet(budget_usd: float, **fixed: Any) -> tuple[float, dict[str, Any]]:
    """Return the parameters that a spreadsheet buys, and that model trained on the best plan.

    C = budget / price x peak x 40 %, C = 6 N D, D = 20 N. What it really costs is found by
    searching at the budget whose 20-tokens-a-parameter design has that many parameters.
    """
    peak = load_cluster(CLUSTER).device.peak_flops["bf16"]
    gpu_s = budget_usd / default_price(CLUSTER).usd_per_gpu_hour * 3600.0
    wanted = math.sqrt(gpu_s * peak * ASSUMED_MFU / (6.0 * TOKENS_PER_PARAMETER))
    cost = budget_usd
    for _ in range(6):
        row = best(cost, tokens_per_parameter=TOKENS_PER_PARAMETER, **fixed)
        assert row is not None
        ratio = wanted / row["parameters"]
        if abs(ratio - 1.0) <= SIZE_ERROR:
            break
        cost = row["cost_usd"] * ratio**2  # cost goes with N x D
    return wanted, row


def ways(budget_usd: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every way to plan with its design."""
    yield "a, micro-batch 1", heuristic(budget_usd, micro_batch_size=1)
    yield "a", heuristic(budget_usd)
    fixed = best(budget_usd, tokens_per_parameter=TOKENS_PER_PARAMETER)
    assert fixed is not None
    yield "b", fixed
    joint = best(budget_usd)
    assert joint is not None
    yield "c", joint
    yield "d", spreadsheet(budget_usd)[1]


def dollars_for(loss: float) -> float:
    """Return the least cost at which the joint search reaches a loss."""
    found = search(cluster=CLUSTER, target_loss=loss, objective="cost")
    return float(found.best["cost_usd"])


NAMES = {
    "a, micro-batch 1": "a, and micro-batch 1",
    "a": "a: 20 tokens a parameter, TP 8, fewest stages that fit",
    "b": "b: 20 tokens a parameter, best plan",
    "c": "c: joint search",
    "d": "d: spreadsheet at 40 % MFU, best plan",
}


def report(rows: list[dict[str, Any]]) -> str:
    """Return the comparison as Markdown."""
    price = default_price(CLUSTER)
    parts = [
        "# What the joint search saves\n",
        f"`python results/comparison/comparison.py`; {CLUSTER} at "
        f"${price.usd_per_gpu_hour:.2f} a GPU-hour, 30 days, sequence 4,096, defaults of "
        f"`vtrain-search`, seed 0, vtrain {__version__}. Every design is judged by the same "
        "simulator and loss law. Way a leaves GPU count, batch and (but in the first row) "
        "micro-batch to the search, recomputes nothing and has no virtual stages; the textbook "
        'form is micro-batch 1. "Same loss" is what the joint search would have paid for that '
        "loss.\n",
    ]
    for budget_usd in BUDGETS_USD:
        own = {row["way"]: row for row in rows if row["budget_usd"] == budget_usd}
        parts += [f"\n## ${budget_usd:,.0f}\n", _table(own), _reading(own, budget_usd)]
    return "\n".join(parts)


def _table(own: Mapping[str, dict[str, Any]]) -> str:
    lines = [
        "| way | parameters | tokens | loss | GPUs | TP, PP, DP, VPP, micro-batch | recompute "
        "| MFU | days | cost | same loss |",
        "|---|---:|---:|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for way, row in own.items():
        plan = ", ".join(
            str(row[key]) for key in ("tp", "pp", "dp", "virtual_stages", "micro_batch_size")
        )
        lines.append(
            f"| {NAMES[way]} | {row['parameters'] / 1e9:.1f}B | {row['tokens'] / 1e9:,.0f}B "
            f"| {row['loss']:.4f} | {row['gpus']:,} | {plan} | {row['recompute']} "
            f"| {row['mfu']:.1%} | {row['days']:.1f} | ${row['cost_usd']:,.0f} "
            f"| ${row['same_loss_for_usd']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _reading(own: Mapping[str, dict[str, Any]], budget_usd: float) -> str:
    saved = {way: row["cost_usd"] - row["same_loss_for_usd"] for way, row in own.items()}
    textbook, plan, shape = saved["a, micro-batch 1"], saved["a"], saved["b"]
    left = budget_usd - own["d"]["cost_usd"]
    parts = {
        "the micro-batch": textbook - plan,
        "the division of the model": plan - shape,
        "shape and tokens a parameter": shape,
    }
    told = ", ".join(
        f"${usd:,.0f} of it by {what}" if usd > TOLERANCE * budget_usd else f"nothing by {what}"
        for what, usd in parts.items()
    )
    return (
        f"\nThe joint search reaches the loss of the textbook plan for ${textbook:,.0f} less "
        f"({textbook / budget_usd:.1%} of the budget): {told}. "
        f"The spreadsheet's model, trained on the best plan, leaves ${left:,.0f} "
        f"({left / budget_usd:.0%}) unspent: loss {own['d']['loss']:.4f} where "
        f"{own['c']['loss']:.4f} could be had.\n"
    )


def main() -> None:
    """Plan every budget in every way and write the files."""
    rows = []
    for budget_usd in BUDGETS_USD:
        for way, row in ways(budget_usd):
            same = row["cost_usd"] if way == "c" else dollars_for(row["loss"])
            rows.append({**row, "budget_usd": budget_usd, "way": way, "same_loss_for_usd": same})
    with (HERE / "comparison.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_text(HERE / "README.md", report(rows))


if __name__ == "__main__":
    main()
