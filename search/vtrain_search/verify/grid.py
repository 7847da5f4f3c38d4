"""The stated grid: every width and depth around the optimum, every plan of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain_search.driver import share_of
from vtrain_search.evaluator import Outcome, Task
from vtrain_search.scan import grid_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.space import Point

GRID_SHARE = 0.25
"""Shapes that cost up to this share of the budget by the coarse scan are in the grid."""
WIDE_SHARE = 0.02
"""Architectures within this share of the best have their whole range of GPU counts and batches
enumerated as well, and others after them, the better first, until the grid is large enough."""
LEAST_POINTS = 1e8
GREATEST_SHARE = 4.0
"""A grid that is too small takes shapes up to twice as far off in, again and again up to this."""
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
    every batch within two octaves, so that the search's narrow window is checked too. Where all of
    that is still less than `least_points`, shapes further off are taken in.

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
    worse = share_of(problem)
    outcomes: dict[Point, Outcome] = {}
    wide: set[Point] = set()
    plans = 0
    while True:
        points = grid_points(problem, problem.cases[case], share=share)
        new = [p for p in points if p not in outcomes]
        for done, (point, outcome) in enumerate(_evaluated(executor, new, case), start=1):
            outcomes[point] = outcome
            plans += outcome.plans
            if on_progress is not None:
                on_progress(done, len(new))
        ranked = sorted(
            (p for p in outcomes if outcomes[p].feasible), key=lambda p: (outcomes[p].key, p)
        )  # fmt: skip
        waiting = [p for p in ranked if p not in wide]
        for at in range(0, len(waiting), _WIDE_AT_A_TIME):
            leaders = waiting[at : at + _WIDE_AT_A_TIME]
            worst = worse(outcomes[leaders[0]], outcomes[ranked[0]])
            if worst > WIDE_SHARE and plans >= least_points:
                break
            wide.update(leaders)
            for point, outcome in _evaluated(executor, leaders, case, wide=True):
                plans += outcome.plans
                if outcome.feasible and outcome.key < outcomes[point].key:
                    outcomes[point] = outcome
            if on_progress is not None:
                on_progress(at + len(leaders), len(waiting))
        if plans >= least_points or not new or share >= GREATEST_SHARE:
            break
        share *= 2.0
    if not ranked:
        return None
    best = min(ranked, key=lambda p: (outcomes[p].key, p))
    return GridResult(
        point=best, outcome=outcomes[best], architectures=len(outcomes), wide=len(wide),
        plans=plans, outcomes=outcomes,
    )  # fmt: skip


def _evaluated(
    executor: Executor, points: Sequence[Point], case: int, *, wide: bool = False
) -> Iterator[tuple[Point, Outcome]]:
    for at, found in executor.run([Task(p, (case,), wide=wide) for p in points]):
        yield points[at], found[0]
