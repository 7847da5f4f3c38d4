"""Fits of the matrix-multiply models: plain roofline, flat, saturating (b), tiles (c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.hardware import GemmConstants, TileConstants
from vtrain.latency.fit.robust import Form
from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.gemm_tiles import tile_gemm_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.hardware import Device

    Array = NDArray[np.float64]

MAX_HBM_FRACTION = 0.8
"""Fits above this read rows that were warm in L2; no kernel streams faster from HBM."""


def saturating_form(
    device: Device, precision: str, m: Array, n: Array, k: Array, *, fp8: bool = False
) -> Form:
    """Form (b): `latency.gemm`, constants e, hm, hn, hk, w, t0.

    Args:
        device: datasheet peaks.
        precision: key of `Device.peak_flops`.
        m: rows of every measured shape.
        n: columns.
        k: summed dimension.
        fp8: one-byte (or smaller) inputs; half sizes may grow to hold the quantisation of the
            input, which these tables include.
    """
    peak, hbm = device.peak_flops[precision], device.hbm_bytes_per_s
    element_bytes = {"fp8": 1.0, "fp4": 0.5}.get(precision, 2.0)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        constants = saturating_constants(x)
        return gemm_seconds(
            constants, peak, hbm, m[rows], n[rows], k[rows], element_bytes=element_bytes
        )

    widest = 4000.0 if fp8 else 600.0
    return Form(
        name="saturating",
        constants=("efficiency", "half_m", "half_n", "half_k", "hbm_fraction", "floor_s"),
        start=(0.8, 80.0, 60.0, 120.0, 0.6, 4e-6),
        low=(0.2, 0.1, 0.1, 0.1, 0.2, 5e-7),
        high=(1.1, widest, widest, widest, MAX_HBM_FRACTION, 4e-5),
        predict=predict,
    )


def saturating_constants(x: Array) -> GemmConstants:
    """Constants of form (b) from a fitted vector."""
    e, hm, hn, hk, w, t0 = (float(value) for value in x)
    return GemmConstants(efficiency=e, half_m=hm, half_n=hn, half_k=hk, hbm_fraction=w, floor_s=t0)


def tile_form(device: Device, precision: str, m: Array, n: Array, k: Array) -> Form:
    """Form (c): `latency.gemm_tiles`, constants e, h, k0, w, t0, p, q."""
    peak, hbm, sms = device.peak_flops[precision], device.hbm_bytes_per_s, float(device.sm_count)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        return tile_gemm_seconds(tile_constants(x), peak, hbm, sms, m[rows], n[rows], k[rows])

    return Form(
        name="tiles",
        constants=(
            "efficiency",
            "half_edge",
            "depth_overhead",
            "hbm_fraction",
            "floor_s",
            "blend",
            "quantised",
        ),
        start=(0.85, 10.0, 100.0, 0.6, 3e-6, 4.0, 0.5),
        low=(0.3, 0.1, 0.1, 0.2, 5e-7, 1.0, 0.01),
        high=(1.0, 200.0, 600.0, MAX_HBM_FRACTION, 2e-5, 8.0, 1.0),
        predict=predict,
    )


def tile_constants(x: Array) -> TileConstants:
    """Constants of form (c) from a fitted vector."""
    e, h, k0, w, t0, p, q = (float(value) for value in x)
    return TileConstants(
        efficiency=e,
        half_edge=h,
        depth_overhead=k0,
        hbm_fraction=w,
        floor_s=t0,
        blend=p,
        quantised=q,
    )


def flat_form(device: Device, precision: str, m: Array, n: Array, k: Array) -> Form:
    """Roofline with one fitted efficiency, bandwidth share and floor: README row (a2)."""
    full = saturating_form(device, precision, m, n, k)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        e, w, t0 = x
        return full.predict(np.array([e, 0.0, 0.0, 0.0, w, t0]), rows)

    return Form(
        name="flat",
        constants=("efficiency", "hbm_fraction", "floor_s"),
        start=(0.7, 0.6, 4e-6),
        low=(0.2, 0.2, 5e-7),
        high=(1.1, MAX_HBM_FRACTION, 4e-5),
        predict=predict,
    )


def roofline_form(device: Device, precision: str, m: Array, n: Array, k: Array) -> Form:
    """Datasheet peaks and nothing fitted: README row (a)."""
    peak, hbm = device.peak_flops[precision], device.hbm_bytes_per_s
    size = {"fp8": 1.0, "fp4": 0.5}.get(precision, 2.0)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        del x
        mm, nn, kk = m[rows], n[rows], k[rows]
        traffic = size * (mm + nn) * kk + 2.0 * mm * nn
        out: Array = np.maximum(2.0 * mm * nn * kk / peak, traffic / hbm)
        return out

    return Form(name="roofline", constants=(), start=(), low=(), high=(), predict=predict)
