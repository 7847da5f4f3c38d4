"""Policies that give a job the GPUs it asks for, or none."""

from __future__ import annotations

import bisect
import math
from abc import abstractmethod
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

    A job that does not fit is passed over, so that no node idles that a later job could use. The
    rank of a waiting job does not change, so only running jobs are ranked anew at every event.
    """

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiting: list[tuple[Any, ...]] = []
        self._sizes: dict[int, int] = {}
        self.running: set[int] = set()

    @abstractmethod
    def rank(self, sim: Simulation, state: JobState, stopped: bool) -> tuple[Any, ...]:
        """Return the sort key of a job; smaller runs first.

        Args:
            sim: the simulation.
            state: a job.
            stopped: rank a running job as if it waited; that rank must not change with time.
        """

    def arrive(self, sim: Simulation, state: JobState) -> None:
        """Queue up."""
        self._wait(self._key(sim, state), state)

    def finish(self, sim: Simulation, state: JobState) -> None:
        """Run no longer."""
        self.running.discard(state.index)

    def decide(self, sim: Simulation) -> dict[int, int]:
        """Fill the cluster in order."""
        running = sorted(self._key(sim, sim.active[index]) for index in self.running)
        free = sim.cluster_nodes
        targets: dict[int, int] = {}
        started: list[tuple[Any, ...]] = []
        stopped: list[tuple[Any, ...]] = []
        mine = queued = 0
        while mine < len(running) or queued < len(self._waiting):
            if queued < len(self._waiting) and free < min(self._sizes):
                queued = len(self._waiting)  # nobody who waits fits any more
                continue
            first = mine < len(running) and (
                queued == len(self._waiting) or running[mine] < self._waiting[queued]
            )
            key = running[mine] if first else self._waiting[queued]
            mine, queued = (mine + 1, queued) if first else (mine, queued + 1)
            state = sim.active[key[-1]]
            nodes = state.curve.nodes_of[state.request]
            if nodes <= free:
                free -= nodes
                if not first:
                    started.append(key)
            elif first:
                stopped.append(key)
        for key in started:
            state = sim.active[key[-1]]
            self._start(key, state)
            targets[state.index] = state.request
        for key in stopped:
            state = sim.active[key[-1]]
            self.running.discard(state.index)
            self._wait(self._key(sim, state, stopped=True), state)
            targets[state.index] = 0
        return targets

    def _key(self, sim: Simulation, state: JobState, *, stopped: bool = False) -> tuple[Any, ...]:
        """Return priority, rank, arrival and index: no two jobs are equal."""
        return (-state.job.priority, *self.rank(sim, state, stopped), state.job.arrival_s,
                state.index)  # fmt: skip

    def _wait(self, key: tuple[Any, ...], state: JobState) -> None:
        bisect.insort(self._waiting, key)
        nodes = state.curve.nodes_of[state.request]
        self._sizes[nodes] = self._sizes.get(nodes, 0) + 1

    def _start(self, key: tuple[Any, ...], state: JobState) -> None:
        del self._waiting[bisect.bisect_left(self._waiting, key)]
        nodes = state.curve.nodes_of[state.request]
        self._sizes[nodes] -= 1
        if not self._sizes[nodes]:
            del self._sizes[nodes]
        self.running.add(state.index)


class ShortestRemaining(_Ranked):
    """Least remaining running time first, preemptive."""

    name = "srtf"

    def rank(self, sim: Simulation, state: JobState, stopped: bool) -> tuple[float]:
        """Return the seconds to go on the GPUs asked for, a move included."""
        runs = state.level and not stopped
        pause = max(0.0, state.ready - sim.now) if runs else state.curve.pause_of[state.request]
        return (pause + state.left_at(sim.now) / state.curve.planned_of[state.request],)


class EarliestDeadline(_Ranked):
    """Earliest deadline first, preemptive; jobs without one last."""

    name = "edf"

    def rank(self, sim: Simulation, state: JobState, stopped: bool) -> tuple[float]:
        """Return the deadline."""
        return (state.job.deadline_s,)


class LeastAttainedService(_Ranked):
    """Least GPU time received first, in queues (Tiresias, NSDI 2019).

    Service is compared by queue, not by the second, or two equal jobs would stop each other for
    ever; within a queue the first come is the first served. The first queue ends at 1,000 GPU-hours
    on nodes of eight, each further one at four times as much: LLM jobs span these decades.
    """

    name = "las"

    def rank(self, sim: Simulation, state: JobState, stopped: bool) -> tuple[int]:
        """Return the number of the queue."""
        return (_queue(state.node_s_at(sim.now)),)

    def wake_s(self, sim: Simulation) -> float:
        """Return when the next running job falls into a lower queue."""
        when = math.inf
        for state in map(sim.active.__getitem__, self.running):
            used = state.node_s_at(sim.now)
            room = _FIRST_QUEUE_NODE_S * _QUEUE_RATIO ** _queue(used) - used
            when = min(when, sim.now + room / state.nodes + _MARGIN_S)
        return when


def _queue(node_s: float) -> int:
    """Return the queue of a job that has received so many node-seconds."""
    if node_s < _FIRST_QUEUE_NODE_S:
        return 0
    return 1 + math.floor(math.log(node_s / _FIRST_QUEUE_NODE_S, _QUEUE_RATIO) + 1e-12)
