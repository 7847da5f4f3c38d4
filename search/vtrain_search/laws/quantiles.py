"""Central intervals of draws, a cache-sized block of designs at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from statistics import NormalDist

import numpy as np

from vtrain.errors import UserInputError

from .designs import Designs, FloatArray

_CHUNK_DESIGNS = 128
"""Designs evaluated together: 128 x 1,000 draws of float64 are 1 MB, within the L2 cache."""
_SEED = 20260401


Z95 = 1.6448536269514722
"""95th percentile of the standard normal: half of a central 90 % interval."""


def log_sd90(low: float, high: float) -> float:
    """Return the log standard deviation of a log-normal with this central 90 % interval."""
    return float(np.log(high / low)) / (2.0 * Z95)


def chunks(designs: Designs) -> Iterator[Designs]:
    """Yield the flattened designs in blocks."""
    flat = designs.flat()
    for start in range(0, flat.tokens.size, _CHUNK_DESIGNS):
        yield flat.take(slice(start, start + _CHUNK_DESIGNS))


def central(draws: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the (low, median, high) quantiles over axis 0.

    Raises:
        UserInputError: level is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise UserInputError(f"interval level must be between 0 and 1, got {level:g}", hint="0.9")
    tail = 0.5 * (1.0 - level)
    low, median, high = np.quantile(
        np.array(draws.T, order="C"), [tail, 0.5, 1.0 - tail], axis=1, overwrite_input=True
    )
    return low, median, high


@cache
def normal_sample(n: int, *, stream: int) -> FloatArray:
    """Return n standard normal deviates, stratified (exact quantiles) in a fixed random order.

    Args:
        n: number of draws.
        stream: samples of different streams are in unrelated order.
    """
    normal = NormalDist()
    values = np.array([normal.inv_cdf((k + 0.5) / n) for k in range(n)])
    shuffled = np.random.default_rng((_SEED, stream)).permutation(values)
    shuffled.flags.writeable = False
    return shuffled
