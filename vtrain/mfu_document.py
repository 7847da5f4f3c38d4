"""Utilisation in every dialect as plain values: what `vtrain mfu --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.mfu import explanations, utilizations

if TYPE_CHECKING:
    from vtrain.hardware import Cluster
    from vtrain.mfu import Work

SCHEMA_VERSION = 1


def mfu_document(
    work: Work,
    *,
    model: str,
    label: str,
    gpus: int,
    tokens_per_s: float,
    precision: str,
    peak_flops_per_s: float,
    reported: float | None = None,
) -> dict[str, Any]:
    """Return one throughput in every dialect with its formula.

    Args:
        work: model, sequence length, recomputation, tensor-parallel degree.
        model: what to call a model without a name.
        label: what to call the peak in use.
        gpus: GPUs that share the throughput.
        tokens_per_s: of all of them together.
        precision: whose dense peak counts.
        peak_flops_per_s: that peak, of one GPU.
        reported: percentage someone reported; adds which count and peak give it.

    Raises:
        UserInputError: a number that is not positive.
    """
    rows = utilizations(
        work, tokens_per_s=tokens_per_s, gpus=gpus, peak_flops_per_s=peak_flops_per_s
    )
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": work.architecture.name or model,
        "parameters": work.architecture.parameters,
        "seq_length": work.seq_length,
        "gpus": gpus,
        "tokens_per_s": tokens_per_s,
        "peak_flops_per_s": peak_flops_per_s,
        "precision": precision,
        "recompute": work.recompute,
        "rows": [
            {
                "dialect": row.dialect.name,
                "utilization": row.value,
                "flops_per_token": row.flops_per_token,
                "formula": row.dialect.formula,
                "source": row.dialect.source,
                "warning": row.warning,
            }
            for row in rows
        ],
    }
    if reported is not None:
        if not 0 < reported < float("inf"):
            raise UserInputError(f"--reported must be a positive percentage, got {reported}")
        document["reported"] = reported / 100
        document["explanations"] = explanations(
            reported / 100, work, tokens_per_s=tokens_per_s, gpus=gpus,
            peaks_flops_per_s=_peaks(precision, peak_flops_per_s, label),
        )  # fmt: skip
        if reported <= 1.0:
            document["remark"] = (
                f"a percentage is meant: {reported:g} is {reported:g} %; write "
                f"{100 * reported:g} for {100 * reported:g} %"
            )
    return document


def dense_peak(cluster: Cluster, precision: str) -> float:
    """Return the dense peak of one GPU in FLOP/s.

    Raises:
        UserInputError: a precision the GPU lacks.
    """
    peaks = cluster.device.peak_flops
    if precision not in peaks:
        raise UserInputError(
            f"{cluster.device.name} has no {precision} peak", hint=f"one of {', '.join(peaks)}"
        )
    return float(peaks[precision])


def _peaks(precision: str, peak: float, label: str) -> dict[str, float]:
    """Return the peak in use and those of the shipped devices, each value once."""
    from vtrain.presets import device_names, load_device

    found = {label: peak}
    for name in device_names():
        value = load_device(name).peak_flops.get(precision)
        if value is not None and value not in found.values():
            found[name] = float(value)
    return found
