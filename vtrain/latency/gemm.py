"""Matrix multiplication: roofline with a saturating curve in m, n and k (the search's model)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vtrain.hardware import GemmConstants


def gemm_seconds(
    constants: GemmConstants,
    peak_flops: float,
    hbm_bytes_per_s: float,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    batch: ArrayLike = 1.0,
    *,
    element_bytes: float = 2.0,
    output_bytes: float = 2.0,
    input_is_quantised: bool = False,
) -> NDArray[np.float64]:
    """Seconds of C[m, n] = A[m, k] B[k, n], `batch` times in one kernel.

    t = t0 + max(F / (P e s m/(m+hm) n/(n+hn) k/(k+hk)), B / (w W)), F = 2 m n k: the roofline of
    Williams et al. 2009 with one half-saturation size a dimension. Since F m/(m+hm)... telescopes
    to 2 (m+hm) (n+hn) (k+hk), it costs a dozen vector operations. s is the sustained factor: a
    power limit slows arithmetic, not memory traffic.

    Args:
        constants: fitted constants of this precision.
        peak_flops: dense FLOP/s of this precision.
        hbm_bytes_per_s: datasheet memory bandwidth.
        m: rows of the output (tokens), any shape; n, k, batch broadcast against it.
        n: columns of the output.
        k: summed dimension.
        batch: independent multiplications in one kernel.
        element_bytes: bytes of an input element.
        output_bytes: bytes of an output element.
        input_is_quantised: leave out the cast of A to a narrow format, done for an earlier
            product (the weight gradient reuses what forward and input gradient cast). Tables of
            fp8 and fp4 products include it; it goes with m k, like a share of the output columns.

    Returns:
        Seconds, float64 of the broadcast shape.
    """
    m_f = np.asarray(m, dtype=np.float64)
    n_f = np.asarray(n, dtype=np.float64)
    k_f = np.asarray(k, dtype=np.float64)
    c = constants
    per_flop = 2.0 / (peak_flops * c.efficiency * c.sustained)
    per_input = element_bytes / (hbm_bytes_per_s * c.hbm_fraction)
    per_output = output_bytes / (hbm_bytes_per_s * c.hbm_fraction)
    # Constants go on the smaller operand first: n and k are often scalars or short.
    extra_n = c.half_n if input_is_quantised else c.half_n + c.quantise_n
    compute = ((n_f + extra_n) * (k_f + c.half_k) * per_flop) * (m_f + c.half_m)
    traffic = (k_f * per_input + n_f * per_output) * m_f + k_f * n_f * per_input
    slower = np.maximum(compute, traffic)
    if not (np.isscalar(batch) and batch == 1.0):
        slower = slower * np.asarray(batch, dtype=np.float64)
    return slower + c.floor_s
