"""Why: where step time and memory go, why a plan does not fit, and what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.estimate import estimate
from vtrain.memory import memory_breakdown, memory_limit_bytes
from vtrain.memory.explain import why_not
from vtrain.plan import PlanTable
from vtrain.simulate import simulate
from vtrain.units import GIB
from vtrain.validity import Context, is_valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vtrain.cli_options import Setting
    from vtrain.memory.explain import WhyNot
    from vtrain.plan import Plan
    from vtrain.ranking import RankedPlans
    from vtrain.simulation.timeline import Timeline

_MISFITS = 3
_NOTHING = 1e-9
"""Shares of the step below it are rounding, not waiting."""
_WORDS = {
    "bubble": "bubble (waiting)",
    "send": "traffic between stages",
    "data-parallel": "data-parallel, exposed",
}


def explain_plan(setting: Setting, plan: Plan) -> str:
    """Return where step time and memory of one plan go, as text.

    Time is that of the played task graph, on the pipeline rank that waits least and as the mean
    over ranks; memory that of the heaviest stage at its worst moment.
    """
    timeline = simulate(
        setting.architecture, setting.cluster, setting.stack, plan,
        seq_length=setting.seq_length, site=setting.site,
    )  # fmt: skip
    lines = list(_time_lines(timeline))
    stages = memory_breakdown(
        setting.architecture, setting.stack, plan, seq_length=setting.seq_length
    )
    heaviest = next(stage for stage in stages if stage.heaviest)
    limit = memory_limit_bytes(
        setting.cluster.device.memory_bytes, setting.stack, setting.memory_limit_share
    )
    lines.append(
        f"memory of the heaviest stage ({heaviest.stage} of {plan.pp}, {heaviest.layers} layers) "
        f"at {heaviest.moment}: {heaviest.peak_bytes / GIB:.1f} of {limit / GIB:.1f} GiB"
    )
    for name, size in sorted(heaviest.items_bytes.items(), key=lambda item: -item[1]):
        if size > 0.0:
            lines.append(f"  {name:<28} {size / GIB:9.2f} GiB")
    lines.append(
        f"  held by the allocator {heaviest.reserved_bytes / GIB:.1f} GiB, with the context "
        f"{heaviest.total_bytes / GIB:.1f} GiB"
    )
    reason = plan_misfit(setting, plan)
    if reason is not None:
        lines.extend(_misfit_lines(reason))
    return "\n".join(lines)


def _time_lines(timeline: Timeline) -> Iterator[str]:
    """Yield the parts of a played step; each column sums to it.

    The bubble of a rank is all its waiting, at the start and end of the step and for the slowest
    rank's reduction as well; the closed form counts that of the busiest rank between the first
    forward and the last backward.
    """
    rank, step_s = timeline.critical_rank, timeline.step_time_s
    pp = timeline.plan.pp
    several = f", then the mean of {pp} ranks" if pp > 1 else ""
    yield (
        f"time, played task by task ({step_s:.4g} s): pipeline rank {rank}, which waits least"
        f"{several}"
    )
    parts = sorted(timeline.breakdown_s.items(), key=lambda item: -float(item[1][rank]))
    for name, values in parts:
        if not values.max() > _NOTHING * step_s:
            continue
        columns = [float(values[rank])] + ([float(values.mean())] if pp > 1 else [])
        shown = "".join(f" {s:9.4g} s  {100.0 * s / step_s:5.1f} %" for s in columns)
        yield f"  {_WORDS.get(name, name):<28}{shown}"


def explain_misfits(setting: Setting, ranked: RankedPlans) -> str:
    """Return why near misses do not fit, and what would make them.

    The fastest of at most twice the limit speak; of a GPU count on which nothing fits, the leanest.

    Args:
        setting: what is trained, where, with what.
        ranked: every plan, misfits too, in order of step time.
    """
    misfit = ranked.word == 2
    if not misfit.any():
        return "every valid plan fits"
    peak = ranked.estimate.mem_peak_bytes
    lines: list[str] = []
    barren = [gpus for gpus in ranked.barren_gpus if sum(ranked.tallies[gpus])]
    if barren:
        lines.append(f"leanest plans where none fits ({_numbers(barren)} GPUs):")
        leanest = [
            rows[np.argmin(peak[rows])]
            for rows in (np.flatnonzero(ranked.plans.gpus == gpus) for gpus in barren)
        ]
        lines.extend(_reasons(setting, ranked, leanest))
    # A plan at many times the limit teaches nothing; the near misses do.
    near = misfit & (peak <= 2.0 * ranked.estimate.mem_limit_bytes)
    near &= ~np.isin(ranked.plans.gpus, barren)
    rows = np.flatnonzero(near)
    if not len(rows):
        rest = np.flatnonzero(misfit & ~np.isin(ranked.plans.gpus, barren))
        rows = rest[np.argsort(peak[rest], kind="stable")][:1]
    # Of plans that differ only in their virtual stages, the fastest speaks for all.
    plans = ranked.plans
    layout = np.stack([
        plans.gpus, plans.tp, plans.cp, plans.pp, plans.micro_batch_size, plans.recompute,
        plans.sharding,
    ])[:, rows]  # fmt: skip
    rows = rows[np.sort(np.unique(layout, axis=1, return_index=True)[1])][:_MISFITS]
    if len(rows):
        of = sum(
            tally[2] for gpus, tally in ranked.tallies.items() if gpus not in ranked.barren_gpus
        )
        lines.append(f"fastest near misses ({len(rows)} of {of:,} plans that do not fit):")
        lines.extend(_reasons(setting, ranked, rows))
    return "\n".join(lines)


def _reasons(
    setting: Setting, ranked: RankedPlans, rows: Iterable[np.integer[Any]]
) -> Iterator[str]:
    """Yield the lines of some plans that do not fit."""
    for row in rows:
        plan = ranked.plans.plan(int(row))
        yield (
            f"{plan.gpus} GPUs, tp {plan.tp} pp {plan.pp} cp {plan.cp} dp {plan.dp}, micro-batch "
            f"{plan.micro_batch_size}, recompute {plan.recompute}, {plan.sharding}: "
            f"{float(ranked.estimate.step_time_s[row]):.4g} s"
        )
        reason = plan_misfit(setting, plan)
        if reason is not None:
            yield from _misfit_lines(reason)


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def plan_misfit(setting: Setting, plan: Plan) -> WhyNot | None:
    """Return why a plan does not fit with priced fixes, or None where it fits."""
    context = Context(
        architecture=setting.architecture, cluster=setting.cluster, stack=setting.stack,
        seq_length=setting.seq_length,
    )  # fmt: skip

    def usable(candidate: Plan) -> bool:
        return candidate.tp <= setting.cluster.nvlink_domain and is_valid(context, candidate)

    def step_time_s(candidate: Plan) -> float:
        result = estimate(
            setting.architecture, setting.cluster, setting.stack,
            PlanTable.from_plans([candidate]), seq_length=setting.seq_length, site=setting.site,
        )  # fmt: skip
        return float(result.step_time_s[0])

    return why_not(
        setting.architecture, setting.stack, plan,
        device_memory_bytes=setting.cluster.device.memory_bytes, seq_length=setting.seq_length,
        is_valid=usable, step_time_s=step_time_s,
        max_gpus=min(4 * plan.gpus, setting.cluster.max_gpus),
        limit_share=setting.memory_limit_share,
    )  # fmt: skip


def _misfit_lines(reason: WhyNot) -> list[str]:
    lines = [f"  {reason.sentence}"]
    for fix in reason.fixes:
        cost = (
            "" if fix.step_time_cost is None else f", step time {100 * fix.step_time_cost:+.1f} %"
        )
        lines.append(f"    would fit: {fix.change} ({fix.peak_bytes / GIB:.1f} GiB{cost})")
    if not reason.fixes:
        lines.append("    no change of one or two degrees makes it fit")
    return lines
