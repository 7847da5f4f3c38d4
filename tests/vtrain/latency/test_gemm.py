"""Matrix products: published medians, and what no kernel can do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.gemm_tiles import tile_gemm_seconds
from vtrain.presets import device_names, load_device

SIZES = st.integers(64, 60_000).map(float)


def _rate_tflops(name: str, m, n, k, precision: str = "bf16", *, sustained: bool = False):
    device = load_device(name)
    constants = device.gemm[precision]
    if not sustained:
        constants = dataclasses.replace(constants, sustained=1.0)
    seconds = gemm_seconds(
        constants, device.peak_flops[precision], device.hbm_bytes_per_s, m, n, k,
        element_bytes={"fp8": 1.0, "fp4": 0.5}.get(precision, 2.0),
    )  # fmt: skip
    return 2.0 * np.multiply(m, n) * k / seconds / 1e12


# Medians of published short kernels with every dimension at least 2,048, TFLOPS (aiconfigurator
# tables; A100 on the faster of two stacks), with the held-out error of the model as tolerance.
@pytest.mark.parametrize(
    ("name", "precision", "median", "tolerance"),
    [
        ("A100", "bf16", 260, 0.08),
        ("H100", "bf16", 758, 0.06),
        ("H200", "bf16", 763, 0.06),
        ("B200", "bf16", 1475, 0.08),
        ("GB200", "bf16", 1600, 0.08),
        ("H100", "fp8", 1116, 0.12),
        ("B200", "fp8", 2142, 0.15),
    ],
)
def test_large_products_reach_the_published_median(name, precision, median, tolerance):
    """A 4,096-row product with 8,192 columns and depth runs at the measured median."""
    assert _rate_tflops(name, 4096, 8192, 8192, precision) == pytest.approx(median, rel=tolerance)


# H100, depth 4k to 8k, by the smaller of m and n: fraction of the dense peak (published medians).
@pytest.mark.parametrize(
    ("edge", "share"), [(384, 0.58), (768, 0.71), (1536, 0.77), (3072, 0.78), (6000, 0.79)]
)
def test_thin_products_lose_what_was_measured(edge, share):
    """Tensor-parallel slices pay for a small dimension as on the H100.

    Under 512 the curve is 15 % too fast: those products fill a fraction of the last wave.
    """
    rate = _rate_tflops("H100", edge, 8192, 6144)
    assert rate / 989.4 == pytest.approx(share, rel=0.17 if edge < 512 else 0.1)


def test_long_kernels_throttle_where_power_limits():
    """Over 10 ms the H100 falls to about 720 TFLOPS; the A100 does not slow down."""
    h100, a100 = load_device("H100").gemm["bf16"], load_device("A100").gemm["bf16"]
    assert 0.84 <= h100.sustained <= 0.92
    assert a100.sustained == 1.0
    rate = _rate_tflops("H100", 32768, 16384, 16384, sustained=True)
    assert 664 <= rate <= 728  # slower stack to faster stack


def test_sustained_factor_leaves_memory_traffic_alone():
    """A skinny product streams weights: the power limit on arithmetic must not show."""
    device = load_device("H100")
    constants = device.gemm["bf16"]
    args = (device.peak_flops["bf16"], device.hbm_bytes_per_s, 16, 8192, 8192)
    slow = dataclasses.replace(constants, sustained=0.5)
    assert gemm_seconds(slow, *args) == gemm_seconds(constants, *args)


def test_quantised_input_saves_the_cast():
    """A cast done for an earlier product is not paid twice; half precision has none."""
    device = load_device("H100")
    for precision, saves in (("fp8", True), ("bf16", False)):
        args = (
            device.gemm[precision], device.peak_flops[precision], device.hbm_bytes_per_s,
            8192, 4096, 8192,
        )  # fmt: skip
        assert (gemm_seconds(*args, input_is_quantised=True) < gemm_seconds(*args)) == saves


def test_skinny_products_run_at_hbm_speed():
    """m = 16 on 128 MiB of weights takes the traffic over the measured share of HBM (0.75)."""
    device = load_device("H100")
    seconds = gemm_seconds(
        device.gemm["bf16"], device.peak_flops["bf16"], device.hbm_bytes_per_s, 16, 8192, 8192
    )
    assert 2 * 8192 * 8192 / seconds == pytest.approx(0.75 * 3.35e12, rel=0.08)


@pytest.mark.parametrize("name", device_names())
@settings(max_examples=25, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES, batch=st.integers(1, 64), factor=st.floats(1.0, 8.0))
def test_more_work_is_never_faster(name, m, n, k, batch, factor):
    """Growing any dimension, or the batch, never shortens the product; peak is never exceeded."""
    device = load_device(name)
    for precision, constants in device.gemm.items():
        peak = device.peak_flops[precision]
        args = (constants, peak, device.hbm_bytes_per_s)
        base = float(gemm_seconds(*args, m, n, k, batch))
        assert base >= 2.0 * m * n * k * batch / peak
        for larger in ((m * factor, n, k), (m, n * factor, k), (m, n, k * factor)):
            assert float(gemm_seconds(*args, *larger, batch)) >= base
        assert float(gemm_seconds(*args, m, n, k, batch * factor)) >= base


@settings(max_examples=50, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_tiles_agree_with_the_curve_on_large_products(m, n, k):
    """The two models of one device stay within a factor of two, and tiles never beat the peak."""
    device = load_device("H100")
    constants = device.gemm["bf16"]
    peak, hbm = device.peak_flops["bf16"], device.hbm_bytes_per_s
    tile = float(tile_gemm_seconds(constants.tile, peak, hbm, device.sm_count, m, n, k))
    curve = float(gemm_seconds(dataclasses.replace(constants, sustained=1.0), peak, hbm, m, n, k))
    assert tile >= 2.0 * m * n * k / peak
    assert 0.5 < tile / curve < 2.0


def test_tiles_show_the_wave_that_the_curve_cannot():
    """One row past a full wave of tiles costs a step on the A100: measured +5 to +16 %."""
    device = load_device("A100")
    tile = device.gemm["bf16"].tile
    args = (tile, device.peak_flops["bf16"], device.hbm_bytes_per_s, device.sm_count)
    one = tile_gemm_seconds(*args, [1024, 1025], 8192, 8192)
    assert 1.02 < one[1] / one[0] < 1.2


def test_arrays_broadcast_and_batch_multiplies_the_body():
    """Shapes broadcast; a batch shares one launch."""
    device = load_device("A100")
    constants = device.gemm["bf16"]
    args = (constants, device.peak_flops["bf16"], device.hbm_bytes_per_s)
    grid = gemm_seconds(*args, np.array([[512], [1024]]), np.array([256, 512, 1024]), 4096)
    assert grid.shape == (2, 3)
    one = gemm_seconds(*args, 1024, 1024, 1024)
    many = gemm_seconds(*args, 1024, 1024, 1024, np.array([1.0, 10.0]))
    assert many[0] == pytest.approx(one)
    floor = constants.floor_s
    assert many[1] - floor == pytest.approx(10 * (one - floor))
