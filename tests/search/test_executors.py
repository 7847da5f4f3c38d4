"""Every executor keeps the same contract: each task once, exact outcomes, errors that surface."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from vtrain_search.case_search import Settings
from vtrain_search.driver import search
from vtrain_search.evaluator import Evaluator, Task
from vtrain_search.executors import Executor, InlineExecutor, LateExecutor
from vtrain_search.problem import Problem
from vtrain_search.storage import trials_csv


@pytest.fixture(params=["inline", "late", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request: pytest.FixtureRequest, small_problem: Problem) -> Iterator[Executor]:
    if request.param == "inline":
        made: Executor = InlineExecutor(small_problem)
    elif request.param == "late":
        made = LateExecutor(lambda: InlineExecutor(small_problem))
    else:
        request.getfixturevalue("local_ray")
        from vtrain_search.ray_executor import RayExecutor

        made = RayExecutor(small_problem, workers=2, attached=True)
    yield made
    made.close()
    made.close()


def tasks_of(problem: Problem, count: int) -> list[Task]:
    return [
        Task(problem.space.point(hidden_size=4096.0, layers=float(24 + i)), (0,))
        for i in range(count)
    ]


def test_every_task_is_answered_once_and_exactly(
    executor: Executor, small_problem: Problem
) -> None:
    """Positions come back once each, with what a plain evaluation gives."""
    tasks = tasks_of(small_problem, 6)
    found = dict(executor.run(tasks))
    assert sorted(found) == list(range(6))
    plain = Evaluator(small_problem)
    assert all(found[i] == plain.evaluate(task) for i, task in enumerate(tasks))
    assert list(executor.run([])) == []


def test_without_a_task_nothing_is_started(small_problem: Problem) -> None:
    """A finished run that is played back asks for no evaluation, so no executor is made."""

    def make() -> Executor:
        raise AssertionError("made")

    late = LateExecutor(make)
    assert list(late.run([])) == []
    late.close()
    with pytest.raises(AssertionError, match="made"):
        list(late.run(tasks_of(small_problem, 1)))


def test_an_error_in_a_task_surfaces(executor: Executor) -> None:
    """A defect in an evaluation is raised, not swallowed; the executor stays usable."""
    bad = Task(None, (0,))  # type: ignore[arg-type]
    with pytest.raises((AttributeError, TypeError)):
        list(executor.run([bad]))


def test_a_search_ends_in_the_same_bytes(executor: Executor, small_problem: Problem) -> None:
    """One worker in this process or two Ray actors: the same trials."""
    settings = Settings(max_trials=16)
    texts = []
    for each in (executor, InlineExecutor(small_problem)):
        found = search(small_problem, settings, each)
        texts.append(trials_csv(["b"], [found.searches[0].trials]))
    assert texts[0] == texts[1]


@pytest.mark.ray
def test_a_killed_worker_loses_nothing(
    local_ray: None, small_problem: Problem, quick_problem: Callable[..., Problem]
) -> None:
    """Killing a worker in the middle of a round only repeats its task."""
    from vtrain_search.ray_executor import RayExecutor

    made = RayExecutor(small_problem, workers=2, attached=True)
    tasks = tasks_of(small_problem, 12)
    found = {}
    for count, (position, outcomes) in enumerate(made.run(tasks)):
        found[position] = outcomes
        if count == 1:
            os.kill(made.worker_pids()[0], signal.SIGKILL)
    made.close()
    plain = Evaluator(small_problem)
    assert [found[i] for i in range(12)] == [plain.evaluate(task) for task in tasks]
