"""Constants of memory-bound kernels from a profile's elementwise.csv.

t = floor + bytes / (share x bandwidth), a floor and a share a class: small tensors tell the
floor, large ones the share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.fit.memory_bound import CLASSES
from vtrain.latency.fit.robust import Error, Form, fit
from vtrain.profiler.fit.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vtrain.profiler.fit.scale import Scale
    from vtrain.profiler.rows import Row

    Array = NDArray[np.float64]

OWN: dict[str, tuple[tuple[str, str], ...]] = {
    "norm_forward_fused": (("rms_norm[torch]", "fwd"),),
    "norm_backward_fused": (("rms_norm[torch]", "bwd"),),
    "norm_forward_eager": (("rms_norm[eager]", "fwd"),),
    "norm_backward_eager": (("rms_norm[eager]", "bwd"),),
    "activation_eager": (("swiglu_act[torch]", "fwd"), ("swiglu_act[torch]", "bwd")),
    "rotary": (("rope[torch]", "fwd"), ("rope[torch]", "bwd")),
    "bias_dropout_residual": (("residual_add", "fwd"),),
    "softmax": (("softmax[torch]", "fwd"), ("softmax[torch]", "bwd")),
    "optimizer": (("adamw[torch fused]", "fwd"), ("gradient_clip[torch]", "fwd")),
    "embedding": (("embedding[torch]", "fwd"),),
    "cross_entropy": (("cross_entropy[torch]", "fwd"), ("cross_entropy[torch]", "bwd")),
    "cast": (("accumulate[torch]", "fwd"), ("copy[torch]", "fwd")),
}
"""Field of `MemoryBoundConstants`: the operators `vtrain profile run` measures for it."""

PUBLISHED: dict[str, tuple[tuple[str, str], ...]] = dict(CLASSES)

LEAST_ROWS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFit:
    """Fitted floors and shares.

    Attributes:
        floors_s: seconds of an empty kernel by class.
        shares: share of the bandwidth by class.
        errors: held-out error by class.
        rows: rows by class.
    """

    floors_s: dict[str, float]
    shares: dict[str, float]
    errors: dict[str, Error]
    rows: dict[str, int]


def fit_memory(
    scale: Scale, rows: Sequence[Row], *, own: bool, engine_s: float = 0.0
) -> MemoryFit | None:
    """Fit the memory-bound classes; None without rows.

    Args:
        scale: bandwidth to state shares of.
        rows: elementwise.csv.
        own: rows of `vtrain profile run`, else of a published table.
        engine_s: seconds of entering autograd, part of every measured backward.
    """
    floors, shares, errors, counts = {}, {}, {}, {}
    for name, members in (OWN if own else PUBLISHED).items():
        mine = [row for row in rows if (row["op"], row["pass"]) in members and row["bytes_est"]]
        if len(mine) < LEAST_ROWS:
            continue
        raw = numbers(mine, "time_us") * 1e-6
        inside = np.array([engine_s * (row["pass"] == "bwd") for row in mine])
        measured = np.maximum(raw - inside, 0.1 * raw)
        ideal = numbers(mine, "bytes_est") * scale.planned / scale.device.hbm_bytes_per_s
        form = memory_form(ideal)
        found = fit(form, measured, np.arange(measured.size))
        floors[name], shares[name] = float(found[0]), float(found[1])
        errors[name] = Error.of(_held_out(form, measured, _size_groups(mine)), measured)
        counts[name] = len(mine)
    if not shares:
        return None
    return MemoryFit(floors_s=floors, shares=shares, errors=errors, rows=counts)


def memory_form(ideal_s: Array) -> Form:
    """Return t = floor + ideal / share."""

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        out: Array = x[0] + ideal_s[rows] / x[1]
        return out

    return Form(
        name="floor and share", constants=("floor", "share"), start=(5e-6, 0.3),
        low=(2e-7, 1e-3), high=(3e-3, 1.0), predict=predict,
    )  # fmt: skip


def _held_out(form: Form, measured: Array, groups: NDArray[np.intp]) -> Array:
    """Predict every row by constants fitted without its size."""
    out = np.empty_like(measured)
    for group in np.unique(groups):
        test = np.flatnonzero(groups == group)
        train = np.flatnonzero(groups != group)
        out[test] = form.predict(fit(form, measured, train if train.size else test), test)
    return out


def _size_groups(rows: Sequence[Row]) -> NDArray[np.intp]:
    """Group rows of like size, so that a held-out size is truly interpolated."""
    elements = [np.prod([float(x) for x in re.findall(r"\d+", row["shape"])]) for row in rows]
    return np.clip(np.round(np.log2(elements) / 3.0), 0, 12).astype(np.intp)
