from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vtrain.memory.breakdown import every_stage
from vtrain.memory.parameters import rank_parameters
from vtrain.models import load_model, model_names
from vtrain.plan import Plan
from vtrain.presets import load_stack


@pytest.mark.parametrize("name", model_names())
def test_one_rank_holds_every_parameter_of_every_public_model(name: str) -> None:
    """At tp = pp = 1 and an unpadded vocabulary the count is the architecture's, exactly."""
    shape = load_model(name).architecture
    p = rank_parameters(shape, 1, np.ones(1))
    total = shape.num_layers * p.layer + p.embedding + p.head - p.tied_head
    assert int(total[0]) == shape.parameters


@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-175b", "qwen2.5-14b", "bloom-176b"])
@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (4, 2), (8, 4)])
def test_ranks_together_hold_the_model_and_its_copies(name: str, tp: int, pp: int) -> None:
    """tp x the stages is the model, padding and replicated parameters counted as copies."""
    shape = load_model(name).architecture
    stack = load_stack("megatron-core-2025")
    plan = Plan(tp=tp, pp=pp, global_batch_size=8, sequence_parallel=True)
    memory, _ = every_stage(shape, stack, plan, seq_length=2048)
    held = tp * memory.parameters.sum()
    padding = -(-shape.vocab_size // (128 * tp)) * 128 * tp - shape.vocab_size
    tables = 2 if pp > 1 or not shape.tied_embeddings else 1
    copies = (padding * tables + (tables - 1) * shape.vocab_size * shape.tied_embeddings) * (
        shape.hidden_size
    )
    kv_copies = max(1, tp // shape.num_key_value_heads) - 1
    grouped = 2 * shape.hidden_size * shape.key_value_size * shape.num_layers * kv_copies
    replicated = held - shape.parameters - copies - grouped
    # What is left are norms, row-parallel biases and positions, held by every tp rank.
    whole = 2 * shape.norm_parameters * shape.num_layers + shape.norm_parameters
    assert replicated >= (tp - 1) * whole * 0.999
    assert replicated <= (tp - 1) * 0.001 * shape.parameters


@pytest.mark.parametrize(
    ("sharding", "dp", "expected"),
    [("none", 8, 18.0), ("zero1", 8, 6 + 12 / 8), ("zero2", 8, 2 + 16 / 8), ("zero3", 8, 18 / 8)],
)
def test_bytes_a_parameter_of_megatron_core(sharding: str, dp: int, expected: float) -> None:
    """18 bytes, 6 + 12/dp with the distributed optimizer (theoretical_memory_usage.py)."""
    shape = load_model("llama2-7b").architecture
    plan = Plan(dp=dp, global_batch_size=dp, sharding=sharding)
    memory, _ = every_stage(shape, load_stack("megatron-core-2025"), plan, seq_length=2048)
    row = memory.row(0)
    states = row.weights + row.gradients + row.optimizer
    assert float(states / row.parameters) == pytest.approx(expected)


def test_fsdp_keeps_sixteen_bytes_a_parameter_over_all_replicas() -> None:
    """FSDP2: fp32 shards of weight, gradient and Adam; 8B over 8 ranks is 14.96 GiB."""
    shape = load_model("llama3-8b").architecture
    plan = Plan(dp=8, global_batch_size=8, sharding="zero3")
    memory, _ = every_stage(shape, load_stack("torchtitan-2024"), plan, seq_length=2048)
    row = memory.row(0)
    states = float(row.weights + row.gradients + row.optimizer)
    assert states == pytest.approx(16 * shape.parameters / 8)


def test_hybrid_sharding_divides_by_its_group_only() -> None:
    """HSDP over groups of 8 keeps the bytes of 8 ranks however many replicas there are."""
    shape = load_model("llama3-8b").architecture
    base = load_stack("torchtitan-2024")
    hybrid = replace(base, state=replace(base.state, sharding_group=8))
    few = every_stage(
        shape, base, Plan(dp=8, global_batch_size=8, sharding="zero3"), seq_length=2048
    )[0]
    many = every_stage(
        shape, hybrid, Plan(dp=64, global_batch_size=64, sharding="zero3"), seq_length=2048
    )[0]
    assert float(many.row(0).optimizer) == float(few.row(0).optimizer)


def test_fp8_adds_weight_copies_instead_of_saving() -> None:
    """The fp8 weight and its transpose are kept beside the bf16 one (Transformer Engine)."""
    shape = load_model("llama3-8b").architecture
    half = load_stack("megatron-core-2025")
    plan = Plan(tp=4, global_batch_size=1, sequence_parallel=True)
    plain, fp8 = (
        every_stage(shape, stack, plan, seq_length=2048)[0].row(0)
        for stack in (half, replace(half, precision="fp8"))
    )
    matrices = shape.num_layers * shape.matmul_parameters_per_layer / 4
    assert float(fp8.weights - plain.weights) == pytest.approx(2.0 * matrices)
