"""Pipeline schedules: who runs which task when."""

from vtrain.schedule.gpipe import GPipe
from vtrain.schedule.one_f_one_b import Interleaved, OneFOneB
from vtrain.schedule.tasks import (
    BACKWARD,
    FORWARD,
    KIND_NAMES,
    WEIGHT_GRADIENT,
    Schedule,
    Segment,
    Tasks,
    peak_in_flight,
    rank_order,
)
from vtrain.schedule.zero_bubble import ZeroBubbleH1

__all__ = [
    "BACKWARD",
    "FORWARD",
    "KIND_NAMES",
    "WEIGHT_GRADIENT",
    "GPipe",
    "Interleaved",
    "OneFOneB",
    "Schedule",
    "Segment",
    "Tasks",
    "ZeroBubbleH1",
    "make_schedule",
    "peak_in_flight",
    "rank_order",
]


def make_schedule(name: str, *, ranks: int, chunks: int, micro_batches: int) -> Schedule:
    """Return the schedule of a plan.

    Args:
        name: one of `vtrain.plan.SCHEDULES`; "1f1b" with several chunks is interleaved.
        ranks: pipeline ranks.
        chunks: chunks of layers on each rank.
        micro_batches: micro-batches of a step.
    """
    if name == "gpipe":
        return GPipe(ranks=ranks, micro_batches=micro_batches)
    if name == "zb-h1":
        return ZeroBubbleH1(ranks=ranks, micro_batches=micro_batches)
    if chunks > 1:
        return Interleaved(ranks=ranks, chunks=chunks, micro_batches=micro_batches)
    return OneFOneB(ranks=ranks, micro_batches=micro_batches)
