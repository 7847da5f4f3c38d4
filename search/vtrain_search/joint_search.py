"""The literal search of one budget: every dimension of a design is sampled at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vtrain_search.joint import FRACTIONS, TOKEN_SHARE, JointPoint, decode, heuristic_fractions
from vtrain_search.search_state import BATCH, MIN_GAIN, SearchState

if TYPE_CHECKING:
    import optuna

    from vtrain_search.evaluator import Outcome
    from vtrain_search.problem import Case, Problem
    from vtrain_search.search_state import Candidate, Pending, Settings

QUIET_BATCHES = 25
"""200 trials without a gain: a flat search crawls long after an enumerating one is done."""
_WARM_TP = (0.3, 0.6, 0.9)


class JointSearch(SearchState):
    """Samples whole designs; see `vtrain_search.joint`."""

    max_trials = 1_000

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
        self._params: dict[Candidate, dict[str, float]] = {}
        self._warm = self._warm_start()
        self._quiet = 0

    def is_valid(self, candidate: Candidate) -> bool:
        """Return whether the pins left the design a value in every degree."""
        if not isinstance(candidate, JointPoint) or candidate.tp == 0:
            return False
        return self._space.is_valid(candidate.architecture)

    def _next(self, room: int) -> Pending:
        if self._warm:
            points, self._warm = self._warm[:BATCH], self._warm[BATCH:]
            return [("warm", p, None) for p in points]
        if self._quiet >= QUIET_BATCHES:
            return []
        self._fresh_sampler()
        asked: Pending = []
        for _ in range(min(BATCH, room)):
            trial = self._study.ask(self._distributions)
            asked.append((self._settings.sampler, self._design(trial.params), trial))
        return asked

    def _follow(self, phase: str, gain: float) -> None:
        if phase != "warm":
            self._quiet = self._quiet + 1 if gain < MIN_GAIN else 0

    @property
    def _distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        from optuna.distributions import FloatDistribution

        return {
            **self._encoding.distributions,
            **{name: FloatDistribution(0.0, 1.0) for name in FRACTIONS},
            "token_share": FloatDistribution(*TOKEN_SHARE),
        }

    def _design(self, params: dict[str, float]) -> Candidate:
        point = self._space.point(**self._encoding.decode(params))
        if self._space.is_valid(point):
            design = decode(self._problem, self._case, point, params)
            if design is not None:
                return design
        return JointPoint(*point, "", 0, 0, 0, 0, 0, 0, "", 0.0)

    def _warm_start(self) -> list[Candidate]:
        """Return the scan's architectures with a common kind of plan."""
        found: list[Candidate] = []
        for i, point in enumerate(self._scan.start):
            fractions = heuristic_fractions(_WARM_TP[i % len(_WARM_TP)])
            design = decode(self._problem, self._case, point, fractions)
            shape = self._encoding.encode(
                point._asdict() | {"ffn_ratio": point.ffn_hidden_size / point.hidden_size}
            )
            if design is not None:
                found.append(design)
                if shape is not None:
                    self._params[design] = {**shape, **fractions}
        return found

    def _parameters(self, candidate: Candidate) -> dict[str, float] | None:
        return self._params.get(candidate)
