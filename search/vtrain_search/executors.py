"""Where tasks are evaluated: in this process, or by Ray actors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from vtrain_search.evaluator import Evaluator, Outcome, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vtrain_search.problem import Problem

_log = logging.getLogger(__name__)


class Executor(Protocol):
    """Evaluates tasks in any order; closing twice is harmless."""

    @property
    def workers(self) -> int:
        """Tasks evaluated at a time."""

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        """Yield (position, outcomes) of every task, each once, as they finish."""

    def close(self) -> None:
        """End what the executor started."""


class InlineExecutor:
    """Evaluates in this process, one task after the other."""

    workers = 1

    def __init__(self, problem: Problem) -> None:
        """Take the constants of the search."""
        self._evaluator = Evaluator(problem)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        """Yield each task's outcomes in order."""
        for position, task in enumerate(tasks):
            yield position, self._evaluator.evaluate(task)

    def close(self) -> None:
        """Nothing to end."""
