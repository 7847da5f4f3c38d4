"""Kernels bound by memory traffic: norms, activations, residuals, optimizer, loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def traffic_seconds(
    bytes: ArrayLike,
    hbm_bytes_per_s: float,
    fraction: float,
    floor_s: float,
) -> NDArray[np.float64]:
    """Seconds of a kernel that moves `bytes` through HBM: floor + bytes / (fraction x W).

    Args:
        bytes: minimum traffic, reads and writes, any shape.
        hbm_bytes_per_s: datasheet memory bandwidth.
        fraction: share of it that this class of kernel reaches, a field of
            `MemoryBoundConstants`.
        floor_s: seconds of an empty kernel.

    Returns:
        Seconds, float64 of the shape of `bytes`.
    """
    return np.asarray(bytes, dtype=np.float64) / (hbm_bytes_per_s * fraction) + floor_s
