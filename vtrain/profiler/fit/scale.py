"""Datasheet values of the profiled device, or what stands in for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vtrain.hardware import Device
from vtrain.presets import load_device
from vtrain.profiler.runtime import PLANNED_ELEMENT_BYTES

if TYPE_CHECKING:
    from vtrain.profiler.fit.columns import Products
    from vtrain.profiler.meta import Meta
    from vtrain.profiler.rows import Row

HEADROOM = 1.05
"""Where no datasheet is known, the peak is this much above the fastest kernel measured."""

PLACEHOLDER = "a100-sxm-80g"
"""Device whose fields are filled in before a fit replaces them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """What times are measured against.

    Attributes:
        device: holds peaks, bandwidth and units; other constants are those of the base device.
        precision: key of the peaks that the measured dtype stands for.
        planned: bytes vtrain plans for each byte the device moves (2 over the element's bytes).
        peak_source: where the peak is from.
        bandwidth_source: where the bandwidth is from.
    """

    device: Device
    precision: str
    planned: float
    peak_source: str
    bandwidth_source: str


def scale_of(meta: Meta, gemms: Products, elementwise: list[Row]) -> Scale:
    """Return the datasheet of a profile's device.

    vtrain plans with two bytes an element. A device measured in a wider dtype is described in
    planned bytes: its bandwidth and its memory are divided by the ratio, so that times, and the
    verdict whether a plan fits, come out right.
    """
    planned = PLANNED_ELEMENT_BYTES / meta.element_bytes if meta.kind != "import" else 1.0
    precision = meta.dtype if meta.dtype in ("bf16", "fp16", "fp8") else "bf16"
    if meta.base:
        device = load_device(meta.base)
        return Scale(
            device=device, precision=precision, planned=planned,
            peak_source=f"datasheet, as {meta.base}", bandwidth_source=f"datasheet, as {meta.base}",
        )  # fmt: skip
    peak = HEADROOM * float((gemms.flops / gemms.seconds).max())
    rates = [
        float(row["bytes_est"]) / float(row["time_us"]) * 1e6
        for row in elementwise
        if row["bytes_est"]
    ]
    bandwidth = HEADROOM * planned * max(rates, default=peak / 50.0)
    wide = f"; {meta.dtype} counts as {precision}" if meta.dtype != precision else ""
    halved = f", in bytes of half precision (x {planned:g})" if planned != 1.0 else ""
    device = replace(
        load_device(PLACEHOLDER), name=meta.name, arch=meta.kind,
        memory_bytes=meta.memory_bytes * planned, hbm_bytes_per_s=bandwidth,
        l2_bytes=meta.cache_bytes * planned, sm_count=meta.units, tdp_w=1.0,
        peak_flops={precision: peak}, gemm={}, attention={},
    )  # fmt: skip
    return Scale(
        device=device, precision=precision, planned=planned,
        peak_source=f"no datasheet: {HEADROOM} x the fastest product measured{wide}",
        bandwidth_source=f"no datasheet: {HEADROOM} x the fastest kernel measured{halved}",
    )  # fmt: skip
