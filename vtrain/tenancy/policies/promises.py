"""The book of promises given: what each job may count on, and what of the cluster is left."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from vtrain.tenancy.promise import Capacity, Promise, fill

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Simulation
    from vtrain.tenancy.state import JobState

_ROUNDING = 1e-6
_NONE = Promise((), (), -math.inf)


class PromiseBook:
    """Promises by job, with the capacity they leave kept in step.

    Attributes:
        promises: what was promised to whom.
        late: jobs whose deadline is lost to failures; they are promised the earliest end instead.
    """

    def __init__(self) -> None:
        """Start without promises."""
        self.promises: dict[int, Promise] = {}
        self.late: set[int] = set()
        self._capacity: Capacity | None = None
        self._level: dict[int, int] = {}
        self._changes: list[tuple[float, int]] = []
        self._touched: set[int] = set()

    def advance(self, sim: Simulation) -> Capacity:
        """Return what is free from now on."""
        if self._capacity is None:
            self._capacity = Capacity(sim.now, sim.cluster_nodes)
        elif self._capacity.times[0] < sim.now:
            self._capacity.advance(sim.now)
        return self._capacity

    def level(self, index: int) -> int:
        """Return the level promised to a job when `touched` was last called."""
        return self._level.get(index, 0)

    def next_change_s(self) -> float:
        """Return when a promise may change its level; never later than it does."""
        return self._changes[0][0] if self._changes else math.inf

    def touched(self, now: float) -> list[int]:
        """Bring levels up to date; return the jobs whose promise or level is new, ascending."""
        while self._changes and self._changes[0][0] <= now:
            self._touched.add(heapq.heappop(self._changes)[1])
        touched = sorted(self._touched)
        self._touched.clear()
        for index in touched:
            promise = self.promises.get(index)
            level = 0 if promise is None else promise.level_at(now)
            if level:
                self._level[index] = level
            else:
                self._level.pop(index, None)
            after = math.inf if promise is None else promise.next_change(now)
            if after < math.inf:
                heapq.heappush(self._changes, (after, index))
        return touched

    def overdue(self, now: float, index: int) -> bool:
        """Return whether a promise ran out; its job is not done, or it would be forgotten."""
        return index in self.promises and now >= self.promises[index].end

    def forget(self, sim: Simulation, state: JobState) -> None:
        """Free what was promised to a job."""
        promise = self.promises.pop(state.index, None)
        if promise is not None:
            self.advance(sim).give_back(promise, state.curve)
            self._touched.add(state.index)
        self.late.discard(state.index)

    def admit(self, sim: Simulation, state: JobState) -> bool:
        """Promise a job its deadline, next to the promises given or with all of them renewed.

        Progressive filling (ElasticFlow, section 4.1), each job from where it stands; a job that
        holds a promise already must be forgotten first.
        """
        promise = _fill(self.advance(sim), sim, state)
        if promise is not None:
            self._give(sim, state, promise)
            return True
        return self._renew_all(sim, state)

    def renew(self, sim: Simulation, state: JobState, level: int) -> bool:
        """Promise a job its deadline even if it moves to a level now and must move again at once.

        The new promise begins when the pause of the first move ends and pays for a second.
        """
        old = self.promises[state.index]
        capacity = self.advance(sim)
        capacity.give_back(old, state.curve)
        ready = sim.now + state.curve.pause_of[level]
        promise = _fill(capacity, sim, state, level=-1, start_s=ready)
        self.promises[state.index] = promise or old
        self._touched.add(state.index)
        capacity.take(promise or old, state.curve)
        return promise is not None

    def promise_soonest(self, sim: Simulation, state: JobState) -> None:
        """Give up a job's deadline and promise the earliest end there is."""
        self.late.add(state.index)
        promise = _fill(self.advance(sim), sim, state, deadline_s=math.inf)
        self._give(sim, state, promise or _NONE)

    def _give(self, sim: Simulation, state: JobState, promise: Promise) -> None:
        self.promises[state.index] = promise
        self._touched.add(state.index)
        self.advance(sim).take(promise, state.curve)

    def _renew_all(self, sim: Simulation, newcomer: JobState) -> bool:
        """Fill all jobs anew in order of deadline; change nothing when one cannot be kept."""
        states = sorted(
            [*(sim.active[index] for index in self.promises), newcomer],
            key=lambda s: (s.index not in self.late, s.job.deadline_s, s.index),
        )
        if _overbooked(sim, [s for s in states if s.index not in self.late]):
            return False
        capacity = Capacity(sim.now, sim.cluster_nodes)
        renewed: dict[int, Promise] = {}
        for state in states:
            if state.index in self.late:
                promise: Promise | None = self.promises[state.index]
            else:
                promise = _fill(capacity, sim, state)
            if promise is None:
                return False
            renewed[state.index] = promise
            capacity.take(promise, state.curve)
        self.promises, self._capacity = renewed, capacity
        self._touched.update(renewed)
        return True


def _overbooked(sim: Simulation, states: list[JobState]) -> bool:
    """Return whether jobs, by deadline, need more node time than there is before some deadline.

    Counts every job at its thriftiest level and without pauses: what this refuses no filling
    could promise, and it costs far less than to find out by filling.
    """
    need = 0.0
    for state in states:
        need += state.left_at(sim.now) * state.curve.thriftiest_node_s
        if need > (1.0 + _ROUNDING) * sim.cluster_nodes * (state.job.deadline_s - sim.now):
            return True
    return False


def _fill(
    capacity: Capacity,
    sim: Simulation,
    state: JobState,
    *,
    deadline_s: float | None = None,
    level: int | None = None,
    start_s: float | None = None,
) -> Promise | None:
    """Fill one job from where it stands."""
    start = sim.now if start_s is None else start_s
    return fill(
        capacity, state.curve, steps=state.left_at(sim.now), start_s=start,
        deadline_s=state.job.deadline_s if deadline_s is None else deadline_s,
        level=state.level if level is None else level,
        ready_s=max(state.ready if state.level else 0.0, start),
    )  # fmt: skip
