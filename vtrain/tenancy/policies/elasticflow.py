"""ElasticFlow (Gu et al., ASPLOS 2023): promises first, then marginal returns.

A job with a deadline is admitted when progressive filling finds it a minimum satisfactory share
next to all promises already given, if need be after filling all of them anew in order of
deadline; otherwise it is rejected at once. Nodes that no promise needs now go, one step at a time,
to the job whose GPU time to completion grows least by it (section 4.2). Rescaling costs its pause
inside the admission test and inside the test of every voluntary move: a job moves only if its
deadline stays promised even when the move must be undone at the worst moment.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from vtrain.tenancy.policies.base import Policy
from vtrain.tenancy.policies.promises import PromiseBook

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Simulation
    from vtrain.tenancy.state import JobState

# Leftovers are shared out anew at most once in so many pauses (an hour by default): jobs that move
# at every event of a busy cluster would spend their time in pauses. Promises never wait.
_PAUSES_A_ROUND = 6.0
_LEAST_ROUND_S = 60.0


class ElasticFlow(Policy):
    """Admission by minimum satisfactory share; leftovers by least growth of GPU time."""

    name = "elasticflow"

    def __init__(self) -> None:
        """Start without promises."""
        self.book = PromiseBook()
        self._stale = True
        self._last_round_s = -math.inf
        self._round_s = _LEAST_ROUND_S

    def arrive(self, sim: Simulation, state: JobState) -> None:
        """Admit or reject a job with a deadline; take every job without one."""
        self.note_change(state)
        if state.job.has_deadline and not self.book.admit(sim, state):
            sim.reject(state)

    def finish(self, sim: Simulation, state: JobState) -> None:
        """Free what was promised to it."""
        self.note_change(state)
        self.book.forget(sim, state)

    def disturbed(self, sim: Simulation, state: JobState) -> None:
        """Promise the lost work again; where the deadline is gone, the earliest end there is."""
        if state.index in self.book.promises:
            late = state.index in self.book.late
            self.book.forget(sim, state)
            if late or not self.book.admit(sim, state):
                self.book.promise_soonest(sim, state)

    def note_change(self, state: JobState) -> None:
        """Remember that leftovers should be shared out anew."""
        self._stale = True
        self._round_s = max(_LEAST_ROUND_S, _PAUSES_A_ROUND * state.curve.pause_of[1])

    def contenders(self, sim: Simulation) -> dict[int, JobState]:
        """Return the jobs that may hold nodes."""
        return sim.active

    def decide(self, sim: Simulation) -> dict[int, int]:
        """Give every job its promise, then hand out what is left."""
        touched = self._bring_up_to_date(sim)
        if not self._stale or sim.now < self._last_round_s + self._round_s:
            return self._start_waiting(sim, self._follow(sim, touched))
        self._stale = False
        self._last_round_s = sim.now
        jobs = self.contenders(sim)
        base = {index: self.book.level(index) for index in jobs}
        left = sim.cluster_nodes - nodes_held(jobs, base)
        targets = self._share_out(sim, jobs, base, left)
        self._stay_where_free(sim, jobs, base, targets)
        return {i: self._safe(sim, jobs[i], base[i], level) for i, level in targets.items()}

    def wake_s(self, sim: Simulation) -> float:
        """Return when the next promise changes its level or leftovers may be shared out."""
        round_s = self._last_round_s + self._round_s if self._stale else math.inf
        return min(round_s, self.book.next_change_s())

    def price(self, state: JobState, level: int, steps: float) -> tuple[int, int, float]:
        """Return what the next level of a job costs; smaller is served first.

        Jobs that hold nothing come first, shortest first; then the growth of the node-seconds to
        completion by node added.
        """
        nodes, rate = state.curve.nodes_of, state.curve.planned_of
        after = nodes[level + 1] / rate[level + 1]
        if not level:
            return (0, -state.job.priority, steps * after)
        growth = steps * (after - nodes[level] / rate[level])
        return (1, -state.job.priority, growth / (nodes[level + 1] - nodes[level]))

    def _bring_up_to_date(self, sim: Simulation) -> list[int]:
        """Return the jobs whose promised level is new, after renewing promises that ran out."""
        touched = self.book.touched(sim.now)
        overdue = [i for i in touched if i in sim.active and self.book.overdue(sim.now, i)]
        for index in overdue:
            self.disturbed(sim, sim.active[index])
        return sorted({*touched, *self.book.touched(sim.now)}) if overdue else touched

    def _follow(self, sim: Simulation, touched: list[int]) -> dict[int, int]:
        """Give the jobs whose promise is new what they are due; the others stay."""
        targets = {
            i: kept_level(sim, sim.active[i], self.book.level(i)) for i in touched
            if i in sim.active
        }  # fmt: skip
        more = sum(
            sim.active[i].curve.nodes_of[level] - sim.active[i].nodes
            for i, level in targets.items()
        )
        if more > sim.free_nodes:
            jobs = self.contenders(sim)
            targets = {i: targets.get(i, state.level) for i, state in jobs.items()}
            self._reclaim(sim, jobs, targets, more - sim.free_nodes)
        return targets

    def _start_waiting(self, sim: Simulation, targets: dict[int, int]) -> dict[int, int]:
        """Start jobs that hold nothing on nodes nobody holds; nobody has to move for that."""
        free = sim.free_nodes - sum(
            sim.active[i].curve.nodes_of[level] - sim.active[i].nodes
            for i, level in targets.items()
        )
        if not self._stale or free <= 0:
            return targets
        jobs = {
            i: state
            for i, state in self.contenders(sim).items()
            if not state.level and not targets.get(i)
        }
        started = self._share_out(sim, jobs, dict.fromkeys(jobs, 0), free)
        safe = {i: self._safe(sim, jobs[i], 0, level) for i, level in started.items() if level}
        return {**targets, **safe}

    def _reclaim(
        self, sim: Simulation, jobs: dict[int, JobState], targets: dict[int, int], over: int
    ) -> None:
        """Step jobs down to their promises, the dearest first, until enough nodes are free."""
        if over <= 0:
            return
        extras = [
            (*self.price(jobs[i], level - 1, jobs[i].left_at(sim.now)), i)
            for i, level in targets.items()
            if level > self.book.level(i)
        ]
        for *_, index in sorted(extras, reverse=True):
            nodes = jobs[index].curve.nodes_of
            over -= nodes[targets[index]] - nodes[self.book.level(index)]
            targets[index] = self.book.level(index)
            if over <= 0:
                return

    def _share_out(
        self, sim: Simulation, jobs: dict[int, JobState], base: dict[int, int], left: int
    ) -> dict[int, int]:
        """Raise levels from what is promised while nodes are left, the cheapest step first."""
        targets = dict(base)
        steps = {index: jobs[index].left_at(sim.now) for index in base}
        heap = [
            (*self.price(jobs[i], level, steps[i]), i)
            for i, level in base.items()
            if level < jobs[i].curve.top
        ]
        heapq.heapify(heap)
        while heap and left > 0:
            index = heapq.heappop(heap)[-1]
            curve, level = jobs[index].curve, targets[index]
            more = curve.nodes_of[level + 1] - curve.nodes_of[level]
            if more <= left:
                left -= more
                targets[index] = level + 1
                if level + 1 < curve.top:
                    heapq.heappush(heap, (*self.price(jobs[index], level + 1, steps[index]), index))
        return targets

    def _stay_where_free(
        self,
        sim: Simulation,
        jobs: dict[int, JobState],
        base: dict[int, int],
        targets: dict[int, int],
    ) -> None:
        """Leave jobs on the nodes they hold where moving gains nothing."""
        for index, level in targets.items():
            state = jobs[index]
            rises = state.level and base[index] <= state.level < level
            if rises and not ends_sooner(sim, state, level):
                targets[index] = state.level
        left = sim.cluster_nodes - nodes_held(jobs, targets)
        for index, level in targets.items():
            state = jobs[index]
            if base[index] <= level < state.level and not must_follow(sim, state, base[index]):
                more = state.nodes - state.curve.nodes_of[level]
                if more <= left:
                    left -= more
                    targets[index] = state.level

    def _safe(self, sim: Simulation, state: JobState, base: int, level: int) -> int:
        """Return the level, or where moving to it would endanger the promise, a safe one."""
        if state.index not in self.book.promises or state.index in self.book.late:
            return level
        if level == state.level and must_follow(sim, state, base):
            return base
        if level in (state.level, base) or self.book.renew(sim, state, level):
            return level
        return state.level if base <= state.level <= level else base


def nodes_held(jobs: dict[int, JobState], levels: dict[int, int]) -> int:
    """Return the nodes that jobs hold at some levels."""
    return sum(jobs[i].curve.nodes_of[level] for i, level in levels.items())


def kept_level(sim: Simulation, state: JobState, base: int) -> int:
    """Return the level of a job that keeps what it holds, or is promised if that is more."""
    return base if must_follow(sim, state, base) else max(base, state.level)


def must_follow(sim: Simulation, state: JobState, base: int) -> bool:
    """Return whether a job must step down to its promised level at once.

    A job above its promise is ahead of it as long as it trains, and may step down at any time. In
    the pause after a move it is not: the promise counts the pause of the step down from now.
    """
    return 0 < base < state.level and sim.now < state.ready


def ends_sooner(sim: Simulation, state: JobState, level: int) -> bool:
    """Return whether a move ends a running job earlier, the pause counted."""
    rate, left = state.curve.planned_of, state.left_at(sim.now)
    stays = max(sim.now, state.ready) + left / rate[state.level]
    return sim.now + state.curve.pause_of[level] + left / rate[level] < stays
