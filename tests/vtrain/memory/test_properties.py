"""Invariants of the memory model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.architecture import Architecture
from vtrain.memory import memory_breakdown, memory_timeline, peak_memory
from vtrain.memory.breakdown import every_stage
from vtrain.plan import RECOMPUTE, SCHEDULES, SHARDING, Plan, Structure
from vtrain.presets import load_stack, stack_names
from vtrain.stack import LAYER_SPLITS, Stack

STACKS = {name: load_stack(name) for name in stack_names()}
POWERS = st.sampled_from([1, 2, 4, 8])
SEQ = 4096


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Shapes every degree up to 8 divides, with a vocabulary that pads equally."""
    return Architecture(
        num_layers=draw(st.sampled_from([8, 16, 32, 64])),
        hidden_size=(hidden := draw(st.sampled_from([1024, 2048, 4096]))),
        num_attention_heads=hidden // 128,
        num_key_value_heads=8,
        head_dim=128,
        ffn_hidden_size=hidden * draw(st.sampled_from([3, 4])),
        gated_mlp=draw(st.booleans()),
        vocab_size=1024 * draw(st.integers(16, 250)),
        tied_embeddings=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["none", "head"])),
    )


@st.composite
def plans(draw: st.DrawFn, *, schedules: tuple[str, ...] = SCHEDULES) -> Plan:
    schedule = draw(st.sampled_from(schedules))
    pp = draw(POWERS)
    dp, micro = draw(POWERS), draw(st.integers(1, 4))
    tp = draw(POWERS)
    return Plan(
        tp=tp, cp=draw(POWERS), pp=pp, dp=dp,
        virtual_stages=draw(st.sampled_from([1, 2])) if schedule == "1f1b" and pp > 1 else 1,
        micro_batch_size=micro, global_batch_size=dp * micro * pp * draw(st.integers(1, 5)),
        recompute=draw(st.sampled_from(RECOMPUTE)), sharding=draw(st.sampled_from(SHARDING)),
        sequence_parallel=tp > 1 and draw(st.booleans()), schedule=schedule,
    )  # fmt: skip


def stacks() -> st.SearchStrategy[Stack]:
    return st.builds(
        lambda name, split, fp8: replace(
            STACKS[name], layer_split=split,
            precision="fp8" if fp8 else STACKS[name].precision,
            state=replace(STACKS[name].state, fp8_copies=2.0),
        ),
        st.sampled_from(sorted(STACKS)), st.sampled_from(LAYER_SPLITS), st.booleans(),
    )  # fmt: skip


def states(shape: Architecture, stack: Stack, plan: Plan) -> float:
    memory, _ = every_stage(shape, stack, plan, seq_length=SEQ)
    return float((memory.weights + memory.gradients + memory.optimizer).max())


def peak(shape: Architecture, stack: Stack, plan: Plan, seq: int = SEQ) -> float:
    return float(every_stage(shape, stack, plan, seq_length=seq)[0].peak().max())


@settings(max_examples=60, deadline=None)
@given(architectures(), stacks(), plans())
def test_table_and_breakdown_are_one_physics(shape: Architecture, stack: Stack, plan: Plan) -> None:
    """The search's peak is the breakdown's maximum over stages, and so is the reserve."""
    stages = memory_breakdown(shape, stack, plan, seq_length=SEQ)
    structure = Structure(plan.recompute, plan.sharding, plan.sequence_parallel, plan.schedule)
    got = peak_memory(
        shape, stack, structure, tp=[plan.tp], cp=[plan.cp], pp=[plan.pp], dp=[plan.dp],
        virtual_stages=[plan.virtual_stages], micro_batch_size=[plan.micro_batch_size],
        num_micro_batches=[plan.num_micro_batches], seq_length=SEQ,
    )  # fmt: skip
    assert got.peak_bytes[0] == pytest.approx(max(s.peak_bytes for s in stages), rel=1e-12)
    assert got.reserved_bytes[0] == pytest.approx(max(s.reserved_bytes for s in stages), rel=1e-12)
    assert got.first_stage_bytes[0] == pytest.approx(stages[0].peak_bytes, rel=1e-12)
    heaviest = next(s for s in stages if s.heaviest)
    named = {0: heaviest.stage == 0, 2: heaviest.stage == plan.pp - 1}
    assert named.get(int(got.heaviest_stage[0]), 0 < heaviest.stage < plan.pp - 1)


@settings(max_examples=60, deadline=None)
@given(architectures(), stacks(), plans())
def test_items_sum_to_totals_and_heaviest_is_the_maximum(
    shape: Architecture, stack: Stack, plan: Plan
) -> None:
    """Items at the moment of the peak sum to it; one stage is named and none is heavier."""
    stages = memory_breakdown(shape, stack, plan, seq_length=SEQ)
    for stage in stages:
        assert sum(stage.items_bytes.values()) == pytest.approx(stage.peak_bytes, rel=1e-12)
        assert stage.moments_bytes[stage.moment] == stage.peak_bytes
        assert max(stage.moments_bytes.values()) == stage.peak_bytes
        assert min(stage.items_bytes.values()) >= 0.0
    assert sum(s.heaviest for s in stages) == 1
    assert next(s for s in stages if s.heaviest).peak_bytes == max(s.peak_bytes for s in stages)


@settings(max_examples=40, deadline=None)
@given(architectures(), stacks(), plans(schedules=("1f1b",)))
def test_states_never_rise_with_replicas_or_stages(
    shape: Architecture, stack: Stack, plan: Plan
) -> None:
    """Weights, gradients and optimizer of the heaviest rank fall or stay as dp or pp doubles."""
    stack = replace(stack, layer_split="even")
    before = states(shape, stack, plan)
    more_replicas = replace(plan, dp=2 * plan.dp, global_batch_size=2 * plan.global_batch_size)
    assert states(shape, stack, more_replicas) <= before * (1 + 1e-12)
    more_stages = replace(plan, pp=2 * plan.pp, virtual_stages=1)
    if more_stages.pp <= shape.num_layers:
        assert states(shape, stack, more_stages) <= before * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(architectures(), stacks(), plans())
def test_total_never_rises_with_tensor_parallelism_or_sharding(
    shape: Architecture, stack: Stack, plan: Plan
) -> None:
    """Doubling tp under sequence parallelism, and each step none, zero1, zero2, never costs."""
    plain = replace(plan, sequence_parallel=True)
    if plain.tp < 8:
        assert peak(shape, stack, replace(plain, tp=2 * plain.tp)) <= peak(shape, stack, plain) * (
            1 + 1e-12
        )
    levels = [peak(shape, stack, replace(plan, sharding=s)) for s in SHARDING[:3]]
    assert levels[0] >= levels[1] * (1 - 1e-12)
    assert levels[1] >= levels[2] * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(architectures(), st.sampled_from(["megatron-core-2025", "torchtitan-2024"]), plans(), POWERS)
def test_context_parallelism_of_n_with_n_times_the_sequence_changes_no_activation(
    shape: Architecture, name: str, plan: Plan, n: int
) -> None:
    """torchtitan measured 83.9, 84.2, 84.0 and 84.5 GiB at cp 1, 2, 4, 8 (H100, 8B, full)."""
    stack = STACKS[name]
    one, _ = every_stage(shape, stack, plan, seq_length=SEQ)
    many, _ = every_stage(shape, stack, replace(plan, cp=n * plan.cp), seq_length=n * SEQ)
    np.testing.assert_allclose(many.activations, one.activations, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(architectures(), plans(schedules=("1f1b",)))
def test_full_pipeline_keeps_stage_0_activations_constant_in_pp(
    shape: Architecture, plan: Plan
) -> None:
    """1F1B with pp dividing the layers and micro-batches >= pp: p x L/p layers are held."""
    stack = STACKS["megatron-core-2025"]
    plan = replace(plan, virtual_stages=1, global_batch_size=plan.dp * plan.micro_batch_size * 16)
    held = [
        float(every_stage(shape, stack, replace(plan, pp=pp), seq_length=SEQ)[0].activations[0])
        for pp in (1, 2, 4, 8)
    ]
    np.testing.assert_allclose(held, held[0], rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(architectures(), stacks(), plans(), st.integers(0, 7))
def test_timeline_peaks_where_the_breakdown_does(
    shape: Architecture, stack: Stack, plan: Plan, rank: int
) -> None:
    """The largest event is the stage's peak, and at the end only the standing bytes remain."""
    rank %= plan.pp
    line = memory_timeline(shape, stack, plan, seq_length=SEQ, stage=rank)
    stage = memory_breakdown(shape, stack, plan, seq_length=SEQ)[rank]
    assert line.peak_bytes == pytest.approx(stage.peak_bytes, rel=1e-9)
    assert line.after_bytes[-1] == pytest.approx(line.standing_bytes)
    assert line.in_flight[-1] == 0
    assert line.in_flight.min() >= 0


@settings(max_examples=40, deadline=None)
@given(architectures(), stacks(), plans())
def test_recomputing_more_never_keeps_more(shape: Architecture, stack: Stack, plan: Plan) -> None:
    """Kept activations fall or stay from none to selective to full."""
    kept = [
        every_stage(shape, stack, replace(plan, recompute=r), seq_length=SEQ)[0].activations.max()
        for r in RECOMPUTE
    ]
    assert kept[0] >= kept[1] >= kept[2]
