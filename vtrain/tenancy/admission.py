"""Can this job be promised by that date, next to the jobs that are there?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vtrain.tenancy.engine import Simulation
from vtrain.tenancy.policies.elasticflow import ElasticFlow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain.tenancy.curve import Curve
    from vtrain.tenancy.job import Job
    from vtrain.tenancy.promise import Promise
    from vtrain.tenancy.speed_book import SpeedBook
    from vtrain.tenancy.state import JobState
    from vtrain.tenancy.upkeep import Upkeep

# Dates are searched to this share of the time from arrival.
_PRECISION = 1e-4
# Beyond 30,000 years a job does not fit at any date.
_NEVER_S = 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the cluster can promise.

    Attributes:
        promised: whether the job can be done by its deadline.
        rejected_before: jobs of the workload that could not be promised theirs.
        promise: the GPUs the job may count on, by time; None without a promise.
        earliest_s: earliest date that could be promised; inf if none.
        alone_s: date it would be done with as many GPUs as help, were the cluster empty.
    """

    promised: bool
    rejected_before: int
    promise: Promise | None
    earliest_s: float
    alone_s: float


class _Asking(ElasticFlow):
    """ElasticFlow that tries dates for one job instead of running it."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._asked = asked
        self.promise: Promise | None = None
        self.earliest_s = math.inf

    def arrive(self, sim: Simulation, state: JobState) -> None:
        if state.index != self._asked:
            super().arrive(sim, state)
            return
        job = state.job
        if job.has_deadline and self.book.admit(sim, state):
            self.promise = self.book.promises[state.index]
            self.book.forget(sim, state)
        self.earliest_s = self._earliest(sim, state)
        state.job = job
        sim.reject(state)

    def _earliest(self, sim: Simulation, state: JobState) -> float:
        """Return the earliest date that can be promised, by doubling and halving."""
        curve, job = state.curve, state.job
        low = curve.pause_of[curve.top] + job.steps / curve.planned_of[curve.top]
        high = low
        while not self._works(sim, state, high):
            low, high = high, 2.0 * high
            if high > _NEVER_S:
                return math.inf
        while high - low > _PRECISION * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self._works(sim, state, middle) else (middle, high)
        return job.arrival_s + high

    def _works(self, sim: Simulation, state: JobState, within_s: float) -> bool:
        state.job = replace(state.job, deadline_s=state.job.arrival_s + within_s)
        found = self.book.admit(sim, state)
        if found:
            self.book.forget(sim, state)
        return found


def ask(
    job: Job,
    curve: Curve,
    others: Sequence[Job],
    other_curves: Sequence[Curve],
    book: SpeedBook,
    upkeep: Upkeep,
) -> Answer:
    """Play the other jobs until the new one arrives, then ask what can be promised to it.

    Args:
        job: the new job; `arrival_s` is when the question is asked.
        curve: how fast it runs.
        others: jobs of the cluster, arrived or expected; expected ones have no claim yet.
        other_curves: how fast they run.
        book: for the size of the cluster.
        upkeep: failure and rescaling costs; random failures are planned by their expectation.
    """
    known = [i for i, other in enumerate(others) if other.arrival_s <= job.arrival_s]
    jobs = [*(others[i] for i in known), job]
    curves = [*(other_curves[i] for i in known), curve]
    policy = _Asking(len(known))
    outcome = Simulation(
        jobs, curves, policy, cluster_nodes=book.cluster_nodes, gpus_per_node=book.gpus_per_node,
        upkeep=replace(upkeep, failures="expected" if upkeep.failures == "random"
                       else upkeep.failures),
        until_s=job.arrival_s,
    ).run()  # fmt: skip
    rejected = sum(s.status == "rejected" for s in outcome.states[:-1])
    alone = curve.pause_of[curve.top] + job.steps / curve.planned_of[curve.top]
    return Answer(
        promised=policy.promise is not None, rejected_before=rejected, promise=policy.promise,
        earliest_s=policy.earliest_s, alone_s=job.arrival_s + alone,
    )  # fmt: skip
