"""Case 1: cost-effective plans for MT-NLG 530B; writes `case1_mt_nlg.md` and `.csv`.

python results/case-studies/case1_mt_nlg.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tables import all_plans, markdown, plan_name, versions

from vtrain.estimate import estimate
from vtrain.files import write_text
from vtrain.models import load_model
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.tenancy.outcome import to_csv

if TYPE_CHECKING:
    from vtrain.stack import Stack

HERE = Path(__file__).parent
BATCH, SEQ, TOKENS = 1920, 2048, 270e9
"""Smith et al. 2022 (arXiv 2201.11990), section 3."""
PRICE_USD_PER_GPU_HOUR = 5.0
"""The paper's: $9.01M for 33.52 days on 2,240 GPUs."""
MEASURED_S = {2240: 60.1, 2800: 50.2, 3360: 44.4}
"""Smith et al. 2022 (arXiv 2201.11990), section 2.4: plans (8, 8, 35), (8, 10, 35), (8, 12, 35)."""
PAPER_S = {(8, 8, 35): 42.59, (8, 10, 35): 34.92, (8, 12, 35): 29.81, (8, 12, 21): 45.28}
"""vTrain (arXiv 2312.12391), the table of MT-NLG plans; recalled except where the text gives it."""
STACKS = {
    "megatron-deepspeed-2022": "fp16 optimizer, as in the runs behind vTrain's profiles",
    "megatron-deepspeed-2022-bf16": "bf16 optimizer, fp32 gradients, as production runs of 2022",
}
GPUS = [*range(1008, 3361, 8)]


def stack_of(name: str) -> Stack:
    """Return a stack with MT-NLG's even split: 105 layers over 35 stages are three each."""
    return replace(load_stack(name), layer_split="even")


def cost(step_time_s: float, gpus: int) -> dict[str, float]:
    """Return days and dollars of the whole run; as in the paper, nothing fails."""
    days = np.ceil(TOKENS / (BATCH * SEQ)) * step_time_s / 86400.0
    return {"days": days, "cost_musd": days * 24.0 * gpus * PRICE_USD_PER_GPU_HOUR / 1e6}


def published_plans() -> list[dict[str, Any]]:
    """Return predictions for the plans that were published, for both stacks and micro-batches."""
    model, cluster = load_model("mt-nlg-530b"), load_cluster("a100-sxm-80g")
    rows = []
    for stack_name in STACKS:
        stack = stack_of(stack_name)
        for tp, dp, pp in PAPER_S:
            gpus = tp * dp * pp
            plans = PlanTable.from_plans([
                Plan(tp=tp, dp=dp, pp=pp, micro_batch_size=size, global_batch_size=BATCH,
                     recompute="full", sharding=stack.default_sharding)
                for size in (1, 2, 4)
            ])  # fmt: skip
            result = estimate(model.architecture, cluster, stack, plans, seq_length=SEQ)
            measured = MEASURED_S.get(gpus) if pp == 35 else None
            for i, size in enumerate((1, 2, 4)):
                step = float(result.step_time_s[i])
                rows.append({
                    "stack": stack_name, "plan": f"({tp}, {dp}, {pp})", "gpus": gpus,
                    "micro_batch": size, "step_time_s": step,
                    "utilisation_pct": 100.0 * float(result.mfu[i]), **cost(step, gpus),
                    "fits": "yes" if result.fits[i] else "no",
                    "paper_s": PAPER_S[tp, dp, pp], "measured_s": measured,
                    "error_pct": None if measured is None else 100.0 * (step / measured - 1.0),
                })  # fmt: skip
    return rows


def found_plans() -> list[dict[str, Any]]:
    """Return the fastest plan that fits on every GPU count, and whether another beats it."""
    model, cluster = load_model("mt-nlg-530b"), load_cluster("a100-sxm-80g")
    rows = []
    for stack_name in STACKS:
        plans, result = all_plans(
            model.architecture, cluster, stack_of(stack_name), seq_length=SEQ, gpus=GPUS,
            global_batch_size=BATCH, recompute=("full",),
        )  # fmt: skip
        fit = np.flatnonzero(result.fits)
        fit = fit[np.argsort(result.step_time_s[fit], kind="stable")]
        _, first = np.unique(plans.gpus[fit], return_index=True)
        best = fit[first]
        step = result.step_time_s[best]
        work = step * plans.gpus[best]
        for k, row in enumerate(best):
            beaten = (step <= step[k]) & (work <= work[k])
            beaten[k] = False
            rows.append({
                "stack": stack_name, "plan": plan_name(plans, row), "gpus": int(plans.gpus[row]),
                "micro_batch": int(plans.micro_batch_size[row]), "step_time_s": float(step[k]),
                "utilisation_pct": 100.0 * float(result.mfu[row]),
                **cost(float(step[k]), int(plans.gpus[row])),
                "gib": float(result.mem_peak_bytes[row]) / 2**30,
                "pareto": "no" if beaten.any() else "yes",
            })  # fmt: skip
    return rows


def savings(published: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Say what the found plans save against MT-NLG's (8, 8, 35)."""
    lines = []
    for stack_name in STACKS:
        old = min(
            (r for r in published if r["stack"] == stack_name and r["plan"] == "(8, 8, 35)"
             and r["fits"] == "yes"),
            key=lambda r: r["step_time_s"],
        )  # fmt: skip
        few = [r for r in found if r["stack"] == stack_name and r["gpus"] <= 2016]
        at = next(r for r in few if r["gpus"] == 2016)
        cheap = min(few, key=lambda r: r["cost_musd"])
        saved = old["cost_musd"] - at["cost_musd"]
        lines.append(
            f"* {stack_name}: {at['plan']} on 2,016 GPUs takes {at['step_time_s']:.2f} s "
            f"({100 * (at['step_time_s'] / old['step_time_s'] - 1):+.1f} % against (8, 8, 35) at "
            f"its best micro-batch, {old['step_time_s']:.2f} s), {at['days']:.2f} days, "
            f"${at['cost_musd']:.2f}M instead of ${old['cost_musd']:.2f}M: "
            f"**${saved:.2f}M or {100 * saved / old['cost_musd']:.1f} % saved**. The cheapest plan "
            f"on at most 2,016 GPUs is {cheap['plan']} on {cheap['gpus']:,}: "
            f"${cheap['cost_musd']:.2f}M in {cheap['days']:.1f} days."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables."""
    published, found = published_plans(), found_plans()
    columns = {
        "plan": "(t, d, p)", "gpus": "GPUs", "micro_batch": "micro-batch", "step_time_s": "step s",
        "utilisation_pct": "MFU %", "days": "days", "cost_musd": "cost M$",
    }  # fmt: skip
    parts = [
        "# Case 1: plans for MT-NLG 530B\n",
        versions("python results/case-studies/case1_mt_nlg.py"),
        f"Batch {BATCH:,}, sequence {SEQ:,}, {TOKENS / 1e9:.0f}B tokens, full recomputation, "
        f"${PRICE_USD_PER_GPU_HOUR:.2f} a GPU-hour, nothing fails (the paper's conventions). "
        "MT-NLG's micro-batch is not published: all of 1, 2, 4 are shown, and whether they fit.\n",
        "## Published plans: predicted, the paper's prediction, measured\n",
    ]
    for stack_name, title in STACKS.items():
        rows = [r for r in published if r["stack"] == stack_name]
        parts += [
            f"### {stack_name}: {title}\n",
            markdown(rows, {
                **columns, "fits": "fits", "paper_s": "paper s", "measured_s": "measured s",
                "error_pct": "error %",
            }),
        ]  # fmt: skip
    parts += ["## Savings\n", savings(published, found), "## Found plans\n"]
    for stack_name in STACKS:
        rows = [r for r in found if r["stack"] == stack_name]
        more = {**columns, "gib": "GiB", "pareto": "on the Pareto front"}
        parts += [f"### {stack_name}\n", markdown(rows, more)]
    parts.append(gap(published))
    write_text(HERE / "case1_mt_nlg.md", "\n".join(parts))
    names = list(dict.fromkeys(name for row in (*published, *found) for name in row))
    kinds = [*(("published", row) for row in published), *(("found", row) for row in found)]
    write_text(HERE / "case1_mt_nlg.csv", to_csv([
        {"kind": kind, **{name: row.get(name) for name in names}} for kind, row in kinds
    ]))  # fmt: skip


def gap(published: list[dict[str, Any]]) -> str:
    """Say what separates predictions from the measured times."""

    def errors(stack: str, size: int) -> str:
        return ", ".join(
            f"{r['error_pct']:+.0f}" for r in published
            if r["stack"] == stack and r["micro_batch"] == size and r["error_pct"] is not None
        )  # fmt: skip

    return (
        "## The gap to the measured times\n\n"
        "The paper predicts 29 to 33 % less than MT-NLG measured, from profiles of runs with the "
        "fp16 optimizer. For that software our errors are, at micro-batch 1, "
        f"{errors('megatron-deepspeed-2022', 1)} % and at micro-batch 2 "
        f"{errors('megatron-deepspeed-2022', 2)} %. Errors that are alike at all three GPU counts "
        "mean that a factor is missing, not a term that grows with replicas or with the bubble, "
        "both of which change by half from 2,240 to 3,360 GPUs.\n\n"
        "MT-NLG trained with the bf16 optimizer of the same framework, which accumulates and "
        "reduces gradients in fp32 and keeps checkpointed activations differently. With the stack "
        "of that software the errors are "
        f"{errors('megatron-deepspeed-2022-bf16', 1)} % and "
        f"{errors('megatron-deepspeed-2022-bf16', 2)} %. Its `checkpoint_bytes_per_s` was fitted "
        "on these three rows (see `vtrain/data/stacks/megatron-deepspeed-2022-bf16.toml`), so this "
        "names where the time goes, the production path of the software and not the plan, but is "
        "no evidence of accuracy. Profiling short fp16 runs, as the paper does, cannot see it.\n"
    )


if __name__ == "__main__":
    main()
