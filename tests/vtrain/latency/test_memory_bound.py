"""Memory-bound kernels: bytes over a share of HBM bandwidth."""

from __future__ import annotations

import numpy as np
import pytest

from vtrain.latency.memory_bound import traffic_seconds
from vtrain.presets import load_device


# Published shares of HBM bandwidth on minimum traffic (Liger-Kernel, vidur tables).
@pytest.mark.parametrize(
    ("device", "field", "low", "high"),
    [
        ("A100", "bias_dropout_residual", 0.85, 0.9),
        ("H100", "bias_dropout_residual", 0.85, 0.97),
        ("A100", "norm_forward_fused", 0.53, 0.77),
        ("H100", "norm_forward_fused", 0.53, 0.82),
        ("H100", "norm_backward_fused", 0.25, 0.41),
        ("H100", "activation_fused", 0.55, 0.88),
        ("H100", "activation_eager", 0.27, 0.31),
        ("A100", "rotary", 0.42, 0.75),
        ("A100", "embedding", 0.29, 0.33),
        ("H100", "optimizer", 0.8, 0.9),
    ],
)
def test_shares_lie_where_the_kernels_were_measured(device, field, low, high):
    """The share of a class lies between its slowest and fastest implementation."""
    assert low <= getattr(load_device(device).memory_bound, field) <= high


def test_floor_and_slope():
    """No bytes cost the floor; twice the bytes twice the rest."""
    got = traffic_seconds(np.array([0.0, 1e9, 2e9]), 2e12, 0.5, 3e-6)
    np.testing.assert_allclose(got, [3e-6, 1.003e-3, 2.003e-3])
