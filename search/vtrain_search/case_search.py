"""The default search of one budget: warm start, sampler batches, local polish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vtrain_search.polish import neighbours
from vtrain_search.search_state import BATCH, MIN_GAIN, SearchState, Settings, Trial

if TYPE_CHECKING:
    from vtrain_search.evaluator import Outcome
    from vtrain_search.problem import Case, Problem
    from vtrain_search.search_state import Candidate, Pending
    from vtrain_search.space import Point

__all__ = ["CaseSearch", "Settings", "Trial"]

QUIET_BATCHES = 2


class CaseSearch(SearchState):
    """Samples architectures; every plan of each is enumerated by whoever evaluates it.

    It ends when two sampler batches and then a full polish sweep each gain less than MIN_GAIN of
    the budget.
    """

    max_trials = 400

    def __init__(
        self,
        problem: Problem,
        case: Case,
        settings: Settings,
        *,
        share_of: Callable[[Outcome, Outcome], float],
    ) -> None:
        """See `SearchState`."""
        super().__init__(problem, case, settings, share_of=share_of)
        self._warm: list[Point] = list(self._scan.start)
        self._ladder: list[Point] = list(self._scan.ladder)
        self._quiet = 0
        self._polished: Candidate | None = None

    def _next(self, room: int) -> Pending:
        if self._warm:
            points, self._warm = self._warm[:BATCH], self._warm[BATCH:]
            return [("warm", p, None) for p in points]
        if self._ladder and self.best is None:
            points, self._ladder = self._ladder[:BATCH], self._ladder[BATCH:]
            return [("ladder", p, None) for p in points]
        if not self._scan.axes:
            return []
        return self._sample(min(BATCH, room)) if self._quiet < QUIET_BATCHES else self._polish()

    def _follow(self, phase: str, gain: float) -> None:
        if phase == "polish":
            # After a gain the new neighbourhood is swept as well.
            self._done = gain < MIN_GAIN
        elif phase == self._settings.sampler:
            self._quiet = self._quiet + 1 if gain < MIN_GAIN else 0

    def _sample(self, count: int) -> Pending:
        self._fresh_sampler()
        asked: Pending = []
        for _ in range(count):
            trial = self._study.ask(self._distributions)
            chosen = self._encoding.decode(trial.params)
            asked.append((self._settings.sampler, self._space.point(**chosen), trial))
        return asked

    def _polish(self) -> Pending:
        anchor = self._anchor
        if anchor is None or anchor.point == self._polished:
            return []
        self._polished = anchor.point
        new = neighbours(self._space, anchor.point)  # type: ignore[arg-type]
        return [("polish", p, None) for p in new if p not in self._known]

    def _parameters(self, candidate: Candidate) -> dict[str, float] | None:
        ratio = candidate.ffn_hidden_size / candidate.hidden_size
        params = self._encoding.encode(candidate._asdict() | {"ffn_ratio": ratio})
        return None if params is None else {name: float(v) for name, v in params.items()}
