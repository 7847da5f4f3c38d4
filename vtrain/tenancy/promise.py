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

import numpy as np

if TYPE_CHECKING:
    from vtrain.tenancy.curve import Curve

# Promised work may fall short by rounding only; the simulation's dates carry the same error.
_ROUNDING = 1e-9
# A promise outlives its work by a millisecond, or rounding could stop a job just before its end.
_GRACE_S = 1e-3
# Most jobs need one of the lowest ceilings that could do.
_CEILINGS_AT_A_TIME = 4


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
    starts = np.array(capacity.times[first:last])
    starts[0] = start_s
    free = np.maximum(np.array(capacity.free[first:last]), 0)
    ends = np.append(starts[1:], deadline_s)
    if deadline_s == math.inf:
        tried = _under(curve, 1, curve.top, starts, free, level, ready_s)
        return _soonest(starts, ends, *tried, steps)
    # A ceiling too slow even with all the time there is need not be tried.
    least = steps * (1.0 - _ROUNDING) / (deadline_s - start_s)
    lowest = int(np.searchsorted(curve.planned, least))
    for low in range(max(1, lowest), curve.top + 1, _CEILINGS_AT_A_TIME):
        high = min(curve.top, low + _CEILINGS_AT_A_TIME - 1)
        got, begins, rate = _under(curve, low, high, starts, free, level, ready_s)
        total = np.cumsum(np.maximum(ends - begins, 0.0) * rate, axis=1)
        enough = np.flatnonzero(total[:, -1] >= steps * (1.0 - _ROUNDING))
        if len(enough):
            row = int(enough[0])
            return _cut(starts, got[row], begins[row], rate[row], total[row], steps, deadline_s)
    return None


def _under(
    curve: Curve, low: int, high: int, starts: np.ndarray, free: np.ndarray, level: int,
    ready_s: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return level, begin of training and rate by (ceiling from low to high, stretch of time)."""
    got = curve.level_at[np.minimum(curve.nodes[low : high + 1, None], free[None, :])]
    before = np.empty_like(got)
    before[:, 0] = level
    before[:, 1:] = got[:, :-1]
    waits = np.where(got != before, starts + curve.pause[got], ready_s)
    waits[:, 0] = np.maximum(waits[:, 0], ready_s)
    begins = np.maximum(starts, np.maximum.accumulate(waits, axis=1))
    return got, begins, curve.planned[got]


def _soonest(
    starts: np.ndarray, ends: np.ndarray, got: np.ndarray, begins: np.ndarray, rate: np.ndarray,
    steps: float,
) -> Promise | None:  # fmt: skip
    """Return the promise of the ceiling that is done first, given all the time there is."""
    ends = ends.copy()
    ends[-1] = starts[-1] + 1.0
    total = np.cumsum(np.maximum(ends - begins, 0.0) * rate, axis=1)
    done = np.full(len(got), np.inf)
    for row in range(len(got)):
        inside = total[row, :-1] >= steps
        i = int(np.argmax(inside)) if inside.any() else len(starts) - 1
        before = total[row, i - 1] if i else 0.0
        if rate[row, i] > 0.0:
            done[row] = begins[row, i] + (steps - before) / rate[row, i]
    row = int(np.argmin(done))
    if not np.isfinite(done[row]):
        return None
    return _merged(starts[starts < done[row]], got[row], float(done[row]))


def _cut(
    starts: np.ndarray, got: np.ndarray, begins: np.ndarray, rate: np.ndarray, total: np.ndarray,
    steps: float, deadline_s: float,
) -> Promise:  # fmt: skip
    """Return the promise up to the moment the work is done."""
    i = min(int(np.searchsorted(total, steps)), len(starts) - 1)
    before = float(total[i - 1]) if i else 0.0
    done = deadline_s
    if rate[i] > 0.0:
        done = min(deadline_s, float(begins[i]) + max(0.0, steps - before) / float(rate[i]))
    return _merged(starts[: i + 1], got, done)


def _merged(starts: np.ndarray, got: np.ndarray, end: float) -> Promise:
    """Return a promise with equal neighbours joined and idle lead time left out."""
    levels = got[: len(starts)]
    keep = np.concatenate([[levels[0] > 0], levels[1:] != levels[:-1]])
    return Promise(
        tuple(starts[keep].tolist()), tuple(levels[keep].tolist()), end + _GRACE_S
    )  # fmt: skip
