"""Architecture: exact parameters, FLOPs, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.architecture import (
    Architecture,
    default_architecture,
    default_ffn_hidden_size,
    padded_vocab_size,
)
from vtrain.errors import UserInputError

LLAMA = default_architecture(hidden_size=4096, num_layers=32, ffn_hidden_size=14336)
SHAPES = st.builds(
    default_architecture,
    hidden_size=st.integers(1, 128).map(lambda n: 128 * n),
    num_layers=st.integers(1, 128),
    vocab_size=st.integers(1_000, 300_000),
)


def gpt(layers: int, hidden: int, heads: int, vocab: int, positions: int) -> Architecture:
    """A GPT-3-like block: learned positions, biases, tied head."""
    return Architecture(
        num_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=heads, head_dim=hidden // heads, ffn_hidden_size=4 * hidden,
        gated_mlp=False, vocab_size=vocab, tied_embeddings=True, position="learned",
        max_positions=positions, norm="layernorm", attention_qkv_bias=True,
        attention_output_bias=True, mlp_bias=True,
    )  # fmt: skip


@given(
    layers=st.integers(1, 200),
    heads=st.integers(1, 256),
    vocab=st.integers(1_000, 300_000),
    seq=st.sampled_from([1024, 2048, 4096]),
)
def test_gpt_parameters_follow_narayanan(layers: int, heads: int, vocab: int, seq: int) -> None:
    """12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)) of arXiv 2104.04473 eq. 2, plus the final norm."""
    hidden = 64 * heads
    expected = 12 * layers * hidden**2 + 13 * layers * hidden + (vocab + seq) * hidden
    assert gpt(layers, hidden, heads, vocab, seq).parameters == expected + 2 * hidden


@given(SHAPES)
def test_training_flops_are_6n_plus_12lsh(shape: Architecture) -> None:
    """Six FLOPs a matrix weight and 12 L s (heads x head size) of attention (PaLM, appendix B)."""
    seq = 4096
    weights = (
        shape.parameters_non_embedding
        - (2 * shape.num_layers + 1) * shape.hidden_size
        + shape.vocab_size * shape.hidden_size
    )
    attention = 12 * shape.num_layers * seq * shape.query_size
    assert shape.training_flops_per_token(seq) == pytest.approx(6 * weights + attention, rel=1e-12)


def test_flops_follow_megatron() -> None:
    """96 B s l h^2 (1 + s/6h + V/16lh), arXiv 2104.04473 eq. 3, holds one backward recompute;
    without it three quarters of that."""
    model, seq, batch = gpt(96, 12288, 96, 51200, 2048), 2048, 1536
    layers, hidden, vocab = 96, 12288, 51200
    full = (
        96
        * batch
        * seq
        * layers
        * hidden**2
        * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))
    )
    # Eq. 3 takes the head's backward as twice its forward and recomputes the layers only.
    head = 6 * batch * seq * hidden * vocab
    expected = (full - head) * 3 / 4 + head
    ours = batch * seq * model.training_flops_per_token(seq)
    assert ours == pytest.approx(expected, rel=1e-12)


@given(SHAPES, st.integers(128, 1 << 17))
def test_causal_counts_half_the_scores(shape: Architecture, seq: int) -> None:
    """Causal FLOPs are lower by half of the attention term and nothing else."""
    half = 2.0 * seq * shape.query_size * shape.num_layers
    full = shape.forward_flops_per_token(seq)
    assert full - shape.forward_flops_per_token(seq, causal=True) == pytest.approx(half, rel=1e-9)
    assert shape.training_flops_per_token(seq) == pytest.approx(3 * full)


@given(SHAPES)
def test_parameters_split_exactly(shape: Architecture) -> None:
    """Embedding and non-embedding parameters make up all of them; tying saves one table."""
    assert shape.parameters == shape.parameters_embedding + shape.parameters_non_embedding
    tied = replace(shape, tied_embeddings=True)
    assert shape.parameters - tied.parameters == shape.vocab_size * shape.hidden_size


def test_default_block() -> None:
    """The default is Llama's: SwiGLU of 8/3 width, 8 key-value heads from width 4,096, else 4."""
    assert default_ffn_hidden_size(4096) == 11008  # Llama 7B
    assert default_ffn_hidden_size(5120) == 13824  # Llama 13B
    assert default_architecture(hidden_size=8192, num_layers=80).num_key_value_heads == 8
    assert default_architecture(hidden_size=2048, num_layers=16).num_key_value_heads == 4
    assert default_architecture(hidden_size=640, num_layers=4).num_key_value_heads == 1
    assert LLAMA.parameters == 8_030_261_248  # Llama 3 8B


def test_vocabulary_padding() -> None:
    """Megatron pads to a multiple of 128 x tp: 50,257 becomes 50,304 and, at tp = 8, 51,200."""
    assert padded_vocab_size(50257, 1) == 50304
    assert padded_vocab_size(50257, 8) == 51200
    assert padded_vocab_size(51200, 8) == 51200


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1"),
        ({"num_layers": 2.0}, "num_layers must be a whole number"),
        ({"num_layers": True}, "num_layers must be a whole number"),
        ({"num_key_value_heads": 5}, "nearest valid: num_key_value_heads=4"),
        ({"position": "sinus"}, "one of learned, rotary, alibi, none"),
        ({"norm": "batch"}, "one of layernorm, rmsnorm"),
        ({"qk_norm": "maybe"}, "one of none, head, full"),
        ({"position": "learned"}, "learned positions need max_positions > 0"),
        ({"max_positions": 2048}, "learned positions need max_positions > 0"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, object], rule: str) -> None:
    """A shape that cannot exist is refused with the rule and the way out."""
    with pytest.raises(UserInputError, match=rule):
        replace(LLAMA, **change)


def test_default_needs_whole_heads() -> None:
    """A width that is no multiple of the head size is refused with the nearest one."""
    with pytest.raises(UserInputError, match="nearest valid: hidden_size=4096"):
        default_architecture(hidden_size=4100, num_layers=2)
