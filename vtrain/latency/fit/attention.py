"""Fits of the fused-attention model: forward from dense grids, backward from what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.hardware import AttentionConstants
from vtrain.latency.attention import flash_backward_seconds, flash_forward_seconds
from vtrain.latency.fit.robust import Form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from vtrain.hardware import Device

    Array = NDArray[np.float64]

COLUMNS = ("batch", "heads", "seq_q", "seq_kv", "head_dim")


def constants_of(
    device: Device, forward: Array, backward: tuple[float, float] | None = None
) -> AttentionConstants:
    """Constants from a fitted forward vector (e, s0, d64, q, t0) and backward (e, s0)."""
    e, s0, d64, tail, floor = (float(value) for value in forward)
    e_back, s0_back = (e, s0) if backward is None else backward
    return AttentionConstants(
        forward_efficiency=e,
        forward_half_seq=s0,
        backward_efficiency=float(e_back),
        backward_half_seq=float(s0_back),
        head_dim_64_factor=d64,
        tail_waves=tail,
        floor_s=floor,
        sm_count=float(device.sm_count),
    )


def forward_form(
    device: Device,
    precision: str,
    table: Mapping[str, Array],
    *,
    hold: bool = False,
) -> Form:
    """Forward: constants e, s0, head-64 factor, tail waves, floor.

    Args:
        device: datasheet peaks.
        precision: key of `Device.peak_flops`.
        table: columns of `COLUMNS`, `causal` (0 or 1) of every measured row.
        hold: hold tail and floor at one wave and 5 us, for tables with few shapes.
    """
    peak = device.peak_flops[precision]
    # The factor shows only where both head dimensions were measured.
    both = np.unique(table["head_dim"]).size > 1

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        c = constants_of(device, x)
        shape = [table[name][rows] for name in COLUMNS]
        return np.where(
            table["causal"][rows] > 0,
            flash_forward_seconds(c, peak, *shape, causal=True),
            flash_forward_seconds(c, peak, *shape, causal=False),
        )

    return Form(
        name="saturating",
        constants=("e", "s0", "d64", "tail", "t0"),
        start=(0.5, 400.0, 0.9, 1.0, 5e-6),
        low=(0.02, 1.0, 0.4 if both else 0.9, 1.0 if hold else 0.2, 5e-6 if hold else 1e-6),
        high=(1.0, 4000.0, 1.5 if both else 0.9, 1.0 if hold else 3.0, 5e-6 if hold else 3e-5),
        predict=predict,
    )


def backward_form(
    device: Device,
    precision: str,
    table: Mapping[str, Array],
    forward: Array,
    *,
    head_factor: bool,
) -> Form:
    """Backward: constants e, s0, head-64 factor; tail and floor stay those of the forward.

    Args:
        device: datasheet peaks.
        precision: key of `Device.peak_flops`.
        table: as `forward_form`, and `with_forward` (0 or 1): rows that time both passes.
        forward: fitted forward vector.
        head_factor: fit the head factor here, the forward table having one head dimension only.
    """
    peak = device.peak_flops[precision]
    held = float(forward[2])

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        with_factor = np.array([*forward[:2], x[2], *forward[3:]])
        c = constants_of(device, with_factor, (float(x[0]), float(x[1])))
        shape = [table[name][rows] for name in COLUMNS]
        total = np.zeros(rows.size)
        for causal in (True, False):
            one = flash_backward_seconds(c, peak, *shape, causal=causal)
            one = one + table["with_forward"][rows] * flash_forward_seconds(
                c, peak, *shape, causal=causal
            )
            total = np.where((table["causal"][rows] > 0) == causal, one, total)
        return total

    return Form(
        name="saturating",
        constants=("e", "s0", "d64"),
        start=(0.4, max(600.0, float(forward[1])), held),
        # Wherever short sequences were measured, backward saturates later than forward.
        low=(0.02, float(forward[1]), 0.4 if head_factor else held),
        high=(1.0, 4000.0, 1.5 if head_factor else held),
        predict=predict,
    )


def peak_form(device: Device, precision: str, table: Mapping[str, Array], work: float) -> Form:
    """Datasheet peak and nothing fitted; `work` forwards a row (2.5 backward, 3.5 both)."""
    peak = device.peak_flops[precision]

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        del x
        b, h, q, k, d = (table[name][rows] for name in COLUMNS)
        out: Array = work * 4.0 * b * h * q * k * d / (1.0 + table["causal"][rows]) / peak
        return out

    return Form(name="roofline", constants=(), start=(), low=(), high=(), predict=predict)
