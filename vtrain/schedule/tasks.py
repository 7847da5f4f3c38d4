"""What a schedule is: for every pipeline rank, the order in which it works through its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Kinds = npt.NDArray[np.int8]
    IntArray = npt.NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT_GRADIENT = 0, 1, 2
KIND_NAMES = ("forward", "backward", "weight-gradient")


class Tasks(NamedTuple):
    """Tasks of one rank in the order it runs them, arrays [n].

    Attributes:
        kind: FORWARD, BACKWARD (input gradients only where WEIGHT_GRADIENT tasks exist) or
            WEIGHT_GRADIENT.
        micro_batch: which micro-batch, from 0.
        chunk: which of the rank's chunks of layers, from 0.
    """

    kind: Kinds
    micro_batch: IntArray
    chunk: IntArray


class Segment(NamedTuple):
    """A stretch of a rank's order that runs `repeats` times in a row.

    Repetition k runs the same tasks with `period` x k added to every micro-batch. The segments of
    all ranks line up: repetition k of segment i can finish on every rank once repetition k - 1
    (and segment i - 1) has finished on every rank. The first and the last segment run once.
    """

    tasks: Tasks
    repeats: int
    period: int


class Schedule(Protocol):
    """The order of work in a pipeline."""

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""

    @property
    def chunks(self) -> int:
        """Chunks of layers on each rank; chunk c of rank r is virtual stage c x ranks + r."""

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients are tasks of their own."""

    def warm_up(self, rank: int) -> int:
        """Return how many forward tasks a rank runs before its first backward."""

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """Return the order of a rank, its repeating part written once."""


def rank_order(schedule: Schedule, rank: int) -> Tasks:
    """Return every task of a rank in the order it runs them."""
    parts = []
    for tasks, repeats, period in schedule.segments(rank):
        shift = np.repeat(np.arange(repeats, dtype=np.int64) * period, len(tasks.kind))
        parts.append(
            Tasks(
                np.tile(tasks.kind, repeats),
                np.tile(tasks.micro_batch, repeats) + shift,
                np.tile(tasks.chunk, repeats),
            )
        )
    return Tasks(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def peak_in_flight(schedule: Schedule, rank: int) -> int:
    """Return the most forward tasks whose activations a rank holds at one time."""
    kind = rank_order(schedule, rank).kind
    step = np.where(kind == FORWARD, 1, np.where(kind == BACKWARD, -1, 0))
    return int(np.cumsum(step).max())


def sequence(kind: npt.ArrayLike, micro_batch: npt.ArrayLike, chunk: npt.ArrayLike) -> Tasks:
    """Return tasks from plain sequences."""
    return Tasks(
        np.asarray(kind, dtype=np.int8),
        np.asarray(micro_batch, dtype=np.int64),
        np.asarray(chunk, dtype=np.int64),
    )


def take(tasks: Tasks, start: int, stop: int) -> Tasks:
    """Return the tasks of some positions."""
    return Tasks(tasks.kind[start:stop], tasks.micro_batch[start:stop], tasks.chunk[start:stop])


def fold(
    whole: Callable[[int], Tasks],
    *,
    micro_batches: int,
    period: int,
    start: int,
    length: int,
    least: int,
) -> tuple[Segment, ...]:
    """Write the repeating middle of an order once.

    Args:
        whole: the whole order for a number of micro-batches.
        micro_batches: the number wanted.
        period: micro-batches after which the order repeats.
        start: position at which the first repetition starts.
        length: tasks of one repetition.
        least: micro-batches of a step without a repetition, enough to leave every rank a tail.

    Returns:
        Head, one repetition, tail; or the whole order as one segment where nothing repeats.
    """
    repeats = (micro_batches - least) // period
    if repeats < 1:
        return (Segment(whole(micro_batches), 1, 0),)
    skipped = (repeats - 1) * period
    short = whole(micro_batches - skipped)
    tail = take(short, start + length, len(short.kind))
    return (
        Segment(take(short, 0, start), 1, 0),
        Segment(take(short, start, start + length), repeats, period),
        Segment(tail._replace(micro_batch=tail.micro_batch + skipped), 1, 0),
    )
