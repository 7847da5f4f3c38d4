"""Which shapes are measured: a space-filling design over what a search visits.

Sizes are spread evenly in logarithms by a Halton sequence, so that any first part of the list
covers the space: a profile that is cut short is a coarser one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GEMMS = (30, 150)
"""Fewest and most products: thirty fix the constants, a hundred begin to feed a residual
(profiling-budget table of the published measurements)."""

DEFAULT_GEMMS = 48


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Range of the sizes to measure on one kind of device.

    Attributes:
        rows: fewest and most tokens of a product.
        columns: fewest and most columns, and summed elements.
        flops: most FLOPs of a product.
        sequences: attention: fewest and most tokens of a sequence.
        attention_flops: most FLOPs of one attention forward.
        elements: memory-bound operators: fewest and most elements of the activation.
        widths: hidden sizes of memory-bound operators.
        parameters: parameters of the optimizer step.
        messages: bytes of the smallest and the largest collective.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    flops: float
    sequences: tuple[int, int]
    attention_flops: float
    elements: tuple[int, int]
    widths: tuple[int, ...]
    parameters: tuple[int, ...]
    messages: tuple[int, int]


SPACES = {
    "cuda": Space(
        rows=(256, 32768), columns=(256, 32768), flops=1.2e13, sequences=(512, 16384),
        attention_flops=4e12, elements=(2**20, 2**28), widths=(1024, 2048, 4096, 8192),
        parameters=(2**22, 2**25, 2**28), messages=(2**12, 2**29),
    ),
    "cpu": Space(
        rows=(64, 4096), columns=(64, 8192), flops=4e9, sequences=(64, 2048),
        attention_flops=2.5e9, elements=(2**14, 2**22), widths=(128, 256, 512, 1024),
        parameters=(2**17, 2**20, 2**23), messages=(2**8, 2**26),
    ),
}  # fmt: skip


def halton(count: int, dimensions: int) -> NDArray[np.float64]:
    """Return the first points of a Halton sequence in bases 2, 3, 5, ..., [count, dimensions]."""
    bases = (2, 3, 5, 7)[:dimensions]
    out = np.zeros((count, dimensions))
    for column, base in enumerate(bases):
        index, scale = np.arange(1, count + 1), 1.0 / base
        while index.any():
            out[:, column] += (index % base) * scale
            index, scale = index // base, scale / base
    return out


def gemm_shapes(space: Space, count: int) -> list[tuple[int, int, int]]:
    """Return `count` products (m, n, k), sizes multiples of 64, every eighth m of 16 only.

    Points above the FLOP limit are passed over, so large sizes meet small partners.
    """
    points = halton(40 * count, 3)
    # The smallest product tells what a call costs.
    out: list[tuple[int, int, int]] = [(space.rows[0], space.columns[0], space.columns[0])]
    rows = _between(points[:, 0], space.rows)
    columns = _between(points[:, 1], space.columns)
    depths = _between(points[:, 2], space.columns)
    for m, n, k in zip(rows, columns, depths, strict=True):
        unit = 16 if len(out) % 8 == 7 else 64
        shape = (_multiple(m, unit), _multiple(n, 64), _multiple(k, 64))
        if 2.0 * shape[0] * shape[1] * shape[2] <= space.flops and shape not in out:
            out.append(shape)
        if len(out) == count:
            break
    return out


def attention_shapes(space: Space, count: int = 14) -> list[tuple[int, int, int, int]]:
    """Return (batch, heads, sequence, head size) of causal self-attention."""
    points = halton(40 * count, 3)
    sequences = _between(points[:, 0], space.sequences)
    out: list[tuple[int, int, int, int]] = []
    for index, sequence in enumerate(sequences):
        head_dim = 128 if index % 2 else 64
        heads = int(2 ** np.round(1 + 4 * points[index, 1]))
        batch = int(2 ** np.round(3 * points[index, 2]))
        shape = (batch, heads, _multiple(sequence, 64), head_dim)
        if 4.0 * batch * heads * shape[2] ** 2 * head_dim <= space.attention_flops:
            out.append(shape)
        if len(out) == count:
            break
    return out


def activation_shapes(space: Space, count: int = 7) -> list[tuple[int, int]]:
    """Return (tokens, width) of memory-bound operators, from cache-resident to large."""
    low, high = np.log2(space.elements[0]), np.log2(space.elements[1])
    out = []
    # Ends first, so that two measured shapes already tell floor from bandwidth.
    for order, place in enumerate(_ends_first(count)):
        elements = 2.0 ** (low + (high - low) * place)
        width = space.widths[order % len(space.widths)]
        out.append((max(1, round(elements / width)), width))
    return out


def message_sizes(space: Space) -> list[int]:
    """Return collective sizes in bytes, by factors of four."""
    low, high = space.messages
    return [2**power for power in range(low.bit_length() - 1, high.bit_length(), 2)]


def _ends_first(count: int) -> list[float]:
    places = [float(x) for x in np.linspace(0.0, 1.0, count)]
    return [places[-1], places[0], *places[1:-1]]


def _between(unit: NDArray[np.float64], limits: tuple[int, int]) -> NDArray[np.float64]:
    low, high = np.log2(limits[0]), np.log2(limits[1])
    out: NDArray[np.float64] = 2.0 ** (low + (high - low) * unit)
    return out


def _multiple(value: float, unit: int) -> int:
    return max(unit, round(float(value) / unit) * unit)
