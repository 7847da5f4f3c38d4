"""Policies that give a job the GPUs it asks for, or none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vtrain.tenancy.policies.base import Policy

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Simulation
    from vtrain.tenancy.state import JobState

_FIRST_QUEUE_NODE_S = 1000.0 * 3600.0 / 8.0
_QUEUE_RATIO = 4.0
_MARGIN_S = 1e-6


class FirstInFirstOut(Policy):
    """In order of arrival within a priority; nobody overtakes, nobody is stopped."""

    name = "fifo"

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._waiting: list[tuple[int, float, int]] = []

    def arrive(self, sim: Simulation, state: JobState) -> None:
        """Queue up behind the last of equal priority."""
        import bisect

        bisect.insort(self._waiting, (-state.job.priority, state.job.arrival_s, state.index))

    def decide(self, sim: Simulation) -> dict[int, int]:
        """Start from the head of the queue until one does not fit."""
        free = sim.free_nodes
        targets: dict[int, int] = {}
        for _, _, index in self._waiting:
            state = sim.active[index]
            nodes = state.curve.nodes_of[state.request]
            if nodes > free:
                break
            free -= nodes
            targets[index] = state.request
        del self._waiting[: len(targets)]
        return targets


class _Ranked(Policy):
    """Runs the first jobs of an order that fit, stopping others for them.

    A job that does not fit is passed over, so that no node idles that a later job could use.
    """

    def rank(self, sim: Simulation, state: JobState) -> tuple[Any, ...]:
        """Return the sort key; smaller runs first."""
        raise NotImplementedError

    def decide(self, sim: Simulation) -> dict[int, int]:
        """Fill the cluster in order."""
        order = sorted(
            (-state.job.priority, *self.rank(sim, state), state.job.arrival_s, index)
            for index, state in sim.active.items()
        )
        free = sim.cluster_nodes
        targets: dict[int, int] = {}
        for key in order:
            state = sim.active[key[-1]]
            nodes = state.curve.nodes_of[state.request]
            if nodes <= free:
                free -= nodes
                targets[state.index] = state.request
            else:
                targets[state.index] = 0
        return targets


class ShortestRemaining(_Ranked):
    """Least remaining running time first, preemptive."""

    name = "srtf"

    def rank(self, sim: Simulation, state: JobState) -> tuple[float]:
        """Return the seconds to go on the GPUs asked for, a move included."""
        pause = max(0.0, state.ready - sim.now) if state.level else (
            state.curve.pause_of[state.request]
        )  # fmt: skip
        return (pause + state.left_at(sim.now) / state.curve.planned_of[state.request],)


class EarliestDeadline(_Ranked):
    """Earliest deadline first, preemptive; jobs without one last."""

    name = "edf"

    def rank(self, sim: Simulation, state: JobState) -> tuple[float]:
        """Return the deadline."""
        return (state.job.deadline_s,)


class LeastAttainedService(_Ranked):
    """Least GPU time received first, in queues (Tiresias, NSDI 2019).

    Service is compared by queue, not by the second, or two equal jobs would stop each other for
    ever; within a queue the first come is the first served. The first queue ends at 1,000 GPU-hours
    on nodes of eight, each further one at four times as much: LLM jobs span these decades.
    """

    name = "las"

    def rank(self, sim: Simulation, state: JobState) -> tuple[int]:
        """Return the number of the queue."""
        return (_queue(state.node_s_at(sim.now)),)

    def wake_s(self, sim: Simulation) -> float:
        """Return when the next running job falls into a lower queue."""
        when = math.inf
        for state in sim.active.values():
            if state.level:
                used = state.node_s_at(sim.now)
                room = _FIRST_QUEUE_NODE_S * _QUEUE_RATIO ** _queue(used) - used
                when = min(when, sim.now + room / state.nodes + _MARGIN_S)
        return when


def _queue(node_s: float) -> int:
    """Return the queue of a job that has received so many node-seconds."""
    if node_s < _FIRST_QUEUE_NODE_S:
        return 0
    return 1 + math.floor(math.log(node_s / _FIRST_QUEUE_NODE_S, _QUEUE_RATIO) + 1e-12)
