"""Attention: fused (flash) kernels and the unfused chain of batched products and softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.memory_bound import traffic_seconds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vtrain.hardware import AttentionConstants, GemmConstants, MemoryBoundConstants

BACKWARD_FLOPS = 2.5
"""Backward work over forward work: five products against two (Dao 2023, FlashAttention-2)."""

MISALIGNED_SLOWDOWN = 4.0
"""Half-precision products whose head dimension is no multiple of 8 miss the tensor-core path:
78 instead of 312 TFLOPS on A100, 31 instead of 125 on V100 (NVIDIA datasheets)."""


def flash_forward_seconds(
    constants: AttentionConstants,
    peak_flops: float,
    batch: ArrayLike,
    heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    *,
    causal: bool = True,
) -> NDArray[np.float64]:
    """Seconds of one fused attention forward.

    F / (P e s/(s+s0) f) (1 + q S / blocks) + t0 with F = 4 b h s_q s_kv d, halved when causal:
    f changes the rate with head dimension, q waves of the S SMs are lost at the end.

    Args:
        constants: fitted constants of the kernel generation.
        peak_flops: dense FLOP/s of the precision.
        batch: sequences, any shape; the others broadcast against it.
        heads: query heads on this device.
        seq_q: queries a sequence.
        seq_kv: keys a sequence.
        head_dim: size of one head.
        causal: whether half of the scores are masked.

    Returns:
        Seconds, float64 of the broadcast shape.
    """
    c = constants
    return _flash(
        c,
        peak_flops,
        batch,
        heads,
        seq_q,
        seq_kv,
        head_dim,
        causal,
        work=1.0,
        efficiency=c.forward_efficiency,
        half_seq=c.forward_half_seq,
    )


def flash_backward_seconds(
    constants: AttentionConstants,
    peak_flops: float,
    batch: ArrayLike,
    heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    *,
    causal: bool = True,
) -> NDArray[np.float64]:
    """Seconds of one fused attention backward; arguments as `flash_forward_seconds`."""
    c = constants
    return _flash(
        c,
        peak_flops,
        batch,
        heads,
        seq_q,
        seq_kv,
        head_dim,
        causal,
        work=BACKWARD_FLOPS,
        efficiency=c.backward_efficiency,
        half_seq=c.backward_half_seq,
    )


def _flash(
    c: AttentionConstants,
    peak_flops: float,
    batch: ArrayLike,
    heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    causal: bool,
    *,
    work: float,
    efficiency: float,
    half_seq: float,
) -> NDArray[np.float64]:
    rows = np.asarray(batch, dtype=np.float64) * np.asarray(heads, dtype=np.float64)
    queries = np.asarray(seq_q, dtype=np.float64)
    keys = np.asarray(seq_kv, dtype=np.float64)
    depth = np.asarray(head_dim, dtype=np.float64)
    slope = (1.0 - c.head_dim_64_factor) / 64.0
    dim_factor = np.clip(1.0 - slope * (128.0 - depth), 0.25, 1.5)
    scale = (2.0 if causal else 4.0) * work / (peak_flops * efficiency)
    # F / (s / (s + s0)): one factor s_kv cancels. A causal row meets half of the keys on average,
    # so the same overhead a block shows as half of the length when nothing is masked.
    overhead = half_seq if causal else 0.5 * half_seq
    per_head = scale * queries * (keys + overhead) * depth / dim_factor
    # A list schedule on S machines ends at most one job after work / S (Graham 1966). Backward
    # splits the keys instead of the queries, into as many blocks.
    blocks_per_head = np.maximum(queries, keys) / c.block_rows
    return per_head * (rows + (c.tail_waves * c.sm_count) / blocks_per_head) + c.floor_s


def unfused_attention_forward_seconds(
    gemm: GemmConstants,
    memory: MemoryBoundConstants,
    peak_flops: float,
    hbm_bytes_per_s: float,
    batch: ArrayLike,
    heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    *,
    dropout: bool = True,
    misaligned_slowdown: float = MISALIGNED_SLOWDOWN,
) -> NDArray[np.float64]:
    """Seconds of scores, fused masked softmax, dropout and weighted sum, all s² scores computed.

    Traffic a score: 4 bytes for the half-precision softmax (read, write), 5 for dropout (read,
    write, one mask byte).

    Args:
        gemm: constants of matrix multiplication in this precision.
        memory: shares of HBM bandwidth.
        peak_flops: dense FLOP/s of this precision.
        hbm_bytes_per_s: datasheet memory bandwidth.
        batch: sequences, any shape; the others broadcast against it.
        heads: query heads on this device.
        seq_q: queries a sequence.
        seq_kv: keys a sequence.
        head_dim: size of one head.
        dropout: whether attention dropout runs.
        misaligned_slowdown: cost of products whose head dimension is no multiple of 8.

    Returns:
        Seconds, float64 of the broadcast shape.
    """
    rows = np.asarray(batch, dtype=np.float64) * np.asarray(heads, dtype=np.float64)
    slow = _misaligned(head_dim, misaligned_slowdown)
    hbm = hbm_bytes_per_s
    products = gemm_seconds(gemm, peak_flops, hbm, seq_q, seq_kv, head_dim, rows) + gemm_seconds(
        gemm, peak_flops, hbm, seq_q, head_dim, seq_kv, rows
    )
    scores = rows * np.asarray(seq_q, dtype=np.float64) * np.asarray(seq_kv, dtype=np.float64)
    pointwise = traffic_seconds(4.0 * scores, hbm, memory.softmax, memory.floor_s)
    if dropout:
        pointwise = pointwise + traffic_seconds(5.0 * scores, hbm, memory.softmax, memory.floor_s)
    return products * slow + pointwise


def unfused_attention_backward_seconds(
    gemm: GemmConstants,
    memory: MemoryBoundConstants,
    peak_flops: float,
    hbm_bytes_per_s: float,
    batch: ArrayLike,
    heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    *,
    dropout: bool = True,
    misaligned_slowdown: float = MISALIGNED_SLOWDOWN,
) -> NDArray[np.float64]:
    """Seconds of its backward: four batched products, 6 bytes a score softmax, 5 dropout.

    Arguments as `unfused_attention_forward_seconds`.
    """
    rows = np.asarray(batch, dtype=np.float64) * np.asarray(heads, dtype=np.float64)
    slow = _misaligned(head_dim, misaligned_slowdown)
    hbm = hbm_bytes_per_s
    # Gradients of values and keys have the shape of the weighted sum transposed, that of the
    # queries its own; the gradient of the probabilities has the shape of the scores.
    products = gemm_seconds(gemm, peak_flops, hbm, seq_q, seq_kv, head_dim, rows)
    products = products + gemm_seconds(gemm, peak_flops, hbm, seq_q, head_dim, seq_kv, rows)
    products = products + 2.0 * gemm_seconds(gemm, peak_flops, hbm, seq_kv, head_dim, seq_q, rows)
    scores = rows * np.asarray(seq_q, dtype=np.float64) * np.asarray(seq_kv, dtype=np.float64)
    pointwise = traffic_seconds(6.0 * scores, hbm, memory.softmax, memory.floor_s)
    if dropout:
        pointwise = pointwise + traffic_seconds(5.0 * scores, hbm, memory.softmax, memory.floor_s)
    return products * slow + pointwise


def _misaligned(head_dim: ArrayLike, slowdown: float) -> NDArray[np.float64]:
    return np.where(np.asarray(head_dim) % 8 == 0, 1.0, slowdown)
