"""What every search of one budget keeps: the pending batch, told trials, the best so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtrain_search.evaluator import TOO_DEAR
from vtrain_search.samplers import Encoding, make_sampler
from vtrain_search.scan import scan

if TYPE_CHECKING:
    import optuna

    from vtrain_search.evaluator import Outcome
    from vtrain_search.joint import JointPoint
    from vtrain_search.problem import Case, Problem
    from vtrain_search.space import Point

    Candidate = Point | JointPoint
    Pending = list[tuple[str, Candidate, optuna.trial.Trial | None]]

BATCH = 8
"""Points a batch: fixed, so that it does not depend on the workers; two cores share it evenly."""
WARM_POINTS = 16
MIN_GAIN = 0.002
"""Share of the budget that the last batches must gain for the search to go on."""
EXTRA_PHASES = ("exchange", "smaller")
"""Batches that somebody else asks for; the stop rule does not count them."""
PENALTY = 1e3
"""Told to the sampler in place of a loss, plus the violation: ranks after every feasible point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How long and how to search.

    Attributes:
        sampler: one of `samplers.SAMPLERS`.
        seed: seed of the run.
        space: "bilevel" samples architectures and enumerates plans; "joint" samples everything.
        max_trials: trials of one budget at most; None takes the space's own limit.
    """

    sampler: str = "tpe"
    seed: int = 0
    space: str = "bilevel"
    max_trials: int | None = None


class Trial(NamedTuple):
    """One told point."""

    batch: int
    position: int
    phase: str
    point: Candidate
    outcome: Outcome


class SearchState(ABC):
    """A search as a pure state machine: `ask` names a batch, `tell` takes its outcomes.

    It never evaluates anything. What it asks depends only on what it was told and on the seed, so
    the same run follows from any number of workers and from a journal that is played back.
    """

    max_trials: int
    """Trials at most, unless the settings say otherwise."""

    def __init__(
        self,
        problem: Problem,
        case: Case,
        settings: Settings,
        *,
        share_of: Callable[[Outcome, Outcome], float],
    ) -> None:
        """Scan coarsely and prepare an empty study.

        Args:
            problem: space and loss model.
            case: budget and limits.
            settings: sampler, seed, number of trials.
            share_of: share of the budget that separates a worse outcome from a better one.
        """
        import optuna

        self._problem = problem
        self._case = case
        self._space = problem.space
        self._settings = settings
        self._share_of = share_of
        self._limit = settings.max_trials or self.max_trials
        self._scan = scan(problem, case, points=WARM_POINTS)
        self._encoding = Encoding(self._scan.axes, categories=settings.sampler != "cmaes")
        self._study: optuna.Study = optuna.create_study(
            sampler=make_sampler(settings.sampler, seed=settings.seed, batch=0)
        )
        self._pending: Pending = []
        self._known: dict[Candidate, Outcome] = {}
        self._batch = 0
        self._done = False
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self._nearest: Trial | None = None

    @property
    def batch(self) -> int:
        """Number of the batch asked last (or next to be asked)."""
        return self._batch

    def is_valid(self, candidate: Candidate) -> bool:
        """Return whether a candidate can be evaluated at all."""
        return self._space.is_valid(candidate)  # type: ignore[arg-type]

    def ask(self) -> list[Candidate]:
        """Return the next batch; empty when the search is done."""
        room = self._limit - len(self.trials)
        self._pending = [] if self._done or room <= 0 else self._next(room)[:room]
        self._done = self._done or not self._pending
        return [candidate for _, candidate, _ in self._pending]

    def ask_extra(self, phase: str, points: Sequence[Candidate]) -> list[Candidate]:
        """Return those points that are new, as a batch of their own.

        Args:
            phase: why they are asked: one of EXTRA_PHASES.
            points: architectures, for example the best ones of other budgets.
        """
        new = [p for p in dict.fromkeys(points) if p not in self._known]
        self._pending = [(phase, p, None) for p in new]
        return new

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Take the outcomes of the batch asked last, in its order."""
        before = self._anchor
        phase = self._pending[0][0] if self._pending else ""
        for position, ((name, candidate, trial), outcome) in enumerate(
            zip(self._pending, outcomes, strict=True)
        ):
            told = Trial(self._batch, position, name, candidate, outcome)
            self.trials.append(told)
            self._known.setdefault(candidate, outcome)
            self._tell_study(candidate, outcome, trial)
            if outcome.feasible and (self.best is None or self._key(told) < self._key(self.best)):
                self.best = told
            elif outcome.reason == TOO_DEAR and (
                self._nearest is None or outcome.violation < self._nearest.outcome.violation
            ):
                self._nearest = told
        self._pending = []
        self._batch += 1
        if phase not in EXTRA_PHASES:
            self._follow(phase, self._gain(before))

    def settle(self) -> None:
        """Refuse what costs more than the budget, now that the cheapest way has been looked for."""
        self.trials = [t._replace(outcome=t.outcome.settled()) for t in self.trials]
        feasible = [t for t in self.trials if t.outcome.feasible]
        self.best = min(feasible, key=self._key, default=None)

    def _key(self, trial: Trial) -> tuple[Any, ...]:
        return trial.outcome.key_for(self._case)

    def recall(self, candidate: Candidate) -> Outcome | None:
        """Return the outcome of a point that was told before, so nobody evaluates it twice."""
        return self._known.get(candidate)

    @abstractmethod
    def _next(self, room: int) -> Pending:
        """Return the next batch; `room` trials are left."""

    @abstractmethod
    def _follow(self, phase: str, gain: float) -> None:
        """Apply the stop rule after one batch that gained a share of the budget."""

    @abstractmethod
    def _parameters(self, candidate: Candidate) -> dict[str, float] | None:
        """Return the sampler's parameters of a candidate, None where it lies outside its box."""

    @property
    def _anchor(self) -> Trial | None:
        """The best trial; while none is feasible, the one that is least too dear or too slow."""
        return self.best or self._nearest

    def _gain(self, before: Trial | None) -> float:
        now = self._anchor
        if now is None or now is before:
            return 0.0
        if before is None or before.outcome.feasible != now.outcome.feasible:
            return np.inf
        if not now.outcome.feasible:
            return before.outcome.violation - now.outcome.violation
        return self._share_of(before.outcome, now.outcome)

    def _fresh_sampler(self) -> None:
        """Give the study the sampler of this batch."""
        settings = self._settings
        self._study.sampler = make_sampler(settings.sampler, seed=settings.seed, batch=self._batch)

    @property
    def _distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        return self._encoding.distributions

    def _tell_study(
        self, candidate: Candidate, outcome: Outcome, trial: optuna.trial.Trial | None
    ) -> None:
        value = outcome.value if outcome.feasible else PENALTY + outcome.violation
        if trial is not None:
            self._study.tell(trial, value)
        elif (params := self._parameters(candidate)) is not None:
            import optuna

            self._study.add_trial(
                optuna.trial.create_trial(
                    value=value, params=params, distributions=self._distributions
                )
            )
