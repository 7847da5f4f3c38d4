"""How far the search's answer is from the best of the grid, in shares of the budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain_search.driver import search, share_of

if TYPE_CHECKING:
    from vtrain_search.case_search import Settings
    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.verify.grid import GridResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Regret:
    """One search against one grid.

    Attributes:
        seed: seed of the search.
        loss: loss of the design it found.
        share: share of the budget that would buy back its gap to the grid's best; negative where
            the search found a design outside the grid that is better.
        trials: architectures it tried.
        wall_s: how long it took.
    """

    seed: int
    loss: float
    share: float
    trials: int
    wall_s: float


def measure(
    problem: Problem, settings: Settings, executor: Executor, grid: GridResult
) -> Regret | None:
    """Search once and price the gap; None when the search found nothing.

    Args:
        problem: the question, one case.
        settings: how to search.
        executor: evaluates tasks.
        grid: the best of the grid.
    """
    start = time.perf_counter()
    found = search(problem, settings, executor)
    wall_s = time.perf_counter() - start
    best = found.searches[0].best
    if best is None:
        return None
    better = min((best.outcome, grid.outcome), key=lambda o: o.value)
    worse = max((best.outcome, grid.outcome), key=lambda o: o.value)
    gap = share_of(problem)(worse, better)
    return Regret(
        seed=settings.seed,
        loss=best.outcome.row["loss"],
        share=gap if worse is best.outcome else -gap,
        trials=sum(t.phase != "smaller" for t in found.searches[0].trials),
        wall_s=wall_s,
    )
