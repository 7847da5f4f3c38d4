"""The result of a simulation: one step of one plan, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.schedule.tasks import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from vtrain.plan import Plan
    from vtrain.schedule.tasks import Schedule
    from vtrain.simulation.events import Events
    from vtrain.simulation.play import Played, Skip

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """One optimizer step; replicas and tensor-parallel ranks all do the same, one is shown.

    Attributes:
        plan: the plan.
        schedule: the order of its tasks.
        step_time_s: seconds of the step.
        pipeline_s: of it, until the last task of any rank ends.
        breakdown_s: seconds by name of `vtrain.simulation.events.BREAKDOWN`, each [pp]; on every
            rank they sum to the step.
        micro_batch_s: seconds of one micro-batch by name of
            `vtrain.simulation.events.SPAN_KINDS`, each [pp].
        layers: layers on each rank and chunk, [pp, virtual stages].
        events: spans; stretches in `skips` have none.
        skips: stretches of equal repetitions that were not played.
        played: the tasks behind the events.
    """

    plan: Plan
    schedule: Schedule
    step_time_s: float
    pipeline_s: float
    breakdown_s: Mapping[str, Array]
    micro_batch_s: Mapping[str, Array]
    layers: npt.NDArray[np.int64]
    events: Events
    skips: tuple[Skip, ...]
    played: Played

    @property
    def critical_rank(self) -> int:
        """The rank that waits least."""
        return int(np.argmin(self.breakdown_s["bubble"]))

    def activations_held(self, rank: int) -> tuple[Array, npt.NDArray[np.int64]]:
        """Return when a rank's store of activations changes and what it holds from then on.

        A chunk's activations are held from the start of its forward to the end of its backward.

        Returns:
            Times in rising order, [n], and the number held of each chunk, [n, chunks].
        """
        played = self.played
        mine = played.rank == rank
        kind, chunk = played.kind[mine], played.chunk[mine]
        begins, ends = kind == FORWARD, kind == BACKWARD
        time = np.concatenate([played.start_s[mine][begins], played.end_s[mine][ends]])
        change = np.zeros((len(time), self.schedule.chunks), dtype=np.int64)
        change[np.arange(begins.sum()), chunk[begins]] = 1
        change[begins.sum() + np.arange(ends.sum()), chunk[ends]] = -1
        # At one instant, what is freed goes before what is taken.
        order = np.lexsort((change.sum(axis=1), time))
        return time[order], np.cumsum(change[order], axis=0)
