"""Attention: published rates, and limits of every kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.latency.attention import (
    flash_backward_seconds,
    flash_forward_seconds,
    unfused_attention_backward_seconds,
    unfused_attention_forward_seconds,
)
from vtrain.presets import device_names, load_device

SEQUENCES = np.array([512, 1024, 2048, 4096, 8192, 16384])


def _forward_tflops(name, generation, seq, rows=512, dim=128, *, causal=True):
    device = load_device(name)
    seconds = flash_forward_seconds(
        device.attention[generation], device.peak_flops["bf16"], rows, 1, seq, seq, dim,
        causal=causal,
    )  # fmt: skip
    return (2.0 if causal else 4.0) * rows * seq.astype(float) ** 2 * dim / seconds / 1e12


# Forward, causal, large batch x heads, head dimension 128, TFLOPS by sequence 512 to 16k:
# published serving grids. The shortest sequence is left out: it times the launch.
@pytest.mark.parametrize(
    ("name", "generation", "measured"),
    [
        ("A100", "flash2", [92, 149, 178, 194, 202, 206]),
        ("H100", "flash3", [226, 340, 456, 520, 559, 592]),
        ("B200", "flash3", [376, 624, 881, 1063, 1167, 1209]),
    ],
)
def test_forward_rates_by_sequence(name, generation, measured):
    """From 1k tokens the model is within 15 % of the published curve, from 4k within 12 %."""
    ratio = _forward_tflops(name, generation, SEQUENCES) / np.array(measured)
    np.testing.assert_allclose(ratio[1:], 1.0, atol=0.15)
    np.testing.assert_allclose(ratio[3:], 1.0, atol=0.12)


def test_fa2_backward_on_a100():
    """FlashAttention-2 forward + backward, causal, 16k tokens: 99 to 189 TFLOPS (its authors)."""
    device = load_device("A100")
    kernel, peak = device.attention["flash2"], device.peak_flops["bf16"]
    shape = (16384 / SEQUENCES, 16, SEQUENCES, SEQUENCES, 128)
    both = flash_forward_seconds(kernel, peak, *shape) + flash_backward_seconds(
        kernel, peak, *shape
    )
    rate = 3.5 * 2.0 * 16384 * SEQUENCES * 16 * 128 / both / 1e12
    np.testing.assert_allclose(rate, [99, 133, 155, 173, 182, 189], rtol=0.08)


def test_fa3_backward_on_h100():
    """FlashAttention-3 backward, not causal: 316 to 561 TFLOPS (its paper)."""
    device = load_device("H100")
    seconds = flash_backward_seconds(
        device.attention["flash3"], device.peak_flops["bf16"],
        16384 / SEQUENCES, 16, SEQUENCES, SEQUENCES, 128, causal=False,
    )  # fmt: skip
    rate = 2.5 * 4.0 * 16384 * SEQUENCES * 16 * 128 / seconds / 1e12
    np.testing.assert_allclose(rate, [316, 424, 501, 542, 559, 561], rtol=0.12)


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
def test_backward_takes_about_three_forwards(name):
    """Published ratio in the saturated range: 2.9 to 3.3."""
    device = load_device(name)
    kernel = device.attention["flash2" if name == "A100" else "flash3"]
    shape = (device.peak_flops["bf16"], 8, 32, 8192, 8192, 128)
    ratio = flash_backward_seconds(kernel, *shape) / flash_forward_seconds(kernel, *shape)
    assert 2.4 <= ratio <= 3.3


def test_generations_get_faster_on_h100():
    """First, second, newest generation, at 4k tokens."""
    rates = [
        float(_forward_tflops("H100", name, np.array([4096]))[0])
        for name in ("flash1", "flash2", "flash3")
    ]
    assert rates == sorted(rates)
    assert rates[2] > 1.5 * rates[1]


@pytest.mark.parametrize("name", device_names())
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 64),
    heads=st.integers(1, 128),
    seq=st.integers(128, 65536),
    dim=st.sampled_from([64, 80, 96, 128, 256]),
    factor=st.integers(1, 4),
)
def test_more_is_never_faster_and_peak_holds(name, batch, heads, seq, dim, factor):
    """More rows, heads or tokens never help; the dense peak is a bound; backward is the longer."""
    device = load_device(name)
    peak = next(iter(device.peak_flops.values()))
    for kernel in device.attention.values():
        base = float(flash_forward_seconds(kernel, peak, batch, heads, seq, seq, dim))
        assert base >= 2.0 * batch * heads * seq**2 * dim / peak
        for b, h, s in (
            (batch * factor, heads, seq),
            (batch, heads * factor, seq),
            (batch, heads, seq * factor),
        ):
            assert float(flash_forward_seconds(kernel, peak, b, h, s, s, dim)) >= base
        assert float(flash_backward_seconds(kernel, peak, batch, heads, seq, seq, dim)) > base


def test_few_heads_leave_the_device_idle():
    """One head on a 132-SM device runs far under the rate of many."""
    seq = np.array([2048])
    alone = _forward_tflops("H100", "flash3", seq, rows=1)
    many = _forward_tflops("H100", "flash3", seq, rows=512)
    assert alone < 0.35 * many


def _unfused(device, batch, seq, dim, *, dropout=True):
    gemm, memory = device.gemm["fp16"], device.memory_bound
    args = (gemm, memory, device.peak_flops["fp16"], device.hbm_bytes_per_s)
    shape = (batch, 16, seq, seq, dim)
    return (
        unfused_attention_forward_seconds(*args, *shape, dropout=dropout),
        unfused_attention_backward_seconds(*args, *shape, dropout=dropout),
    )


def test_eager_attention_on_a100():
    """Without fusion an A100 reaches 23 to 34 TFLOPS causal, forward + backward (FA2 figures).

    The chain here has a fused softmax, which the eager one lacks: it may be up to twice as fast.
    """
    seq = np.array([1024, 2048, 4096])
    forward, backward = _unfused(load_device("A100"), 16384 / seq, seq, 128, dropout=False)
    rate = 3.5 * 2.0 * 16384 * seq * 16 * 128 / (forward + backward) / 1e12
    assert (rate > 23).all()
    assert (rate < 2.1 * 34).all()


def test_misaligned_heads_and_dropout_cost():
    """A head dimension that is no multiple of 8 misses the tensor cores; dropout is traffic."""
    device = load_device("A100")
    aligned, odd = _unfused(device, 1, 2048, 112), _unfused(device, 1, 2048, 108)
    dry = _unfused(device, 1, 2048, 112, dropout=False)
    for index in range(2):
        assert odd[index] > 1.5 * aligned[index]
        assert dry[index] < aligned[index]
