"""Constants of fused attention from a profile's attention.csv."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.hardware import AttentionConstants
from vtrain.latency.fit import attention as forms
from vtrain.latency.fit.robust import Error, cross_validate, fit
from vtrain.profiler.fit.columns import attention_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain.profiler.fit.scale import Scale
    from vtrain.profiler.rows import Row

LEAST_ROWS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFit:
    """Fitted constants and their held-out errors.

    Attributes:
        constants: for `latency.attention`.
        forward: error of the forward pass.
        backward: error of the backward pass.
        rows: rows fitted.
    """

    constants: AttentionConstants
    forward: Error
    backward: Error | None
    rows: int

    @property
    def values(self) -> dict[str, Any]:
        """The constants as a TOML table; the unit count is the device's."""
        out = asdict(self.constants)
        del out["sm_count"]
        return out


def fit_attention(
    scale: Scale, rows: Sequence[Row], kind: str, *, engine_s: float = 0.0
) -> AttentionFit | None:
    """Fit one kernel's forward and backward; None where rows are too few.

    Args:
        scale: peaks.
        rows: attention.csv, one kernel.
        kind: of the device.
        engine_s: seconds of entering autograd, part of every measured backward.
    """
    table, measured = attention_columns(rows, "fwd")
    if measured.size < LEAST_ROWS:
        return None
    everything = np.arange(measured.size)
    form = forms.forward_form(scale.device, scale.precision, table)
    if kind == "cpu":
        # A core runs its blocks one after another: no tail; calls take longer.
        form = replace(
            form, start=(0.5, 100.0, 0.9, 0.2, 2e-5),
            low=(*form.low[:2], form.low[2], 0.2, 1e-6),
            high=(1.0, 4000.0, form.high[2], 0.2, 1e-3),
        )  # fmt: skip
    forward = fit(form, measured, everything)
    error = cross_validate(form, measured, everything)
    back, back_measured = attention_columns(rows, "bwd")
    back_error: Error | None = None
    backward = (float(forward[0]), float(forward[1]))
    if back_measured.size >= LEAST_ROWS:
        back_measured = np.maximum(back_measured - engine_s, 0.1 * back_measured)
        back_form = forms.backward_form(
            scale.device, scale.precision, back, forward, head_factor=False
        )
        # Short sequences may saturate earlier backward than forward on a CPU.
        low = (0.02, 1.0, back_form.low[2])
        start = (min(0.4, float(forward[0])), float(np.clip(forward[1], 1.1, 3900.0)), forward[2])
        back_form = replace(back_form, low=low, start=start) if kind == "cpu" else back_form
        found = fit(back_form, back_measured, np.arange(back_measured.size))
        backward = (float(found[0]), float(found[1]))
        back_error = cross_validate(back_form, back_measured, np.arange(back_measured.size))
    return AttentionFit(
        constants=forms.constants_of(scale.device, forward, backward), forward=error,
        backward=back_error, rows=int(measured.size + back_measured.size),
    )  # fmt: skip
