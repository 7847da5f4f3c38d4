"""Korthikanti et al. 2022 (arXiv 2205.05198): activation memory, term by term."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vtrain.architecture import Architecture
from vtrain.memory.activations import layer_activations
from vtrain.memory.breakdown import every_stage
from vtrain.memory.stage import Sizes, shared_terms
from vtrain.plan import Plan, Structure
from vtrain.presets import load_stack
from vtrain.stack import Stack

# Table 3: heads, hidden, layers, tensor and pipeline parallel size, interleaving, batch of one
# micro-batch; sequence 2,048 and vocabulary 51,200 throughout.
TABLE_3 = {
    "22B": (64, 6144, 48, 8, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 8, 3, 1),
    "530B": (128, 20480, 105, 8, 35, 3, 1),
    "1T": (160, 25600, 128, 8, 64, 1, 1),
}
S, V = 2048, 51_200


def gpt(heads: int, hidden: int, layers: int) -> Architecture:
    return Architecture(
        num_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=heads, head_dim=hidden // heads, ffn_hidden_size=4 * hidden,
        gated_mlp=False, vocab_size=V, tied_embeddings=True, position="learned", max_positions=S,
        norm="layernorm", attention_qkv_bias=True, attention_output_bias=True, mlp_bias=True,
    )  # fmt: skip


def stack() -> Stack:
    return replace(load_stack("megatron-lm-2022"), vocab_multiple=128)


def layer_bytes(name: str, recompute: str, *, sequence_parallel: bool) -> tuple[float, int, int]:
    heads, hidden, layers, tp, _, _, batch = TABLE_3[name]
    one = np.ones(1)
    sizes = Sizes(one * tp, one, one, one, one, one * batch, one)
    structure = Structure(recompute, "none", sequence_parallel, "1f1b")
    shared = shared_terms(gpt(heads, hidden, layers), stack(), structure, sizes, S)
    return float(shared.layer_kept[0]), hidden, tp


@pytest.mark.parametrize("name", TABLE_3)
@pytest.mark.parametrize(
    ("recompute", "sequence_parallel"),
    [("none", False), ("none", True), ("selective", False), ("selective", True), ("full", False)],
)
def test_layer_formulas_of_table_2_are_exact(
    name: str, recompute: str, sequence_parallel: bool
) -> None:
    """Activations of one layer equal the paper's Table 2 to the byte."""
    got, h, t = layer_bytes(name, recompute, sequence_parallel=sequence_parallel)
    a, b = TABLE_3[name][0], TABLE_3[name][6]
    sbh = S * b * h
    scores = 5 * a * S / (h * t)
    expected = {
        ("none", False): sbh * (10 + 24 / t + scores),
        ("none", True): sbh * (34 / t + scores),
        ("selective", False): sbh * (10 + 24 / t),
        ("selective", True): sbh * 34 / t,
        ("full", False): sbh * 2,
    }[recompute, sequence_parallel]
    assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", TABLE_3)
@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_first_stage_sum_is_equation_5_with_input_and_output(name: str, recompute: str) -> None:
    """Stage 0 holds sbhL/t (34 + 5as/h)(1 + (p-1)/(pv)) and the embedding's dropout masks."""
    a, h, layers, t, p, v, b = TABLE_3[name]
    plan = Plan(
        tp=t, pp=p, virtual_stages=v, micro_batch_size=b, global_batch_size=b * 4 * p,
        recompute=recompute, sharding="none", sequence_parallel=True,
    )  # fmt: skip
    memory, _ = every_stage(gpt(a, h, layers), stack(), plan, seq_length=S)
    per_token = 34 + (5 * a * S / h if recompute == "none" else 0)
    # Equation 5; section 4.2.2 gives the interleaved factor.
    factor = 1 + (p - 1) / (p * v) if v > 1 else 1
    masks = S * b * h * p / t
    expected = S * b * h * layers / t * per_token * factor + masks
    assert float(memory.row(0).activations) == pytest.approx(expected, rel=1e-12)


def test_output_layer_adds_norm_projection_and_fp32_logits() -> None:
    """Section 4.2.3: without pipeline the ends add 4 sbh/t (1 + v/h)."""
    a, h, layers, t, _, _, b = TABLE_3["22B"]
    plan = Plan(
        tp=t, micro_batch_size=b, global_batch_size=b, sharding="none", sequence_parallel=True
    )
    plain = replace(stack(), activations=replace(stack().activations, whole_buffers=0.0))
    memory, _ = every_stage(gpt(a, h, layers), plain, plan, seq_length=S)
    expected = 4 * S * b * h / t * (1 + V / h)
    assert float(memory.row(0).loss) == pytest.approx(expected, rel=1e-12)


def test_selective_recompute_drops_only_the_scores() -> None:
    """What selective recomputation frees is exactly the 5 a s term."""
    shape = gpt(96, 12288, 96)
    none = layer_activations(shape, stack(), "none", S, sequence_parallel=True).kept
    some = layer_activations(shape, stack(), "selective", S, sequence_parallel=True)
    assert none.split - some.kept.split == 5 * 96 * S
    assert some.recomputed.split == 5 * 96 * S
