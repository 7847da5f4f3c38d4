"""What a search would do: size of the space, feasible share, expected time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vtrain.units import format_count
from vtrain_search.evaluator import Evaluator
from vtrain_search.grid import gpu_counts
from vtrain_search.report.progress import TYPICAL_TRIALS
from vtrain_search.scan import scan

if TYPE_CHECKING:
    from vtrain_search.problem import Problem

_PROBES = 6


def dry_run(problem: Problem, *, workers: int) -> list[str]:
    """Return lines that describe the search of every case, from a few evaluated architectures.

    Args:
        problem: the question.
        workers: processes that would evaluate.
    """
    evaluator = Evaluator(problem)
    space = problem.space
    names = [f"{axis.name} ({len(axis.values)} values)" for axis in space.axes()]
    lines = [
        f"outer space: {format_count(space.size)} architectures over {', '.join(names)}"
        if names
        else "outer space: one architecture"
    ]
    total_s = 0.0
    for case in problem.cases:
        scanned = scan(problem, case, points=_PROBES)
        box = 1
        for axis in scanned.axes:
            box *= len(axis.values)
        start = time.perf_counter()
        found = [evaluator.outcome(point, case) for point in scanned.start[:_PROBES]]
        each_s = (time.perf_counter() - start) / max(len(found), 1)
        plans = sum(o.plans for o in found) / max(len(found), 1)
        fit = sum(o.plans_fit for o in found) / max(sum(o.plans for o in found), 1)
        trials = TYPICAL_TRIALS if scanned.axes else 1
        total_s += trials * each_s
        counts = sum(
            len(gpu_counts(o.cluster, max_gpus=case.gpu_limit(o), pins=problem.pins))
            for o in case.offers
        )
        lines.append(
            f"{case.label}: {box:,} architectures in the sampler's box, {counts} GPU counts, about "
            f"{plans:,.0f} plans tried an architecture ({100 * fit:.0f} % fit in memory), "
            f"{sum(o.feasible for o in found)} of {len(found)} probed architectures feasible; "
            f"{box * plans:.1e} (design, plan) points, about {trials} architectures tried"
        )
    lines.append(
        f"expected time: about {total_s / workers:,.0f} s with {workers} "
        f"worker{'s' if workers > 1 else ''}"
    )
    return lines
