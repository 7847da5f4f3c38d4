"""A design survives every file format it is written to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.architecture import Architecture, default_architecture
from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE, SHARDING, Plan


@st.composite
def designs(draw: st.DrawFn) -> Design:
    degree = st.sampled_from((1, 2, 3, 4, 8))
    dp, micro = draw(degree), draw(degree)
    batch = dp * micro * draw(st.integers(1, 40))
    tp = draw(degree)
    plan = Plan(
        tp=tp, pp=draw(degree), dp=dp, cp=draw(degree), virtual_stages=draw(degree),
        micro_batch_size=micro, global_batch_size=batch, recompute=draw(st.sampled_from(RECOMPUTE)),
        sharding=draw(st.sampled_from(SHARDING)), sequence_parallel=draw(st.booleans()),
    )  # fmt: skip
    if draw(st.booleans()):
        architecture = default_architecture(
            hidden_size=128 * draw(st.integers(4, 100)), num_layers=draw(st.integers(1, 100))
        )
    else:
        architecture = Architecture(
            num_layers=12, hidden_size=768, num_attention_heads=12, num_key_value_heads=12,
            head_dim=64, ffn_hidden_size=3072, gated_mlp=False, vocab_size=50_257,
            tied_embeddings=True, position="learned", max_positions=1024, norm="layernorm",
            attention_qkv_bias=True, attention_output_bias=True, mlp_bias=True, name="gpt2",
        )  # fmt: skip
    seq = draw(st.sampled_from((1024, 4096)))
    tokens = draw(st.none() | st.integers(1, 10_000).map(lambda s: s * batch * seq))
    return Design(
        architecture=architecture, plan=plan, cluster="h100-sxm-80g", stack="megatron-core-2025",
        seq_length=seq, tokens=tokens,
    )  # fmt: skip


@given(designs())
def test_row_round_trip(design: Design) -> None:
    """Design -> row -> JSON -> row -> design changes nothing."""
    row = json.loads(json.dumps(design.to_row()))
    assert Design.from_row(row) == design


@given(designs())
def test_csv_text_round_trip(design: Design) -> None:
    """The text cells of a CSV file read back as the same design."""
    cells = {k: "" if v is None else str(v) for k, v in design.to_row().items()}
    assert Design.from_row(cells) == design


def test_unknown_keys_are_ignored_and_contradictions_are_not() -> None:
    """Results beside a design do no harm; a GPU count that does not multiply out does."""
    plan = Plan(tp=2, dp=4, global_batch_size=8)
    design = Design(
        architecture=default_architecture(hidden_size=1024, num_layers=8), plan=plan,
        cluster="h100-sxm-80g", stack="megatron-core-2025", seq_length=4096,
    )  # fmt: skip
    row = design.to_row()
    assert Design.from_row({**row, "loss": 2.5, "budget": "$1"}) == design
    with pytest.raises(UserInputError, match="gpus=9 contradicts"):
        Design.from_row({**row, "gpus": 9})
    with pytest.raises(UserInputError, match="a design needs layers"):
        Design.from_row({k: v for k, v in row.items() if k != "layers"})
    with pytest.raises(UserInputError, match="must be a multiple"):
        Design.from_row({**row, "tokens": 8 * 4096 + 1})
