"""Utilisation in every dialect, against the code and figures people quote."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.mfu import DIALECTS, Work, explanations, utilizations
from vtrain.mfu_cli import mfu_command
from vtrain.models import load_model

H100 = 989e12
GPT2 = load_model("gpt2").architecture
LLAMA3_8B = load_model("llama3-8b").architecture
COUNTS = {dialect.name: dialect.count for dialect in DIALECTS}


def megatron(a: Architecture, seq_length: int, padded: int, *, causal: bool) -> float:
    """FLOPs a token as Megatron-LM spells them: 12 L h^2 ((1 + g/a + s/h) q/h + ...)."""
    h = a.hidden_size
    ratio = a.query_size / h
    mask = 0.5 if causal else 1.0
    attention = (1 + a.num_key_value_heads / a.num_attention_heads + mask * seq_length / h) * ratio
    mlp = a.ffn_hidden_size / h * (1.5 if a.gated_mlp else 1.0)
    return 12 * a.num_layers * h * h * (attention + mlp + padded / (2 * a.num_layers * h))


@pytest.mark.parametrize("model", ["gpt2", "gpt3-175b", "llama3-8b", "llama2-70b"])
def test_megatrons_own_form_gives_the_same(model: str) -> None:
    """Our sum over matrices equals the factored form of num_floating_point_operations."""
    a = load_model(model).architecture
    for tp, padded in ((1, -(-a.vocab_size // 128) * 128), (8, -(-a.vocab_size // 1024) * 1024)):
        work = Work(architecture=a, seq_length=2048, tp=tp)
        for name, causal in (("megatron-full", False), ("megatron", True)):
            assert COUNTS[name](work) == pytest.approx(
                megatron(a, 2048, padded, causal=causal), rel=1e-12
            )


def test_the_2021_formula_gives_the_same() -> None:
    """Narayanan et al. 2021: 72 B s L h^2 (1 + s/6h + V/12Lh) a step for GPT-3 (no recompute)."""
    a = load_model("gpt3-175b").architecture
    s, h, layers = 2048, a.hidden_size, a.num_layers
    published = 72 * layers * h**2 * (1 + s / (6 * h) + a.vocab_size / (12 * layers * h))
    assert COUNTS["vtrain"](Work(architecture=a, seq_length=s)) == pytest.approx(published)


def test_full_recompute_gives_the_2021_hardware_formula() -> None:
    """Narayanan et al. 2021, eq. 3: 96 B s L h^2 (1 + s/6h + V/16Lh) with full recomputation."""
    a = load_model("gpt3-175b").architecture
    s, h, layers = 2048, a.hidden_size, a.num_layers
    published = 96 * layers * h**2 * (1 + s / (6 * h) + a.vocab_size / (16 * layers * h))
    work = Work(architecture=a, seq_length=s, recompute="full")
    assert COUNTS["hfu"](work) == pytest.approx(published)


def test_nanogpt_prints_104_percent_on_an_h100() -> None:
    """PC-72: GPT-2 at a speed nanoGPT calls 104 % is 33 % of an H100's own dense peak."""
    per_token = 6 * (124_439_808 - 1024 * 768) + 12 * 12 * 12 * 64 * 1024
    speed = 1.04 * 312e12 / per_token
    rows = utilizations(
        Work(architecture=GPT2, seq_length=1024), tokens_per_s=speed, gpus=1,
        peak_flops_per_s=H100,
    )  # fmt: skip
    row = next(row for row in rows if row.dialect.name == "nanogpt")
    assert row.value == pytest.approx(1.04)
    assert "104.0% is impossible" in row.warning
    assert f"{speed:.4g} tokens/s" in row.warning
    assert "over this GPU's own peak 32.8%" in row.warning
    assert all(not other.warning for other in rows if other is not row)


def test_a_sparse_peak_is_recognised() -> None:
    """PC-72: 20 % against 40 %: the lower figure divides by the sparse peak."""
    work = Work(architecture=LLAMA3_8B, seq_length=8192)
    speed = 0.40 * 8 * H100 / COUNTS["megatron"](work)
    lines = explanations(0.20, work, tokens_per_s=speed, gpus=8, peaks_flops_per_s={"H100": H100})
    assert lines[0].startswith(("megatron over the sparse", "vtrain-causal over the sparse"))
    assert "20.0%" in lines[0]
    assert not explanations(
        0.017, work, tokens_per_s=speed, gpus=8, peaks_flops_per_s={"H100": H100}
    )


def test_impossible_values_show_the_arithmetic() -> None:
    """Tokens of one GPU taken for those of eight are flagged in every dialect."""
    work = Work(architecture=LLAMA3_8B, seq_length=8192)
    rows = utilizations(work, tokens_per_s=96_000, gpus=1, peak_flops_per_s=H100)
    assert all(row.value > 1 and "1 GPUs x" in row.warning for row in rows)


def test_torchtitan_leaves_the_token_table_out() -> None:
    """6 (N - N_embedding) + 12 L q s for Llama 3 8B at 8,192: 57.9 GFLOPs a token."""
    n = 8_030_261_248 - 128_256 * 4096
    expected = 6 * n + 12 * 32 * 32 * 128 * 8192
    assert COUNTS["torchtitan"](Work(architecture=LLAMA3_8B, seq_length=8192)) == expected


@given(
    seq_length=st.integers(1, 100_000), model=st.sampled_from(["gpt2", "llama3-8b", "llama2-70b"])
)
def test_dialects_keep_their_order(seq_length: int, model: str) -> None:
    """Causal never exceeds full; recomputation only adds; full adds most."""
    a = load_model(model).architecture
    work = Work(architecture=a, seq_length=seq_length)
    assert COUNTS["vtrain-causal"](work) < COUNTS["vtrain"](work)
    assert COUNTS["megatron"](work) < COUNTS["megatron-full"](work)
    assert COUNTS["palm-causal"](work) < COUNTS["palm"](work)
    none, selective, full = (
        COUNTS["hfu"](Work(architecture=a, seq_length=seq_length, recompute=r))
        for r in ("none", "selective", "full")
    )
    assert COUNTS["vtrain"](work) == none < selective < full


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "one throughput is needed"),
        (["--step-time", "3"], "--step-time with"),
        (["--tokens-per-second", "1", "--tokens-per-second-per-gpu", "1"], "one throughput"),
        (["--tokens-per-second", "-1"], "tokens_per_s must be finite and positive"),
        (["--step-time", "0", "--global-batch", "8"], "--step-time must be positive"),
        (["--tokens-per-second", "1", "--cluster", "V100", "--precision", "fp8"], "no fp8 peak"),
        (["--tokens-per-second", "1", "--peak", "0"], "peak_flops_per_s must be finite"),
        (["--tokens-per-second", "1", "--reported", "0"], "positive percentage"),
    ],
)
def test_bad_requests(arguments: list[str], what: str) -> None:
    """Every mistake on the command line is one line."""
    with pytest.raises(UserInputError, match=what):
        CliRunner().invoke(
            mfu_command, ["--model", "gpt2", "--gpus", "8", *arguments], catch_exceptions=False
        )


def test_the_command_prints_every_dialect() -> None:
    """--json and text hold the same dialects, each with formula and source."""
    arguments = ["--model", "llama3-8b", "--gpus", "64", "--step-time", "8", "--global-batch",
                 "512", "--recompute", "full", "--reported", "40"]  # fmt: skip
    shown = CliRunner().invoke(mfu_command, arguments, catch_exceptions=False).stdout
    document = json.loads(
        CliRunner().invoke(mfu_command, [*arguments, "--json"], catch_exceptions=False).stdout
    )
    assert [row["dialect"] for row in document["rows"]] == [d.name for d in DIALECTS]
    assert all(row["formula"] and row["source"] for row in document["rows"])
    assert all(row["dialect"] in shown for row in document["rows"])
    assert document["tokens_per_s"] == 512 * 8192 / 8
    assert "reported 40.0%" in shown
    assert "a percentage is meant" not in shown
    share = [*arguments[:-1], "0.41"]
    shown = CliRunner().invoke(mfu_command, share, catch_exceptions=False).output
    assert "reported 0.41%" in shown
    assert "write 41 for 41 %" in shown
