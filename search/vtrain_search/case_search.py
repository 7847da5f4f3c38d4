"""The search of one budget: warm start, sampler batches, polish; a pure state machine.

It never evaluates anything: `ask` names the next batch of architectures, `tell` takes their
outcomes in order. What it asks depends only on what it was told and on the seed, so the same run
follows from any number of workers and from a journal that is played back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain_search.polish import neighbours
from vtrain_search.samplers import Encoding, make_sampler
from vtrain_search.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import optuna

    from vtrain_search.evaluator import Outcome
    from vtrain_search.problem import Case, Problem
    from vtrain_search.space import Point

BATCH = 8
"""Points a batch: fixed, so that it does not depend on the workers; two cores share it evenly."""
WARM_POINTS = 16
MIN_GAIN = 0.002
"""Share of the budget that two batches and a polish sweep must gain for the search to go on."""
QUIET_BATCHES = 2
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
        max_trials: trials of one budget at most.
    """

    sampler: str = "tpe"
    seed: int = 0
    space: str = "bilevel"
    max_trials: int = 400


class Trial(NamedTuple):
    """One told point."""

    batch: int
    position: int
    phase: str
    point: Point
    outcome: Outcome


class CaseSearch:
    """Search of one case; see the module's docstring."""

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

        self._space = problem.space
        self._settings = settings
        self._share_of = share_of
        scanned = scan(problem, case, points=WARM_POINTS)
        self._axes = scanned.axes
        self._encoding = Encoding(scanned.axes, categories=settings.sampler != "cmaes")
        self._warm = list(scanned.start)
        self._ladder = list(scanned.ladder)
        self._study: optuna.Study = optuna.create_study(
            sampler=make_sampler(settings.sampler, seed=settings.seed, batch=0)
        )
        self._pending: list[tuple[str, Point, optuna.trial.Trial | None]] = []
        self._known: dict[Point, Outcome] = {}
        self._quiet = 0
        self._polished: Point | None = None
        self._done = False
        self._batch = 0
        self.trials: list[Trial] = []
        self.best: Trial | None = None

    @property
    def done(self) -> bool:
        """Whether the stop rule holds."""
        return self._done

    @property
    def batch(self) -> int:
        """Number of the batch asked last (or next to be asked)."""
        return self._batch

    @property
    def known(self) -> dict[Point, Outcome]:
        """Every outcome so far, by architecture."""
        return self._known

    def ask(self) -> list[Point]:
        """Return the next batch; empty when the search is done."""
        room = self._settings.max_trials - len(self.trials)
        if self._done or room <= 0:
            self._done = True
            return []
        if self._warm:
            points, self._warm = self._warm[:BATCH], self._warm[BATCH:]
            self._pending = [("warm", p, None) for p in points]
        elif self._ladder and self.best is None:
            points, self._ladder = self._ladder[:BATCH], self._ladder[BATCH:]
            self._pending = [("ladder", p, None) for p in points]
        elif not self._axes:
            self._pending = []
        elif self._quiet < QUIET_BATCHES:
            self._pending = self._ask_sampler(min(BATCH, room))
        else:
            self._pending = self._ask_polish()
        self._pending = self._pending[:room]
        if not self._pending:
            self._done = True
        return [point for _, point, _ in self._pending]

    def ask_extra(self, phase: str, points: Sequence[Point]) -> list[Point]:
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
        before = self.best
        phase = self._pending[0][0] if self._pending else ""
        for position, ((name, point, trial), outcome) in enumerate(
            zip(self._pending, outcomes, strict=True)
        ):
            told = Trial(self._batch, position, name, point, outcome)
            self.trials.append(told)
            self._known.setdefault(point, outcome)
            self._tell_study(point, outcome, trial)
            if outcome.feasible and (self.best is None or outcome.key < self.best.outcome.key):
                self.best = told
        self._pending = []
        self._batch += 1
        self._follow(phase, before)

    def recall(self, point: Point) -> Outcome | None:
        """Return the outcome of a point that was told before, so nobody evaluates it twice."""
        return self._known.get(point)

    def _follow(self, phase: str, before: Trial | None) -> None:
        """Apply the stop rule after one batch."""
        gain = self._gain(before)
        if phase == "polish":
            if gain >= MIN_GAIN:
                # A new neighbourhood: sweep it too, then ask the sampler again.
                self._quiet = QUIET_BATCHES
            else:
                self._done = True
        elif phase == self._settings.sampler:
            self._quiet = self._quiet + 1 if gain < MIN_GAIN else 0

    def _gain(self, before: Trial | None) -> float:
        if self.best is None or self.best is before:
            return 0.0
        return np.inf if before is None else self._share_of(before.outcome, self.best.outcome)

    def _ask_sampler(self, count: int) -> list[tuple[str, Point, optuna.trial.Trial | None]]:
        settings = self._settings
        self._study.sampler = make_sampler(settings.sampler, seed=settings.seed, batch=self._batch)
        asked: list[tuple[str, Point, optuna.trial.Trial | None]] = []
        for _ in range(count):
            trial = self._study.ask(self._encoding.distributions)
            chosen = self._encoding.decode(trial.params)
            asked.append((settings.sampler, self._space.point(**chosen), trial))
        return asked

    def _ask_polish(self) -> list[tuple[str, Point, optuna.trial.Trial | None]]:
        if self.best is None or self.best.point == self._polished:
            return []
        self._polished = self.best.point
        new = [p for p in neighbours(self._space, self.best.point) if p not in self._known]
        return [("polish", p, None) for p in new]

    def _tell_study(
        self, point: Point, outcome: Outcome, trial: optuna.trial.Trial | None
    ) -> None:
        value = outcome.loss if outcome.feasible else PENALTY + outcome.violation
        if trial is not None:
            self._study.tell(trial, value)
            return
        values = point._asdict() | {"ffn_ratio": point.ffn_hidden_size / point.hidden_size}
        params = self._encoding.encode(values)
        if params is not None:
            import optuna

            self._study.add_trial(
                optuna.trial.create_trial(
                    value=value, params=params, distributions=self._encoding.distributions
                )
            )
