"""The search finds the same whatever evaluates it, and never gets worse with a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from vtrain_search.case_search import Settings
from vtrain_search.driver import search
from vtrain_search.evaluator import Outcome, Task
from vtrain_search.executors import InlineExecutor
from vtrain_search.problem import Problem
from vtrain_search.samplers import SAMPLERS
from vtrain_search.storage import trials_csv
from vtrain_search.verify.grid import enumerate_grid
from vtrain_search.verify.regret import measure

SHORT = Settings(max_trials=24)


class Backwards:
    """Yields the outcomes of a round in reverse order, as unlucky workers would."""

    workers = 1

    def __init__(self, problem: Problem) -> None:
        self._inner = InlineExecutor(problem)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        yield from reversed(list(self._inner.run(tasks)))

    def close(self) -> None:
        self._inner.close()


def test_order_of_evaluation_changes_nothing(small_problem: Problem) -> None:
    """Outcomes that arrive in any order give the same trials, byte for byte."""
    first = search(small_problem, SHORT, InlineExecutor(small_problem))
    second = search(small_problem, SHORT, Backwards(small_problem))
    texts = [trials_csv(["a"], [f.searches[0].trials]) for f in (first, second)]
    assert texts[0] == texts[1]


def test_seeds_differ_and_repeat(small_problem: Problem) -> None:
    """The same seed repeats a run; another seed samples other architectures."""

    def points(seed: int) -> list[tuple[int, ...]]:
        found = search(
            small_problem, Settings(seed=seed, max_trials=24), InlineExecutor(small_problem)
        )
        return [tuple(t.point) for t in found.searches[0].trials if t.phase == "tpe"]

    assert points(0) == points(0)
    assert points(0) != points(1)


def test_a_budget_alone_and_in_a_table_agree(quick_problem: Callable[..., Problem]) -> None:
    """Being searched beside other budgets changes an answer by exchanged architectures only."""
    table, alone = quick_problem("1e4usd", "2e4usd"), quick_problem("2e4usd")
    in_table = search(table, SHORT, InlineExecutor(table)).searches[1]
    by_itself = search(alone, SHORT, InlineExecutor(alone)).searches[0]
    own = [t for t in in_table.trials if t.phase not in ("exchange", "smaller")]
    assert [t.point for t in own] == [t.point for t in by_itself.trials if t.phase != "smaller"]
    assert in_table.best is not None
    assert by_itself.best is not None
    assert in_table.best.outcome.value <= by_itself.best.outcome.value


def test_loss_falls_along_a_table(quick_problem: Callable[..., Problem]) -> None:
    """A larger budget never has the higher loss."""
    problem = quick_problem("1e3usd..1e5usd:4")
    found = search(problem, Settings(max_trials=24), InlineExecutor(problem))
    losses = [s.best.outcome.value for s in found.searches if s.best is not None]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_searches(small_problem: Problem, sampler: str) -> None:
    """Each sampler runs to the trial limit, finds a feasible design, and repeats itself."""
    runs = [
        search(
            small_problem, Settings(sampler=sampler, max_trials=24), InlineExecutor(small_problem)
        ).searches[0]
        for _ in range(2)
    ]
    assert runs[0].best is not None
    assert [t.point for t in runs[0].trials] == [t.point for t in runs[1].trials]
    assert any(t.phase == sampler for t in runs[0].trials)


def test_a_timeout_keeps_what_was_found(small_problem: Problem) -> None:
    """Running out of time drops the unfinished round and keeps the told ones."""
    found = search(small_problem, Settings(), InlineExecutor(small_problem), timeout_s=0.2)
    assert found.stopped == "timeout"
    told = found.searches[0].trials
    full = search(small_problem, Settings(), InlineExecutor(small_problem)).searches[0].trials
    assert [t.point for t in told] == [t.point for t in full[: len(told)]]


def test_the_answer_is_the_best_of_a_grid(quick_problem: Callable[..., Problem]) -> None:
    """On a small grid that is enumerated whole, the search loses under 1 % of the budget."""
    problem = quick_problem(
        "1e4usd", ranged=("hidden_size=3072..5120", "layers=32..44")
    )  # fmt: skip
    executor = InlineExecutor(problem)
    grid = enumerate_grid(problem, executor, least_points=0.0)
    assert grid is not None
    regret = measure(problem, Settings(), executor, grid)
    assert regret is not None
    assert regret.share < 0.01
