"""A timeline as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: Trace Event Format (Google, "Trace Event Format" document): complete events "X", flow
events "s" and "f", counters "C", metadata "M"; times in microseconds. Each pipeline rank shown is
one process with one track. GPUs of one stage do the same at the same time, so one stands for all
of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtrain.errors import UserInputError
from vtrain.files import write_text
from vtrain.schedule.tasks import BACKWARD, FORWARD
from vtrain.simulation.events import COMMUNICATION, SPAN_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from vtrain.simulation.timeline import Timeline

    Event = dict[str, Any]

_TRACK = 0
_SKIPPED = "not drawn"
# More tracks than this are tiresome to scroll; the ends and the middle show what differs.
_SHOWN = 8


class RankMemory(NamedTuple):
    """What one GPU of a pipeline rank holds.

    Attributes:
        standing_bytes: weights, gradients, optimizer state and buffers.
        chunk_bytes: activations of one micro-batch in one chunk of layers.
    """

    standing_bytes: float
    chunk_bytes: float


def representative_ranks(ranks: int, shown: int = _SHOWN) -> list[int]:
    """Return the pipeline ranks worth a track: all of few, else both ends and the middle."""
    if ranks <= shown:
        return list(range(ranks))
    head, tail = (shown + 1) // 3, shown // 3
    middle = (ranks - (shown - head - tail)) // 2
    return [
        *range(head),
        *range(middle, middle + shown - head - tail),
        *range(ranks - tail, ranks),
    ]


def trace_document(
    timeline: Timeline,
    *,
    ranks: Sequence[int] | None = None,
    memory: Mapping[int, RankMemory] | None = None,
) -> dict[str, Any]:
    """Return the trace as a JSON-ready document.

    Args:
        timeline: from `vtrain.simulate.simulate`.
        ranks: pipeline ranks to show; `representative_ranks` when None.
        memory: adds a memory counter to the ranks it names (standing bytes and activations held,
            without the working memory of single operators).

    Raises:
        UserInputError: a rank that the pipeline does not have.
    """
    pp = timeline.plan.pp
    shown = representative_ranks(pp) if ranks is None else sorted(set(ranks))
    for rank in shown:
        if not 0 <= rank < pp:
            raise UserInputError(
                f"pipeline rank {rank} does not exist at pp={pp}", hint=f"nearest valid: {pp - 1}"
            )
    events: list[Event] = []
    for rank in shown:
        events += _names(timeline, rank)
        events += _spans(timeline, rank)
        events += _skips(timeline, rank)
        if memory is not None and rank in memory:
            events += _memory(timeline, rank, memory[rank])
    events += _flows(timeline, set(shown))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "step_time_s": timeline.step_time_s,
            "pipeline_s": timeline.pipeline_s,
            "ranks": shown,
            "breakdown_s": {
                name: [float(seconds[rank]) for rank in shown]
                for name, seconds in timeline.breakdown_s.items()
            },
        },
    }


def write_trace(
    path: str | Path,
    timeline: Timeline,
    *,
    ranks: Sequence[int] | None = None,
    memory: Mapping[int, RankMemory] | None = None,
) -> int:
    """Write the trace of a timeline to a file, whole or not at all; arguments as `trace_document`.

    Returns:
        How many events it holds.

    Raises:
        UserInputError: a file that cannot be written, or an unknown rank.
    """
    document = trace_document(timeline, ranks=ranks, memory=memory)
    write_text(path, json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")
    return len(document["traceEvents"])


def _names(timeline: Timeline, rank: int) -> list[Event]:
    plan, layers = timeline.plan, int(timeline.layers[rank].sum())
    gpu = rank * plan.tp * plan.cp * plan.dp
    name = f"stage {rank} (GPU {gpu}, {layers} layers)"
    return [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}},
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": _TRACK, "args": {"name": "work"}},
    ]


def _spans(timeline: Timeline, rank: int) -> list[Event]:
    events = timeline.events
    mine = events.rank == rank
    columns = (
        events.start_s[mine], events.end_s[mine], events.kind[mine], events.micro_batch[mine],
        events.chunk[mine],
    )  # fmt: skip
    spans = []
    for start, end, code, micro_batch, chunk in zip(*(c.tolist() for c in columns), strict=True):
        kind = SPAN_KINDS[code]
        span: Event = {
            "ph": "X",
            "name": kind if micro_batch < 0 else f"{kind} {micro_batch}",
            "cat": "communication" if kind in COMMUNICATION else "compute",
            "pid": rank,
            "tid": _TRACK,
            "ts": start * 1e6,
            "dur": (end - start) * 1e6,
            "args": {"kind": kind},
        }
        if micro_batch >= 0:
            span["args"] |= {"micro_batch": micro_batch, "chunk": chunk}
        spans.append(span)
    return spans


def _skips(timeline: Timeline, rank: int) -> list[Event]:
    """One span for each stretch that was not played; its args say what it holds."""
    return [
        {
            "ph": "X",
            "name": f"{skip.micro_batches} micro-batches like the last ones",
            "cat": _SKIPPED,
            "pid": rank,
            "tid": _TRACK,
            "ts": float(skip.start_s[rank]) * 1e6,
            "dur": float(skip.end_s[rank] - skip.start_s[rank]) * 1e6,
            "args": {
                "kind": _SKIPPED,
                "micro_batches": skip.micro_batches,
                "seconds": {
                    name: skip.micro_batches * float(seconds[rank])
                    for name, seconds in timeline.micro_batch_s.items()
                },
            },
        }
        for skip in timeline.skips
    ]


def _memory(timeline: Timeline, rank: int, memory: RankMemory) -> list[Event]:
    time, held = timeline.activations_held(rank)
    level = memory.standing_bytes + held.sum(axis=1) * memory.chunk_bytes
    moments = [(0.0, memory.standing_bytes), *zip(time.tolist(), level.tolist(), strict=True)]
    return [
        {"ph": "C", "name": "memory", "pid": rank, "ts": at * 1e6,
         "args": {"GiB": round(value / 2**30, 4)}}
        for at, value in moments
    ]  # fmt: skip


def _flows(timeline: Timeline, shown: set[int]) -> list[Event]:
    """Arrows from the end of a task to the task on another shown rank that takes its output."""
    played = timeline.played
    ranks, chunks = timeline.schedule.ranks, timeline.schedule.chunks
    stages = ranks * chunks
    stage = played.chunk * ranks + played.rank
    step = np.where(played.kind == FORWARD, 1, -1)
    target = stage + step
    moves = np.isin(played.kind, (FORWARD, BACKWARD)) & (target >= 0) & (target < stages)
    key = _key(played.kind, played.micro_batch, stage, stages)
    order = np.argsort(key)
    source = np.flatnonzero(moves)
    wanted = _key(played.kind[source], played.micro_batch[source], target[source], stages)
    place = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    taker = order[place]
    # Where a stretch was skipped, the task that takes a message may not have been played.
    found = key[taker] == wanted
    flows: list[Event] = []
    for number, (sender, receiver) in enumerate(
        zip(source[found].tolist(), taker[found].tolist(), strict=True)
    ):
        origin, destination = int(played.rank[sender]), int(played.rank[receiver])
        if origin == destination or not {origin, destination} <= shown:
            continue
        name = "activation" if played.kind[sender] == FORWARD else "gradient"
        common: Event = {"name": name, "cat": "message", "id": number, "tid": _TRACK}
        # A flow binds to the span that encloses it, so it leaves just before the task ends.
        length = float(played.end_s[sender] - played.start_s[sender])
        leaves = float(played.end_s[sender]) - 1e-6 * length
        arrives = float(played.start_s[receiver]) + 1e-6 * length
        flows.append({"ph": "s", "pid": origin, "ts": leaves * 1e6, **common})
        flows.append({"ph": "f", "bp": "e", "pid": destination, "ts": arrives * 1e6, **common})
    return flows


def _key(
    kind: npt.NDArray[np.int8],
    micro_batch: npt.NDArray[np.int64],
    stage: npt.NDArray[np.int64],
    stages: int,
) -> npt.NDArray[np.int64]:
    key: npt.NDArray[np.int64] = (micro_batch * stages + stage) * 2 + (kind == BACKWARD)
    return key
