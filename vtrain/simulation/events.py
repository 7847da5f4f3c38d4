"""Spans of a timeline: what each pipeline rank does from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.simulation.play import Played

    Array = npt.NDArray[np.float64]

# The first three are the compute of the schedule's tasks, in the order of their codes.
SPAN_KINDS = (
    "forward",
    "backward",
    "weight-gradient",
    "recompute",
    "tensor-parallel",
    "data-parallel",
    "host",
    "send",
    "optimizer",
)
COMMUNICATION = ("tensor-parallel", "data-parallel", "send")
BREAKDOWN = (*SPAN_KINDS, "bubble")
RECOMPUTE, TENSOR_PARALLEL, DATA_PARALLEL, HOST, SEND, OPTIMIZER = range(3, 9)
# A task runs its parts in this order; -1 stands for the compute of its own kind. Layers really
# alternate between compute and traffic: a span holds the sum over the layers of its task.
PARTS = (RECOMPUTE, -1, TENSOR_PARALLEL, DATA_PARALLEL, HOST, SEND)


class Events(NamedTuple):
    """Spans, sorted by rank, then start; on one rank they never overlap. Arrays [n].

    Attributes:
        start_s: start, seconds from the start of the step.
        end_s: end.
        kind: position in SPAN_KINDS.
        rank: pipeline rank.
        micro_batch: micro-batch; -1 where a span belongs to the whole step.
        chunk: chunk of the rank; -1 likewise.
    """

    start_s: Array
    end_s: Array
    kind: npt.NDArray[np.int8]
    rank: npt.NDArray[np.int64]
    micro_batch: npt.NDArray[np.int64]
    chunk: npt.NDArray[np.int64]

    @property
    def duration_s(self) -> Array:
        """Length of each span."""
        return self.end_s - self.start_s


def task_events(played: Played, parts_s: Array) -> Events:
    """Split every played task into its parts.

    Args:
        played: tasks with their starts.
        parts_s: seconds of each part, [task kinds, ranks, chunks, parts] in the order of PARTS.
    """
    parts = parts_s[played.kind, played.rank, played.chunk]
    ends = played.start_s[:, None] + np.cumsum(parts, axis=1)
    kinds = np.broadcast_to(np.array(PARTS, dtype=np.int8), parts.shape).copy()
    own = PARTS.index(-1)
    kinds[:, own] = played.kind
    task, part = np.nonzero(parts > 0.0)
    end = ends[task, part]
    return Events(
        start_s=end - parts[task, part],
        end_s=end,
        kind=kinds[task, part],
        rank=played.rank[task],
        micro_batch=played.micro_batch[task],
        chunk=played.chunk[task],
    )


def step_events(kind: int, start_s: Array, seconds: Array) -> Events:
    """Return one span a rank that belongs to the whole step; ranks with 0 seconds get none."""
    rank = np.flatnonzero(seconds > 0.0)
    start = np.broadcast_to(start_s, seconds.shape)[rank]
    none = np.full(len(rank), -1, dtype=np.int64)
    return Events(
        start, start + seconds[rank], np.full(len(rank), kind, dtype=np.int8), rank, none, none
    )


def merge(*parts: Events) -> Events:
    """Put events together, sorted by rank and start."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[0], columns[3]))
    return Events(*(column[order] for column in columns))
