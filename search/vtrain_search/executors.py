"""Where tasks are evaluated: in this process, or by Ray actors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from vtrain_search.evaluator import Evaluator, Outcome, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


class LateExecutor:
    """Makes another executor when the first task comes: a finished run played back has none."""

    workers = 1

    def __init__(self, make: Callable[[], Executor]) -> None:
        """Take what makes the executor; it is called once at most."""
        self._make = make
        self._made: Executor | None = None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        """Yield (position, outcomes) of every task."""
        if tasks:
            self._made = self._made or self._make()
            self.workers = self._made.workers
            yield from self._made.run(tasks)

    def close(self) -> None:
        """End what was started, if anything was."""
        if self._made is not None:
            self._made.close()


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
