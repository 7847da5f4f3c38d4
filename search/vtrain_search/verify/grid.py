"""The stated grid: every width and depth around the optimum, every plan of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain_search.driver import share_of
from vtrain_search.evaluator import Outcome, Task
from vtrain_search.scan import grid_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.space import Point

GRID_SHARE = 0.25
"""Shapes that cost up to this share of the budget by the coarse scan are in the grid."""
WIDE_SHARE = 0.02
"""Architectures within this share of the best have their whole range of GPU counts and batches
enumerated as well, and others after them, the better first, until the grid is large enough."""
LEAST_POINTS = 1e8
_WIDE_AT_A_TIME = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class GridResult:
    """The best of a grid.

    Attributes:
        point: its architecture.
        outcome: its design and loss.
        architectures: architectures enumerated.
        wide: those enumerated over the wide range of GPU counts and batches.
        plans: (design, plan) points estimated.
        outcomes: every architecture's outcome.
    """

    point: Point
    outcome: Outcome
    architectures: int
    wide: int
    plans: int
    outcomes: dict[Point, Outcome]


def enumerate_grid(
    problem: Problem,
    executor: Executor,
    *,
    case: int = 0,
    share: float = GRID_SHARE,
    least_points: float = LEAST_POINTS,
    on_progress: Callable[[int, int], None] | None = None,
) -> GridResult | None:
    """Evaluate every architecture of the grid, then the best ones over a much wider window.

    The first pass looks at the GPU counts and batches that the search looks at; the second takes
    the best architectures and every GPU count from half to four times what the budget needs and
    every batch within two octaves, so that the search's narrow window is checked too.

    Args:
        problem: the question.
        executor: evaluates tasks.
        case: which of its cases.
        share: shapes that cost up to this share of the budget by the coarse scan are in the grid.
        least_points: (design, plan) points that the grid should hold, if the space has them.
        on_progress: called with (done, total).

    Returns:
        The best, None when nothing in the grid is feasible.
    """
    points = list(grid_points(problem, problem.cases[case], share=share))
    outcomes: dict[Point, Outcome] = {}
    tasks = [Task(p, (case,)) for p in points]
    for done, (at, found) in enumerate(executor.run(tasks), start=1):
        outcomes[points[at]] = found[0]
        if on_progress is not None:
            on_progress(done, len(points))
    plans = sum(o.plans for o in outcomes.values())
    feasible = [p for p in points if outcomes[p].feasible]
    if not feasible:
        return None
    first = min(feasible, key=lambda p: (outcomes[p].key, p))
    worse = share_of(problem)
    ranked = sorted(feasible, key=lambda p: (outcomes[p].key, p))
    wide = 0
    while wide < len(ranked):
        leaders = ranked[wide : wide + _WIDE_AT_A_TIME]
        worst = worse(outcomes[leaders[0]], outcomes[first])
        if worst > WIDE_SHARE and plans >= least_points:
            break
        wide += len(leaders)
        for point, outcome in _wide(executor, leaders, case):
            plans += outcome.plans
            if outcome.feasible and outcome.key < outcomes[point].key:
                outcomes[point] = outcome
            if on_progress is not None:
                on_progress(wide, len(ranked))
    best = min(ranked, key=lambda p: (outcomes[p].key, p))
    return GridResult(
        point=best, outcome=outcomes[best], architectures=len(points), wide=wide,
        plans=plans, outcomes=outcomes,
    )  # fmt: skip


def _wide(executor: Executor, leaders: list[Point], case: int) -> Iterator[tuple[Point, Outcome]]:
    tasks = [Task(p, (case,), wide=True) for p in leaders]
    for at, found in executor.run(tasks):
        yield leaders[at], found[0]
