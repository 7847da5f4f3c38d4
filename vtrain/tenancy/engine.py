"""The discrete-event loop: arrivals, completions, failures, and what a policy makes of them."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.errors import VtrainError
from vtrain.tenancy.placement import Placement
from vtrain.tenancy.state import DONE, REJECTED, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain.tenancy.curve import Curve
    from vtrain.tenancy.job import Job
    from vtrain.tenancy.policies.base import Policy
    from vtrain.tenancy.upkeep import Upkeep

# What happens first at equal times: nodes are given back before anybody asks for them.
_FINISH, _FAILURE, _ARRIVAL, _WAKE = range(4)


class Segment(NamedTuple):
    """A stretch of time in which a job, by position, held the same nodes."""

    job: int
    start_s: float
    end_s: float
    nodes: tuple[int, ...]
    trained_s: float
    steps: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What happened.

    Attributes:
        states: every job at the end, in the order handed in.
        segments: who held which nodes when, in order of their ends; empty unless recorded.
        cluster_nodes: nodes of the cluster.
        events: events handled.
    """

    states: tuple[JobState, ...]
    segments: tuple[Segment, ...]
    cluster_nodes: int
    events: int


class Simulation:
    """Plays one workload under one policy. Policies read it and move jobs through `decide`."""

    def __init__(
        self,
        jobs: Sequence[Job],
        curves: Sequence[Curve],
        policy: Policy,
        *,
        cluster_nodes: int,
        gpus_per_node: int,
        upkeep: Upkeep,
        seed: int = 0,
        record: bool = False,
        until_s: float = math.inf,
    ) -> None:
        """Prepare a run.

        Args:
            jobs: the workload.
            curves: how fast each runs.
            policy: who gets what; holds state of its own, so one policy object serves one run.
            cluster_nodes: nodes of the cluster.
            gpus_per_node: GPUs of a node.
            upkeep: failure and rescaling costs.
            seed: of the failures.
            record: keep every segment, for logs and pictures.
            until_s: stop the clock there.
        """
        self.now = 0.0
        self.cluster_nodes = cluster_nodes
        self.active: dict[int, JobState] = {}
        self._policy = policy
        self._placement = Placement(cluster_nodes)
        self._record = record
        self._until_s = until_s
        self._segments: list[Segment] = []
        self._opened: dict[int, tuple[float, float, float]] = {}
        self._states = [
            JobState(i, job, curve, request_level(job, curve, gpus_per_node))
            for i, (job, curve) in enumerate(zip(jobs, curves, strict=True))
        ]
        self._queue: list[tuple[float, int, int, int]] = [
            (state.job.arrival_s, _ARRIVAL, state.index, 0) for state in self._states
        ]
        heapq.heapify(self._queue)
        self._unfinished = len(self._states)
        self._wake_s = math.inf
        self._rng = np.random.default_rng([seed, 1])
        rate = upkeep.failures_per_gpu_hour * cluster_nodes * gpus_per_node / 3600.0
        self._failure_gap_s = 1.0 / rate if upkeep.failures == "random" and rate > 0.0 else math.inf

    @property
    def free_nodes(self) -> int:
        """Nodes nobody holds."""
        return self._placement.free

    def run(self) -> Outcome:
        """Play until every job is done or rejected, or until the clock stops."""
        self._next_failure()
        events = 0
        while self._queue and self._unfinished:
            self.now = self._queue[0][0]
            if self.now > self._until_s:
                self.now = self._until_s
                break
            while self._queue and self._queue[0][0] == self.now:
                _, kind, index, version = heapq.heappop(self._queue)
                events += 1
                if kind == _FINISH:
                    self._finish(self._states[index], version)
                elif kind == _FAILURE:
                    self._fail(index)
                elif kind == _ARRIVAL:
                    self.active[index] = self._states[index]
                    self._policy.arrive(self, self._states[index])
                elif self.now >= self._wake_s:
                    self._wake_s = math.inf
            self._apply(self._policy.decide(self))
            self._plan_wake(self._policy.wake_s(self))
        return Outcome(
            states=tuple(self._states), segments=tuple(self._segments),
            cluster_nodes=self.cluster_nodes, events=events,
        )  # fmt: skip

    def reject(self, state: JobState) -> None:
        """Send a job away for good."""
        state.status = REJECTED
        state.version += 1
        del self.active[state.index]
        self._unfinished -= 1

    def _apply(self, targets: dict[int, int]) -> None:
        """Move jobs to their target levels, those that give nodes back first.

        Raises:
            VtrainError: when a policy hands out more nodes than there are.
        """
        moves = [
            (self.active[i].curve.nodes_of[level] - self.active[i].nodes, i, level)
            for i, level in targets.items()
            if self.active[i].level != level
        ]
        for _, index, level in sorted(moves):
            state = self.active[index]
            self._close(state)
            state.move(level, self.now)
            try:
                self._placement.resize(index, state.nodes)
            except ValueError as error:
                raise VtrainError(f"policy {self._policy.name} oversubscribes: {error}") from None
            self._open(state)
            if level:
                heapq.heappush(
                    self._queue, (state.finish_at(), _FINISH, index, state.version)
                )  # fmt: skip

    def _finish(self, state: JobState, version: int) -> None:
        if version != state.version:
            return
        self._close(state)
        state.settle(self.now)
        state.left = 0.0
        state.level = 0
        state.status = DONE
        state.finished = self.now
        self._placement.resize(state.index, 0)
        del self.active[state.index]
        self._unfinished -= 1
        self._policy.finish(self, state)

    def _fail(self, node: int) -> None:
        self._next_failure()
        for index, state in self.active.items():
            if state.level and node in self._placement.held(index):
                state.fail(self.now)
                heapq.heappush(self._queue, (state.finish_at(), _FINISH, index, state.version))
                self._policy.disturbed(self, state)
                return

    def _next_failure(self) -> None:
        if math.isfinite(self._failure_gap_s):
            when = self.now + self._rng.exponential(self._failure_gap_s)
            node = int(self._rng.integers(self.cluster_nodes))
            heapq.heappush(self._queue, (when, _FAILURE, node, 0))

    def _plan_wake(self, when: float) -> None:
        if self.now < when < self._wake_s:
            self._wake_s = when
            heapq.heappush(self._queue, (self._wake_s, _WAKE, 0, 0))

    def _open(self, state: JobState) -> None:
        if self._record and state.level:
            self._opened[state.index] = (self.now, state.trained_s, state.left)

    def _close(self, state: JobState) -> None:
        if self._record and state.level:
            start, trained_s, left = self._opened.pop(state.index)
            state.settle(self.now)
            self._segments.append(Segment(
                state.index, start, self.now, self._placement.held(state.index),
                state.trained_s - trained_s, left - state.left,
            ))  # fmt: skip


def request_level(job: Job, curve: Curve, gpus_per_node: int) -> int:
    """Return the level a job gets from a policy that does not scale jobs.

    What its owner asks for; where they ask for nothing, the fewest nodes that would meet the
    deadline alone, or without deadline the most nodes that keep nine tenths of the best speed a
    node.

    Args:
        job: the job.
        curve: its speeds.
        gpus_per_node: GPUs of a node.
    """
    if job.gpus:
        nodes = min(job.gpus // gpus_per_node, len(curve.level_of) - 1)
        return max(1, curve.level_of[nodes])
    if job.has_deadline:
        time_s = curve.pause[1:] + job.steps / curve.planned[1:]
        enough = np.flatnonzero(time_s <= job.deadline_s - job.arrival_s)
        return int(enough[0]) + 1 if len(enough) else curve.top
    per_node = curve.planned[1:] / curve.nodes[1:]
    return int(np.flatnonzero(per_node >= 0.9 * per_node.max())[-1]) + 1
