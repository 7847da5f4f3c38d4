"""Rounding that makes results independent of the last bits of a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

DIGITS = 10
"""Significant digits kept: 1e-9 relative, far below any model's error and above any rounding."""


def round_relative(values: ArrayLike) -> NDArray[np.float64]:
    """Return values rounded to DIGITS significant digits; infinities and zero pass through."""
    array = np.asarray(values, dtype=np.float64)
    usable = np.isfinite(array) & (array != 0.0)
    magnitude = np.floor(np.log10(np.abs(np.where(usable, array, 1.0))))
    scale = 10.0 ** (DIGITS - 1 - magnitude)
    return np.where(usable, np.rint(array * scale) / scale, array)
