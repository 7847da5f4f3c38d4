"""Matrix multiplication by tiles and waves: the finer model, for one plan at a time.

A kernel is the fastest of a list of output tiles and splits of k. Tiles fill the SMs in waves;
a partly filled last wave costs up to a whole one. About 30 times the work of `latency.gemm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vtrain.hardware import TileConstants

TILES: tuple[tuple[int, int], ...] = (
    (64, 64),
    (64, 128),
    (64, 256),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 64),
    (256, 128),
)
"""Output tiles of 64..256 rows and columns whose accumulators fit in the registers of one SM
(at most 32,768 elements), as the libraries offer."""

SPLITS = (1, 2, 4, 8)
"""Ways to share one tile's k among SMs."""


def tile_gemm_seconds(
    constants: TileConstants,
    peak_flops: float,
    hbm_bytes_per_s: float,
    sm_count: float,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    batch: ArrayLike = 1.0,
    *,
    element_bytes: float = 2.0,
    output_bytes: float = 2.0,
    sustained: float = 1.0,
) -> NDArray[np.float64]:
    """Seconds of C[m, n] = A[m, k] B[k, n], `batch` times in one kernel.

    With v = tiles / SMs waves and E = 2 tm tn / (tm + tn) the harmonic tile edge, compute takes
    (q ceil(v) + (1 - q) max(v, 1)) 2 tm tn (k/split + k0) / (P/S e s E/(E+h)); it joins the
    memory time of the roofline by a p-norm, plus a floor and the cost of a split.

    Args:
        constants: fitted constants of this device.
        peak_flops: dense FLOP/s of the precision.
        hbm_bytes_per_s: datasheet memory bandwidth.
        sm_count: streaming multiprocessors.
        m: rows of the output, any shape; n, k, batch broadcast against it.
        n: columns of the output.
        k: summed dimension.
        batch: independent multiplications in one kernel.
        element_bytes: bytes of an input element.
        output_bytes: bytes of an output element.
        sustained: power factor on arithmetic (`GemmConstants.sustained`).

    Returns:
        Seconds, float64 of the broadcast shape.
    """
    c = constants
    m_f, n_f, k_f, b_f = np.broadcast_arrays(
        *(np.asarray(value, dtype=np.float64) for value in (m, n, k, batch))
    )
    compute = np.full(m_f.shape, np.inf)
    rate = peak_flops / sm_count * c.efficiency * sustained
    for rows, columns in TILES:
        edge = 2.0 * rows * columns / (rows + columns)
        per_depth = 2.0 * rows * columns * (edge + c.half_edge) / (edge * rate)
        tiles = np.ceil(m_f / rows) * np.ceil(n_f / columns) * b_f
        for split in SPLITS:
            waves = tiles * (split / sm_count)
            filled = c.quantised * np.ceil(waves) + (1.0 - c.quantised) * np.maximum(waves, 1.0)
            seconds = filled * (per_depth / split) * (k_f + c.depth_overhead * split)
            compute = np.minimum(compute, seconds + (c.split_s if split > 1 else 0.0))
    traffic = b_f * (element_bytes * (m_f + n_f) * k_f + output_bytes * m_f * n_f)
    memory = traffic / (hbm_bytes_per_s * c.hbm_fraction)
    # p-norm, scaled by the larger term so that neither overflows.
    larger = np.maximum(compute, memory)
    smaller = np.minimum(compute, memory)
    joined: NDArray[np.float64] = larger * (1.0 + (smaller / larger) ** c.blend) ** (1.0 / c.blend)
    return joined + c.floor_s
