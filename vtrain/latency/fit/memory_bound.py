"""Shares of HBM bandwidth by class of memory-bound kernel, read from elementwise.csv.

A share is the geometric mean over the implementations measured, each by the median of its rows
above 64 MB (cross-validated: each row by the others of its kind). Backward rows that include the
forward pass count the traffic and the time of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.latency.fit.robust import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    Frame = Any

BIG_BYTES = 64e6
"""Traffic above which launch time and caches no longer show."""

HIGHEST = 0.9
"""No copy on these devices streams faster; rows above are warm in L2."""

CLASSES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "norm_forward_fused": (
        ("rms_norm[liger]", "fwd"),
        ("rms_norm[megatron]", "fwd"),
        ("rms_norm[torch]", "fwd"),
        ("layer_norm[huggingface]", "fwd"),
        ("layer_norm[liger]", "fwd"),
    ),
    "norm_backward_fused": (
        ("rms_norm[liger]", "bwd"),
        ("rms_norm[liger]", "fwd+bwd"),
        ("layer_norm[huggingface]", "bwd"),
        ("layer_norm[huggingface]", "fwd+bwd"),
        ("layer_norm[liger]", "bwd"),
        ("layer_norm[liger]", "fwd+bwd"),
    ),
    "norm_forward_eager": (
        ("rms_norm[huggingface]", "fwd"),
        ("fused_add_rms_norm[huggingface]", "fwd"),
    ),
    "norm_backward_eager": (
        ("rms_norm[huggingface]", "bwd"),
        ("fused_add_rms_norm[huggingface]", "bwd"),
    ),
    "activation_fused": (
        ("swiglu_act[liger]", "fwd"),
        ("swiglu_act[liger]", "fwd+bwd"),
        ("swiglu_act[megatron]", "fwd"),
        ("silu_mul", "fwd"),
        ("gelu", "fwd"),
    ),
    "activation_eager": (("swiglu_act[torch]", "fwd"), ("swiglu_act[torch]", "fwd+bwd")),
    "rotary": (("rope", "fwd"), ("rope[liger]", "fwd"), ("rope[liger]", "bwd")),
    "bias_dropout_residual": (("residual_add", "fwd"),),
    "embedding": (("embedding[huggingface]", "fwd"),),
}
"""Field of `MemoryBoundConstants`: operations and passes that stand for it. "[torch]",
"[huggingface]" layer norm and "[megatron]" are stock fused kernels, "[liger]" generated ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One class: its share and how well it predicts the rows behind it."""

    value: float
    implementations: tuple[str, ...]
    error: Error
    roofline: Error


def shares(frame: Frame, gpu: str, hbm_bytes_per_s: float) -> dict[str, Share]:
    """Shares of every class that has rows on this device.

    Args:
        frame: elementwise.csv.
        gpu: value of the `gpu` column.
        hbm_bytes_per_s: datasheet bandwidth.
    """
    big = frame[(frame["gpu"] == gpu) & (frame["bytes_est"] >= BIG_BYTES)]
    out: dict[str, Share] = {}
    for name, members in CLASSES.items():
        logs, names, times, ideals = [], [], [], []
        for op, kind in members:
            rows = big[(big["op"] == op) & (big["pass"] == kind)]
            if len(rows) < 3:
                continue
            ideal = rows["bytes_est"].to_numpy(dtype=np.float64) / hbm_bytes_per_s
            measured = rows["time_us"].to_numpy(dtype=np.float64) * 1e-6
            logs.append(float(np.log(np.median(ideal / measured))))
            names.append(f"{op} {kind}")
            times.append(measured)
            ideals.append(ideal)
        if not names:
            continue
        held_out = []
        for index, ideal in enumerate(ideals):
            others = [value for at, value in enumerate(logs) if at != index] or logs
            held_out.append(ideal / min(float(np.exp(np.mean(others))), HIGHEST))
        measured_all, ideal_all = np.concatenate(times), np.concatenate(ideals)
        out[name] = Share(
            value=min(float(np.exp(np.mean(logs))), HIGHEST),
            implementations=tuple(names),
            error=Error.of(np.concatenate(held_out), measured_all),
            roofline=Error.of(ideal_all, measured_all),
        )
    return out


def empty_kernel_s(frame: Frame, gpu: str) -> float | None:
    """Seconds of a residual addition too small to need bandwidth, or None without rows."""
    small = frame[
        (frame["gpu"] == gpu) & (frame["op"] == "residual_add") & (frame["bytes_est"] < 1e6)
    ]
    if len(small) < 3:
        return None
    return float(small["time_us"].median()) * 1e-6


def optimizer_share(frame: Frame, hbm_bytes_per_s: float) -> float | None:
    """Share of HBM bandwidth of a fused Adam step (the one board measured), or None."""
    rows = frame[frame["op"].astype(str).str.startswith("fused_adam[torch after")]
    if len(rows) == 0:
        return None
    return min(float(rows["achieved_gbs"].median()) * 1e9 / hbm_bytes_per_s, HIGHEST)
