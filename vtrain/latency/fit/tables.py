"""The measured tables a fit reads, and which of their rows speak for which device.

Schema: gemm.csv, attention.csv, collectives.csv, elementwise.csv as `vtrain fit-devices` documents
them (times in microseconds, sizes in bytes, bandwidths in 10^9 bytes a second).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Frame = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Which rows of the tables describe one device."""

    gpu: str
    """Value of the `gpu` column."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """Precision of the device: value of the `dtype` column of gemm.csv."""
    gemm_source: str = "trtllm"
    """Substring of `source` to fit on: the fastest software stack measured."""
    published_source: str = "trtllm"
    """The same for the rows behind published comparisons of model forms."""
    attention_source: str = ""
    """Substring of `source` of the forward attention grid."""
    network: tuple[str, ...] = ()
    """Values of `system` with all-reduce across NVLink domains."""
    peer_system: str = ""
    """Value of `system` with send/receive rows."""


MEASURED: dict[str, Rows] = {
    "a100-sxm-80g": Rows(
        gpu="A100-SXM4-80GB",
        precisions={"bf16": "bf16"},
        published_source="sglang",
        attention_source="a100_sxm/attention/sglang",
        peer_system="DGX A100",
    ),
    "h100-sxm-80g": Rows(
        gpu="H100-SXM5-80GB",
        precisions={"bf16": "bf16", "fp8": "fp8_tensorwise"},
        attention_source="h100_sxm/attention/sglang",
        network=(
            "DGX H100 SuperPOD NDR, NVLSTree (digitised plot, +-3 GB/s)",
            "H100 cluster 8x400G (digitised plot, +-4 GB/s)",
        ),
        peer_system="DGX H100",
    ),
    "h200-sxm-141g": Rows(
        gpu="H200-SXM-141GB",
        precisions={"bf16": "bf16"},
        attention_source="h200_sxm/attention/sglang",
    ),
    "b200-sxm-180g": Rows(
        gpu="B200-SXM",
        precisions={"bf16": "bf16", "fp8": "fp8_tensorwise", "fp4": "nvfp4"},
        attention_source="b200_sxm/attention/sglang",
    ),
    "gb200": Rows(
        gpu="GB200",
        precisions={"bf16": "bf16"},
    ),
    "b300-sxm-288g": Rows(gpu="B300-SXM"),
    "gb300": Rows(gpu="GB300"),
    "v100-sxm-32g": Rows(gpu="V100-SXM2"),
    "a100-pcie-80g": Rows(gpu="L40S"),
}
"""Devices with rows of their own. The PCIe server of the tables carries L40S cards; its links, not
its cards, serve the A100 PCIe cluster."""


def read_table(folder: Path, name: str) -> Frame:
    """Read one table.

    Args:
        folder: where the tables are.
        name: file name.

    Raises:
        UserInputError: when it is missing or unreadable.
    """
    import pandas as pd

    path = folder / name
    try:
        return pd.read_csv(path, low_memory=False)
    except (OSError, ValueError) as error:
        raise UserInputError(
            f"cannot read {path}: {error}", hint="--profiles names the folder of measured tables"
        ) from error


def seconds(frame: Frame) -> Array:
    """Column time_us in seconds."""
    out: Array = frame["time_us"].to_numpy(dtype=np.float64) * 1e-6
    return out


def group_numbers(frame: Frame, columns: list[str]) -> NDArray[np.intp]:
    """Number of the combination of values each row belongs to."""
    out: NDArray[np.intp] = frame.groupby(columns).ngroup().to_numpy().astype(np.intp)
    return out


def column_arrays(frame: Frame, columns: tuple[str, ...]) -> dict[str, Array]:
    """Columns as float64 arrays by name."""
    return {name: frame[name].to_numpy(dtype=np.float64) for name in columns}


def gemm_rows(
    frame: Frame, rows: Rows, dtype: str, *, aligned: bool, published: bool = False
) -> Frame:
    """Forward products of a size that training meets, at most 9,000.

    Args:
        frame: gemm.csv.
        rows: which device.
        dtype: value of the `dtype` column.
        aligned: keep row counts that are multiples of 16 only; half of the measured ones lie one
            past a multiple, which no training batch does.
        published: rows behind published comparisons instead of the fastest stack's.
    """
    source = rows.published_source if published else rows.gemm_source
    keep = (frame["gpu"] == rows.gpu) & (frame["dtype"] == dtype) & (frame["layout"] == "TN")
    keep &= frame["source"].str.contains(source, regex=False)
    keep &= (frame["m"] >= 256) & (frame["n"] >= 256) & (frame["k"] >= 128)
    if aligned:
        keep &= frame["m"] % 16 == 0
    found = frame[keep]
    return found.sample(n=min(9000, len(found)), random_state=0)


def attention_rows(frame: Frame, keep: Any) -> tuple[dict[str, Array], Array, Frame]:
    """Columns, seconds and frame of the attention rows kept."""
    found = frame[keep].copy()
    # Latent attention names two sizes, 192/128: their mean carries the work.
    sizes = found["head_dim"].astype(str).str.split("/")
    found["head_dim"] = sizes.map(lambda pair: float(np.mean([float(x) for x in pair])))
    table = column_arrays(found, ("batch", "heads", "seq_q", "seq_kv", "head_dim"))
    table["causal"] = found["causal"].to_numpy(dtype=np.float64)
    table["with_forward"] = (found["pass"] == "fwd+bwd").to_numpy(dtype=np.float64)
    return table, seconds(found), found
