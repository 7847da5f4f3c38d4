"""Runs the searches of all budgets side by side, round by round, on any executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from vtrain_search.case_search import CaseSearch, Settings, Trial
from vtrain_search.evaluator import Outcome, Task
from vtrain_search.joint_search import JointSearch
from vtrain_search.objective import designs_of
from vtrain_search.samplers import quiet_optuna
from vtrain_search.scan import points_of_size

if TYPE_CHECKING:
    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.search_state import Candidate, SearchState

_EXCHANGE_ROUNDS = 6
SMALLER_SIZES = (0.5, 0.25)
"""Every answer also shows what a half and a quarter of the parameters would cost."""


class Recorder(Protocol):
    """Where finished trials go and where an interrupted run's trials come from."""

    def recorded(self, case: int, batch: int, position: int, point: Candidate) -> Outcome | None:
        """Return the outcome of a trial an earlier run finished, else None."""

    def record(self, case: int, trials: Sequence[Trial]) -> None:
        """Keep the trials of one finished batch."""


@dataclass(slots=True)
class Progress:
    """What a running search can say of itself."""

    trials: int = 0
    evaluated: int = 0
    feasible: int = 0
    plans: int = 0
    cases_done: int = 0
    best: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the search of all cases came to.

    Attributes:
        searches: one finished (or interrupted) search a case.
        stopped: why it ended early: "" when it did not, "timeout" or "interrupted".
        progress: counts.
    """

    searches: tuple[SearchState, ...]
    stopped: str
    progress: Progress


_INVALID = Outcome(value=float("inf"), reason="architecture", violation=100.0)


class _Stop(Exception):
    """Raised inside a round whose time is up; the round is dropped, never half told."""


def search(
    problem: Problem,
    settings: Settings,
    executor: Executor,
    *,
    recorder: Recorder | None = None,
    timeout_s: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Found:
    """Search every case of a problem.

    Each round takes one batch of every case that is not done, evaluates all of them, then tells
    each case its outcomes in order. A case therefore finds the same alone or in a table; at the
    end the cases exchange their best architectures, so that a table never gets worse with budget.

    Args:
        problem: cases, space, loss model.
        settings: sampler, seed, trials.
        executor: evaluates tasks, in any order.
        recorder: journal to write and to play back.
        timeout_s: stop after so many seconds with what there is.
        on_progress: called while the search runs.
    """
    quiet_optuna()
    runner = _Runner(executor, recorder, timeout_s, on_progress)
    kind = JointSearch if settings.space == "joint" else CaseSearch
    searches: tuple[SearchState, ...] = tuple(
        kind(problem, case, settings, share_of=share_of(problem)) for case in problem.cases
    )
    stopped = ""
    try:
        while True:
            batches = {i: points for i, s in enumerate(searches) if (points := s.ask())}
            runner.progress.cases_done = len(searches) - len(batches)
            if not batches:
                break
            runner.round(searches, batches)
        if settings.space == "bilevel":
            for _ in range(_EXCHANGE_ROUNDS):
                batches = _exchange(searches)
                if not batches:
                    break
                runner.round(searches, batches)
            runner.round(searches, _smaller(problem, searches))
    except _Stop:
        stopped = "timeout"
    except KeyboardInterrupt:
        stopped = "interrupted"
    for own in searches:
        own.settle()
    return Found(searches=searches, stopped=stopped, progress=runner.progress)


def _exchange(searches: Sequence[SearchState]) -> dict[int, list[Candidate]]:
    """Offer each case the best architectures of the cases next to it in the table."""
    batches = {}
    for i, own in enumerate(searches):
        near = [searches[j].best for j in (i - 1, i + 1) if 0 <= j < len(searches)]
        wanted = [trial.point for trial in near if trial is not None]
        if points := own.ask_extra("exchange", wanted):
            batches[i] = points
    return batches


def _smaller(problem: Problem, searches: Sequence[SearchState]) -> dict[int, list[Candidate]]:
    """Ask each case for the best models of half and a quarter of its size, cheaper to serve."""
    batches = {}
    for i, (case, own) in enumerate(zip(problem.cases, searches, strict=True)):
        if own.best is None:
            continue
        size = own.best.outcome.row["parameters"]
        wanted = [p for share in SMALLER_SIZES for p in points_of_size(problem, case, share * size)]
        if points := own.ask_extra("smaller", wanted):
            batches[i] = points
    return batches


def share_of(problem: Problem) -> Callable[[Outcome, Outcome], float]:
    """Return the function that prices a gap between two outcomes in shares of the budget."""
    from vtrain.design import Design

    def share(worse: Outcome, better: Outcome) -> float:
        if better.value != better.loss:
            # Dollars or seconds, in logarithms.
            return worse.value - better.value
        design = Design.from_row(better.row)
        designs = designs_of(
            design.architecture,
            tokens=float(design.tokens or 1),
            batch=float(design.plan.global_batch_size),
            seq_length=design.seq_length,
        )
        return (worse.value - better.value) / float(-problem.loss.dloss_dlntokens(designs))

    return share


class _Runner:
    """Evaluates one round at a time and keeps count."""

    def __init__(
        self,
        executor: Executor,
        recorder: Recorder | None,
        timeout_s: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._executor = executor
        self._recorder = recorder
        self._end = None if timeout_s is None else time.monotonic() + timeout_s
        self._on_progress = on_progress
        self.progress = Progress()

    def round(self, searches: Sequence[SearchState], batches: dict[int, list[Candidate]]) -> None:
        """Evaluate one batch of several cases and tell each case its own."""
        known: dict[tuple[int, Candidate], Outcome] = {}
        wanted: dict[Candidate, list[int]] = {}
        for i, points in batches.items():
            batch = searches[i].batch
            for position, point in enumerate(points):
                if (i, point) in known:
                    continue
                outcome = searches[i].recall(point)
                if outcome is None and not searches[i].is_valid(point):
                    outcome = _INVALID
                if outcome is None and self._recorder is not None:
                    outcome = self._recorder.recorded(i, batch, position, point)
                if outcome is not None:
                    known[i, point] = outcome
                elif i not in wanted.setdefault(point, []):
                    wanted[point].append(i)
        tasks = [Task(point, tuple(cases)) for point, cases in wanted.items()]
        for at, outcomes in self._executor.run(tasks):
            for i, outcome in zip(tasks[at].cases, outcomes, strict=True):
                known[i, tasks[at].point] = outcome
                self._count(outcome)
            self._report()
        for i, points in batches.items():
            told = len(searches[i].trials)
            searches[i].tell([known[i, point] for point in points])
            new = searches[i].trials[told:]
            self.progress.trials += len(new)
            if (best := searches[i].best) is not None:
                self.progress.best[i] = best.outcome.row["loss"]
            if self._recorder is not None:
                self._recorder.record(i, new)
        self._report()

    def _count(self, outcome: Outcome) -> None:
        self.progress.evaluated += 1
        self.progress.plans += outcome.plans
        self.progress.feasible += outcome.feasible

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)
        if self._end is not None and time.monotonic() > self._end:
            raise _Stop
