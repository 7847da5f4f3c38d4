"""Reserved capacity: which nodes are promised when, and what still fits.

A promise is a job's guaranteed way to its deadline: a level for every stretch of time from now on.
`fill` finds one with the fewest nodes, by progressive filling (ElasticFlow, Gu et al., ASPLOS 2023,
section 4.1): raise a ceiling on the job's nodes until what it gets under the ceiling, wherever
earlier promises leave room, is enough. Every change of level costs its pause inside the test.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vtrain.tenancy.curve import Curve

# Promised work may fall short by rounding only; the simulation's dates carry the same error.
_ROUNDING = 1e-9
# A promise outlives its work by a millisecond, or rounding could stop a job just before its end.
_GRACE_S = 1e-3


class Promise(NamedTuple):
    """Levels by time: `levels[i]` from `starts[i]` until the next start, the last until `end`."""

    starts: tuple[float, ...]
    levels: tuple[int, ...]
    end: float

    def level_at(self, now: float) -> int:
        """Return the level promised at a time; 0 before the first start and from the end on."""
        if now >= self.end:
            return 0
        i = bisect_right(self.starts, now) - 1
        return self.levels[i] if i >= 0 else 0

    def next_change(self, now: float) -> float:
        """Return the first time after now at which the level changes."""
        i = bisect_right(self.starts, now)
        if i < len(self.starts):
            return self.starts[i]
        return self.end if now < self.end else math.inf


class Capacity:
    """Free nodes by time: a step function from now on."""

    def __init__(self, now: float, nodes: int) -> None:
        """Start with every node free for ever."""
        self.times = [now]
        self.free = [nodes]

    def advance(self, now: float) -> None:
        """Forget what is past and join equal neighbours."""
        first = bisect_right(self.times, now) - 1
        times, free = [now], [self.free[first]]
        for time, nodes in zip(self.times[first + 1 :], self.free[first + 1 :], strict=True):
            if nodes != free[-1]:
                times.append(time)
                free.append(nodes)
        self.times, self.free = times, free

    def take(self, promise: Promise, curve: Curve) -> None:
        """Reserve what a promise needs from the first time on."""
        self._change(promise, curve, -1)

    def give_back(self, promise: Promise, curve: Curve) -> None:
        """Undo `take`; what lies before the first time is past."""
        self._change(promise, curve, 1)

    def _change(self, promise: Promise, curve: Curve, sign: int) -> None:
        ends = (*promise.starts[1:], promise.end)
        for start, end, level in zip(promise.starts, ends, promise.levels, strict=True):
            if level and end > self.times[0]:
                first = self._split(max(start, self.times[0]))
                last = self._split(end)
                nodes = sign * curve.nodes_of[level]
                self.free[first:last] = [free + nodes for free in self.free[first:last]]

    def _split(self, time: float) -> int:
        """Return the position of a time, made a step of its own."""
        i = bisect_right(self.times, time) - 1
        if self.times[i] == time:
            return i
        self.times.insert(i + 1, time)
        self.free.insert(i + 1, self.free[i])
        return i + 1


def fill(
    capacity: Capacity,
    curve: Curve,
    *,
    steps: float,
    start_s: float,
    deadline_s: float,
    level: int,
    ready_s: float,
) -> Promise | None:
    """Return the promise with the lowest ceiling that meets a deadline.

    Args:
        capacity: what others leave.
        curve: speeds and pauses of the job.
        steps: work to do.
        start_s: nothing happens before; not before the capacity's first time.
        deadline_s: when it must be done; inf for the ceiling that is done first.
        level: level held until start_s: going on with it costs no pause. -1 for a pause anyhow.
        ready_s: when the pause that is running ends.

    Returns:
        None when no ceiling is enough.
    """
    first = bisect_right(capacity.times, start_s) - 1
    last = bisect_left(capacity.times, deadline_s)
    if last <= first or deadline_s <= start_s:
        return None
    starts = [start_s, *capacity.times[first + 1 : last]]
    stretches = list(zip(starts, [*starts[1:], deadline_s], capacity.free[first:last], strict=True))
    # A ceiling too slow even with all the time there is need not be tried.
    least = steps * (1.0 - _ROUNDING) / (deadline_s - start_s)
    found: Promise | None = None
    for ceiling in range(max(1, bisect_left(curve.planned_of, least)), curve.top + 1):
        promise = _under(curve, ceiling, stretches, deadline_s, level, ready_s, steps)
        if promise is not None and deadline_s < math.inf:
            return promise
        if promise is not None and (found is None or promise.end < found.end):
            found = promise
    return found


def _under(
    curve: Curve, ceiling: int, stretches: list[tuple[float, float, int]], deadline_s: float,
    level: int, ready_s: float, steps: float,
) -> Promise | None:  # fmt: skip
    """Return what a job gets under one ceiling until it is done; None if that is too late.

    Plain scalars and conditions: most calls end after a few stretches, and this is where a busy
    cluster's simulation spends its time.
    """
    level_of, rate_of, pause_of = curve.level_of, curve.planned_of, curve.pause_of
    wanted, best_rate = curve.nodes_of[ceiling], rate_of[ceiling]
    since: list[float] = []
    levels: list[int] = []
    left, rounding = steps, steps * _ROUNDING
    for start, end, free in stretches:
        got = ceiling if free >= wanted else level_of[free] if free > 0 else 0
        if got != level or (got and not since):
            if got or since:
                since.append(start)
                levels.append(got)
            if got != level:
                level = got
                pause_end = start + pause_of[got]
                if pause_end > ready_s:
                    ready_s = pause_end
        if got:
            begin = start if start > ready_s else ready_s
            if begin < end:
                gain = (end - begin) * rate_of[got]
                if gain >= left:
                    end = begin + left / rate_of[got]
                    return Promise(tuple(since), tuple(levels), end + _GRACE_S)
                left -= gain
        rest_s = deadline_s - (end if end > ready_s else ready_s)
        if left - rounding > rest_s * best_rate:
            return None
    return Promise(tuple(since), tuple(levels), deadline_s + _GRACE_S)
