"""The order in which every rank works through its tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.schedule import (
    BACKWARD,
    FORWARD,
    WEIGHT_GRADIENT,
    Interleaved,
    OneFOneB,
    Schedule,
    make_schedule,
    peak_in_flight,
    rank_order,
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ranks = draw(st.integers(1, 9))
    name = draw(st.sampled_from(["1f1b", "gpipe", "zb-h1", "interleaved"]))
    if name == "interleaved":
        ranks = max(ranks, 2)
        return make_schedule(
            "1f1b",
            ranks=ranks,
            chunks=draw(st.integers(2, 4)),
            micro_batches=ranks * draw(st.integers(1, 6)),
        )
    return make_schedule(name, ranks=ranks, chunks=1, micro_batches=draw(st.integers(1, 30)))


def steps(schedule: Schedule, rank: int) -> list[tuple[int, int, int]]:
    order = rank_order(schedule, rank)
    return list(
        zip(order.kind.tolist(), order.micro_batch.tolist(), order.chunk.tolist(), strict=True)
    )


@given(schedules())
@settings(max_examples=150, deadline=None)
def test_every_task_runs_exactly_once(schedule: Schedule) -> None:
    """A rank runs each kind of task once for each micro-batch and chunk."""
    kinds = 3 if schedule.splits_backward else 2
    for rank in range(schedule.ranks):
        tasks = steps(schedule, rank)
        assert len(set(tasks)) == len(tasks)
        assert len(tasks) == kinds * schedule.micro_batches * schedule.chunks


@given(schedules())
@settings(max_examples=100, deadline=None)
def test_backward_follows_forward_and_weight_gradient_follows_backward(schedule: Schedule) -> None:
    """No rank runs a backward before its forward, or a weight gradient before its backward."""
    for rank in range(schedule.ranks):
        place = {task: at for at, task in enumerate(steps(schedule, rank))}
        for (kind, micro_batch, chunk), at in place.items():
            if kind == BACKWARD:
                assert place[FORWARD, micro_batch, chunk] < at
            elif kind == WEIGHT_GRADIENT:
                assert place[BACKWARD, micro_batch, chunk] < at


@given(schedules())
@settings(max_examples=100, deadline=None)
def test_the_warm_up_is_what_precedes_the_first_backward(schedule: Schedule) -> None:
    """The first backward comes after the warm-up and, where 1F1B alternates, one more forward."""
    for rank in range(schedule.ranks):
        kinds = rank_order(schedule, rank).kind
        first_backward = int(np.flatnonzero(kinds == BACKWARD)[0])
        warm = schedule.warm_up(rank)
        assert first_backward in (warm, warm + 1)


@pytest.mark.parametrize(("ranks", "chunks"), [(4, 2), (8, 3), (2, 5)])
def test_interleaved_warm_up_is_megatrons(ranks: int, chunks: int) -> None:
    """Rank r warms up with (p - r - 1) x 2 + (v - 1) x p forwards (Megatron-LM issue 169)."""
    schedule = Interleaved(ranks=ranks, chunks=chunks, micro_batches=8 * ranks)
    for rank in range(ranks):
        assert schedule.warm_up(rank) == (ranks - rank - 1) * 2 + (chunks - 1) * ranks


def test_interleaved_order_of_a_small_pipeline() -> None:
    """Two ranks, two chunks, four micro-batches: groups of two, chunk by chunk."""
    schedule = Interleaved(ranks=2, chunks=2, micro_batches=4)
    text = " ".join(f"{'FB'[kind]}{mb}.{chunk}" for kind, mb, chunk in steps(schedule, 1))
    assert text == (
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"
    )


def test_1f1b_order_of_a_small_pipeline() -> None:
    """Rank 0 of three warms up with two forwards and then alternates."""
    text = " ".join(
        f"{'FB'[kind]}{mb}" for kind, mb, _ in steps(OneFOneB(ranks=3, micro_batches=4), 0)
    )
    assert text == "F0 F1 F2 B0 F3 B1 B2 B3"


def test_zero_bubble_order_keeps_weight_gradients_for_the_end() -> None:
    """Rank r of ZB-H1 runs weight gradients r micro-batches late."""
    schedule = make_schedule("zb-h1", ranks=3, chunks=1, micro_batches=4)
    text = " ".join(f"{'FBW'[kind]}{mb}" for kind, mb, _ in steps(schedule, 2))
    assert text == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_activations_in_flight(ranks: int, chunks: int) -> None:
    """Rank 0 holds p micro-batches; 1 + (p - 1) / (p v) times as many layers if interleaved.

    Korthikanti et al. 2022 (arXiv 2205.05198) section 4.2.3; the same table in
    deepseek-ai/DualPipe issue 15.
    """
    schedule = make_schedule("1f1b", ranks=ranks, chunks=chunks, micro_batches=4 * ranks)
    held = peak_in_flight(schedule, 0) / (ranks * chunks)
    assert held == pytest.approx(1.0 if chunks == 1 else 1 + (ranks - 1) / (ranks * chunks))


def test_zero_bubble_holds_no_more_than_1f1b() -> None:
    """ZB-H1 frees activations of the input gradient as early as 1F1B does."""
    for rank in range(6):
        counts = [
            peak_in_flight(make_schedule(name, ranks=6, chunks=1, micro_batches=20), rank)
            for name in ("1f1b", "zb-h1")
        ]
        assert counts[0] == counts[1] == 6 - rank


def test_gpipe_holds_every_micro_batch() -> None:
    """GPipe runs every forward before the first backward."""
    assert peak_in_flight(make_schedule("gpipe", ranks=3, chunks=1, micro_batches=11), 1) == 11


def test_an_unfilled_group_is_refused() -> None:
    """Interleaving needs whole groups of pp micro-batches, and says which count is near."""
    with pytest.raises(UserInputError, match="multiple of pp=4; nearest valid: 8"):
        Interleaved(ranks=4, chunks=2, micro_batches=9)
