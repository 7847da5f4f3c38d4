"""Plays the task graph of a pipeline: when each task of each rank starts.

The order of every rank is fixed by its schedule, so a start time is the larger of two: the end
of the rank's previous task and the arrival of what the task needs. Past warm-up the same tasks
repeat; once every quantity grows by a constant from one repetition to the next, whole stretches
are skipped (`vtrain.simulation.steady`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.schedule.tasks import BACKWARD, FORWARD, Segment, Tasks
from vtrain.simulation.steady import Steady

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.schedule.tasks import Schedule

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

# Rank, what delivers the arrival of the input, what takes that of the output, seconds, flight.
_Op = tuple[int, Callable[[], float] | None, Callable[[float], None] | None, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskTimes:
    """Seconds of every task, arrays [ranks, chunks] unless said otherwise.

    Attributes:
        seconds: forward, backward and weight-gradient tasks, the sends that block their rank
            included, [3, ranks, chunks].
        forward_flight_s: seconds from the end of a forward task until its output arrives.
        backward_flight_s: the same for a backward task.
        first_wait_s: seconds a rank waits before its first task once that could run, [ranks].
        first_flight_s: added flight of the first forward of a rank, [ranks].
        last_flight_s: added flight of the last backward of a rank, [ranks].
    """

    seconds: Array
    forward_flight_s: Array
    backward_flight_s: Array
    first_wait_s: Array
    first_flight_s: Array
    last_flight_s: Array


class Skip(NamedTuple):
    """A stretch of identical repetitions that was not played.

    Attributes:
        micro_batches: how many micro-batches it holds.
        start_s: when it starts on each rank, [ranks].
        end_s: when it ends, [ranks].
    """

    micro_batches: int
    start_s: Array
    end_s: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """Tasks in an order in which each comes after all it depends on.

    Attributes:
        rank: pipeline rank of each task, [n].
        kind: FORWARD, BACKWARD or WEIGHT_GRADIENT, [n].
        micro_batch: micro-batch, [n].
        chunk: chunk of the rank, [n].
        start_s: start, [n].
        end_s: end, blocking send included, [n].
        finish_s: end of each rank's last task, [ranks].
        skips: stretches left out.
    """

    rank: IntArray
    kind: npt.NDArray[np.int8]
    micro_batch: IntArray
    chunk: IntArray
    start_s: Array
    end_s: Array
    finish_s: Array
    skips: tuple[Skip, ...]


class _Flat(NamedTuple):
    """One repetition of a segment over all ranks, in topological order."""

    ops: list[_Op]
    rank: IntArray
    tasks: Tasks
    seconds: Array


def play(schedule: Schedule, times: TaskTimes, *, skip: bool) -> Played:
    """Play a schedule.

    Args:
        schedule: the order of every rank.
        times: seconds of the tasks.
        skip: leave out repetitions whose times follow from their predecessors; the result is the
            same but for rounding, and its cost does not grow with micro-batches.
    """
    ranks = schedule.ranks
    by_rank = [schedule.segments(rank) for rank in range(ranks)]
    queues: list[deque[float]] = [deque() for _ in range(2 * ranks * schedule.chunks)]
    clocks = [0.0] * ranks
    columns: list[tuple[IntArray, Tasks, Array, Array]] = []
    skips: list[Skip] = []
    for number, (_, repeats, period) in enumerate(by_rank[0]):
        flat = _flatten(schedule, times, [order[number] for order in by_rank], queues)
        if number == 0:
            _amend_first(flat, times)
        if number == len(by_rank[0]) - 1:
            _amend_last(flat, times)
        steady = Steady()
        done = 0
        while done < repeats:
            arrival, free = _run(flat.ops, clocks, queues)
            shifted = flat.tasks.micro_batch + done * period
            start = np.maximum(arrival, free)
            columns.append(
                (flat.rank, flat.tasks._replace(micro_batch=shifted), start, start + flat.seconds)
            )
            done += 1
            if skip and repeats - done >= _WORTH_SKIPPING:
                state = np.array([*clocks, *(value for queue in queues for value in queue)])
                steady.observe(arrival, free, state)
                count = min(steady.repetitions_ahead(), repeats - done)
                if count:
                    before = np.array(clocks)
                    _advance(clocks, queues, state + count * steady.growth)
                    skips.append(Skip(count * period, before, np.array(clocks)))
                    done += count
                    steady = Steady()
    return _collect(columns, clocks, tuple(skips), times)


# Observing costs about as much as playing a few repetitions.
_WORTH_SKIPPING = 4


def _flatten(
    schedule: Schedule,
    times: TaskTimes,
    parts: Sequence[Segment],
    queues: Sequence[deque[float]],
) -> _Flat:
    """Order one repetition of a segment so that each task comes after what it depends on."""
    tasks = Tasks(
        np.concatenate([part.tasks.kind for part in parts]),
        np.concatenate([part.tasks.micro_batch for part in parts]),
        np.concatenate([part.tasks.chunk for part in parts]),
    )
    counts = [len(part.tasks.kind) for part in parts]
    rank = np.repeat(np.arange(len(parts)), counts)
    reads, writes = _endpoints(schedule, rank, tasks)
    order = _topological(counts, reads.tolist(), writes.tolist(), [len(q) for q in queues])
    seconds = times.seconds[tasks.kind, rank, tasks.chunk][order]
    flight = np.zeros_like(times.seconds)
    flight[FORWARD], flight[BACKWARD] = times.forward_flight_s, times.backward_flight_s
    takes = [queue.popleft for queue in queues]
    puts = [queue.append for queue in queues]
    ops: list[_Op] = [
        (who, takes[source] if source >= 0 else None, puts[target] if target >= 0 else None, s, f)
        for who, source, target, s, f in zip(
            rank[order].tolist(), reads[order].tolist(), writes[order].tolist(),
            seconds.tolist(), flight[tasks.kind, rank, tasks.chunk][order].tolist(), strict=True,
        )
    ]  # fmt: skip
    ordered = Tasks(tasks.kind[order], tasks.micro_batch[order], tasks.chunk[order])
    return _Flat(ops, rank[order], ordered, seconds)


def _endpoints(schedule: Schedule, rank: IntArray, tasks: Tasks) -> tuple[IntArray, IntArray]:
    """Return the queue each task reads and the one it writes; -1 for none.

    Forward tasks of virtual stage s read queue s and write queue s + 1; backward tasks read queue
    stages + s and write the one before. The ends of the pipeline read or write nothing.
    """
    stages = schedule.ranks * schedule.chunks
    stage = tasks.chunk * schedule.ranks + rank
    forward, backward = tasks.kind == FORWARD, tasks.kind == BACKWARD
    first, last = stage == 0, stage == stages - 1
    reads = np.where(forward & ~first, stage, np.where(backward & ~last, stages + stage, -1))
    writes = np.where(
        forward & ~last, stage + 1, np.where(backward & ~first, stages + stage - 1, -1)
    )
    return reads, writes


def _topological(
    counts: Sequence[int], reads: Sequence[int], writes: Sequence[int], waiting: list[int]
) -> IntArray:
    """Return task numbers (ranks one behind the other) in an order that can run."""
    ends = np.cumsum(counts).tolist()
    position = [end - count for end, count in zip(ends, counts, strict=True)]
    blocked: dict[int, int] = {}
    ready = list(range(len(counts)))[::-1]
    order: list[int] = []
    while ready:
        rank = ready.pop()
        at, end = position[rank], ends[rank]
        while at < end:
            source, target = reads[at], writes[at]
            if source >= 0:
                if not waiting[source]:
                    blocked[source] = rank
                    break
                waiting[source] -= 1
            order.append(at)
            at += 1
            if target >= 0:
                waiting[target] += 1
                if target in blocked:
                    ready.append(blocked.pop(target))
        position[rank] = at
    return np.array(order, dtype=np.int64)


def _amend_first(flat: _Flat, times: TaskTimes) -> None:
    """Add what delays the first task of every rank and its output."""
    for rank in range(len(times.first_wait_s)):
        at = int(np.argmax(flat.rank == rank))
        who, reads, writes, seconds, flight = flat.ops[at]
        wait = float(times.first_wait_s[rank])
        extra = float(times.first_flight_s[rank])
        flat.ops[at] = (who, reads, writes, seconds + wait, flight + extra)


def _amend_last(flat: _Flat, times: TaskTimes) -> None:
    """Add what delays the output of the last backward of every rank."""
    for rank in range(len(times.last_flight_s)):
        at = int(np.flatnonzero((flat.rank == rank) & (flat.tasks.kind == BACKWARD))[-1])
        who, reads, writes, seconds, flight = flat.ops[at]
        flat.ops[at] = (who, reads, writes, seconds, flight + float(times.last_flight_s[rank]))


def _run(
    ops: Sequence[_Op], clocks: list[float], queues: Sequence[deque[float]]
) -> tuple[Array, Array]:
    """Run tasks in order; return when the input of each arrived and when its rank was free."""
    arrivals: list[float] = []
    frees: list[float] = []
    for rank, take, put, seconds, flight in ops:
        free = clocks[rank]
        arrival = take() if take else -1.0
        end = (arrival if arrival > free else free) + seconds
        clocks[rank] = end
        if put:
            put(end + flight)
        arrivals.append(arrival)
        frees.append(free)
    return np.array(arrivals), np.array(frees)


def _advance(clocks: list[float], queues: Sequence[deque[float]], state: Array) -> None:
    """Overwrite clocks and everything in flight."""
    values = state.tolist()
    ranks = len(clocks)
    clocks[:] = values[:ranks]
    at = ranks
    for queue in queues:
        count = len(queue)
        queue.clear()
        queue.extend(values[at : at + count])
        at += count


def _collect(
    columns: Sequence[tuple[IntArray, Tasks, Array, Array]],
    clocks: Sequence[float],
    skips: tuple[Skip, ...],
    times: TaskTimes,
) -> Played:
    """Put repetitions one behind the other; the first task of a rank starts after its wait."""
    rank = np.concatenate([column[0] for column in columns])
    start = np.concatenate([column[2] for column in columns])
    end = np.concatenate([column[3] for column in columns])
    for each, wait in enumerate(times.first_wait_s):
        first = int(np.argmax(rank == each))
        start[first] += wait
        end[first] += wait
    return Played(
        rank=rank,
        kind=np.concatenate([column[1].kind for column in columns]),
        micro_batch=np.concatenate([column[1].micro_batch for column in columns]),
        chunk=np.concatenate([column[1].chunk for column in columns]),
        start_s=start,
        end_s=end,
        finish_s=np.array(clocks),
        skips=skips,
    )
