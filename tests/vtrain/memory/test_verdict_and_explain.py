from __future__ import annotations

import numpy as np
import pytest

from vtrain.errors import UserInputError
from vtrain.memory import (
    max_micro_batch,
    memory_breakdown,
    memory_limit_bytes,
    memory_timeline,
    safe_limit_bytes,
    verdict,
    why_not,
)
from vtrain.memory.calibration import fit_memory_site
from vtrain.memory.feasibility import area_under_curve
from vtrain.memory.rows import Parts
from vtrain.memory.timeline import BACKWARD, FORWARD, LOSS, STEP, stage_events
from vtrain.models import load_model
from vtrain.plan import Plan
from vtrain.presets import load_stack

STACK = load_stack("megatron-core-2025")
LLAMA_70B = load_model("llama3-70b").architecture
GIB = 2.0**30


def test_limit_is_nine_tenths_of_what_the_context_leaves() -> None:
    """The design's default limit."""
    assert memory_limit_bytes(80e9, STACK) == pytest.approx(0.9 * (80e9 - STACK.context_bytes))


@pytest.mark.parametrize(
    ("share", "word"), [(0.5, "fits"), (0.89, "fits"), (0.93, "tight"), (0.97, "does not fit")]
)
def test_word_follows_the_share(share: float, word: str) -> None:
    """Up to 90 % fits, up to 95 % is tight."""
    peak = share * (80e9 - STACK.context_bytes)
    assert verdict(peak, 80e9, STACK).verdict == word


def test_probability_falls_with_the_peak_and_fragmentation_is_named() -> None:
    """Near the limit reserve decides: allocated memory fits, reserved may not."""
    usable = 80e9 - STACK.context_bytes
    answers = [verdict(s * usable, 80e9, STACK) for s in (0.5, 0.85, 0.92, 0.98, 1.1)]
    odds = [a.probability for a in answers]
    assert odds == sorted(odds, reverse=True)
    assert odds[0] > 0.999
    assert odds[-1] < 0.01
    assert answers[2].fragmentation_risk
    assert not answers[0].fragmentation_risk
    assert safe_limit_bytes(80e9, STACK) <= memory_limit_bytes(80e9, STACK)


def test_a_plan_that_fits_needs_no_explanation() -> None:
    """Nothing is explained where nothing is wrong."""
    plan = Plan(tp=8, pp=8, dp=2, global_batch_size=64, sequence_parallel=True)
    assert why_not(LLAMA_70B, STACK, plan, device_memory_bytes=80e9, seq_length=4096) is None


def test_explanation_names_item_excess_and_changes_that_fit() -> None:
    """Every fix fits, costs what the clock says, and the breaking item passes the limit."""
    plan = Plan(tp=4, pp=2, dp=8, global_batch_size=512, micro_batch_size=2, sequence_parallel=True)
    clock = {"none": 10.0, "selective": 10.5, "full": 13.0}
    answer = why_not(
        LLAMA_70B, STACK, plan, device_memory_bytes=80e9, seq_length=8192,
        is_valid=lambda p: p.tp <= 8, step_time_s=lambda p: clock[p.recompute],
    )  # fmt: skip
    assert answer is not None
    limit = memory_limit_bytes(80e9, STACK)
    assert answer.over_bytes == pytest.approx(answer.stage.peak_bytes - limit)
    assert answer.breaking_item in answer.stage.items_bytes
    assert "over" in answer.sentence
    assert answer.fixes
    for fix in answer.fixes:
        stages = memory_breakdown(LLAMA_70B, STACK, fix.plan, seq_length=8192)
        assert max(s.peak_bytes for s in stages) == pytest.approx(fix.peak_bytes)
        assert fix.peak_bytes <= limit
        assert fix.plan.tp <= 8
        assert fix.plan.global_batch_size == plan.global_batch_size
        assert fix.step_time_cost == pytest.approx(clock[fix.plan.recompute] / 10.0 - 1.0)


def test_largest_and_fastest_micro_batch_differ() -> None:
    """The largest that fits is the last safe one; the fastest is what the clock says (PC-78)."""
    plan = Plan(tp=8, pp=4, dp=4, global_batch_size=512, sequence_parallel=True)
    seconds = {1: 12.0, 2: 11.0, 4: 11.5, 8: 13.0}
    answer = max_micro_batch(
        load_model("llama3-8b").architecture, STACK, plan, device_memory_bytes=80e9,
        seq_length=8192, step_time_s=lambda p: seconds.get(p.micro_batch_size, 20.0),
    )  # fmt: skip
    assert answer.largest is not None
    assert answer.fastest is not None
    assert answer.fastest.size == 2
    assert answer.largest.size > 2
    sizes = [o.peak_bytes for o in answer.options]
    assert sizes == sorted(sizes)
    above = [o for o in answer.options if o.size > answer.largest.size]
    assert not any(o.safe for o in above)


@pytest.mark.parametrize(("rank", "expected"), [(0, 3 * 2 + 4), (3, 4)])
def test_interleaved_warm_up_is_megatrons(rank: int, expected: int) -> None:
    """(p - rank - 1) x 2 + (v - 1) x p forward passes come first (Megatron-LM#169)."""
    plan = Plan(pp=4, virtual_stages=2, global_batch_size=16)
    order = stage_events(plan, rank)
    order = order[order != LOSS]
    first_backward = int(np.flatnonzero(order == BACKWARD)[0])
    assert first_backward == expected + 1
    assert (order == FORWARD).sum() == (order == BACKWARD).sum() == 16 * 2
    assert order[-1] == STEP


def test_timeline_refuses_a_stage_that_does_not_exist() -> None:
    """The nearest stage is named."""
    with pytest.raises(UserInputError, match="nearest valid: 3"):
        memory_timeline(LLAMA_70B, STACK, Plan(pp=4, global_batch_size=8), seq_length=2048, stage=9)


def test_unexplained_constant_is_found_again() -> None:
    """A site that holds 2 GiB more than every item is told so, not scaled (PC-52)."""
    parts = [
        Parts(standing=s * GIB, working=w * GIB, fixed=0.0)
        for s, w in [(10, 2), (10, 20), (40, 4), (30, 25), (5, 5), (20, 1), (60, 10), (15, 30)]
    ]
    site = fit_memory_site(parts, [p.total + 2 * GIB for p in parts], noise=0.01)
    assert site.unexplained_bytes == pytest.approx(2 * GIB, rel=0.1)
    assert site.standing == pytest.approx(1.0, abs=0.02)
    assert site.working == pytest.approx(1.0, abs=0.02)


def test_calibration_refuses_nothing_to_fit() -> None:
    """No rows, no factors."""
    with pytest.raises(UserInputError, match="positive peak"):
        fit_memory_site([], [])


def test_area_under_curve_counts_ties_half() -> None:
    """Two equal sets cannot be told apart; a shifted one can."""
    ones = np.ones(5)
    assert area_under_curve(ones, ones) == 0.5
    assert area_under_curve(ones + 1, ones) == 1.0
