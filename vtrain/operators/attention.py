"""Seconds of the attention core of one layer, and of the ring that context parallelism adds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.attention import (
    flash_backward_seconds,
    flash_forward_seconds,
    unfused_attention_backward_seconds,
    unfused_attention_forward_seconds,
)
from vtrain.latency.collectives import send_recv_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.operators.workload import Workload

    Array = npt.NDArray[np.float64]


def attention_seconds(work: Workload) -> tuple[Array, Array]:
    """Forward and backward of the attention core; context parallelism splits the queries."""
    arch = work.architecture
    device = work.cluster.device
    heads = arch.num_attention_heads / work.tp
    queries = work.seq_length / work.cp
    precision = work.half_precision
    peak = device.peak_flops[precision]
    scale = work.site.matrix
    depth = float(arch.head_dim)
    if work.stack.attention == "unfused":
        # Softmax and dropout are bound by memory: their site factor replaces that of the products,
        # which the whole is multiplied by below.
        slower = work.stack.score_traffic * work.site.memory / work.site.matrix
        memory = replace(
            device.memory_bound, softmax=min(1.0, device.memory_bound.softmax / slower)
        )
        common = (work.gemm_half, memory, peak, device.hbm_bytes_per_s)
        drop = work.stack.dropout
        whole = (work.micro_batch_size, heads, queries, float(work.seq_length), depth)
        return (
            unfused_attention_forward_seconds(*common, *whole, dropout=drop) * scale,
            unfused_attention_backward_seconds(*common, *whole, dropout=drop) * scale,
        )
    kernel = device.attention[_generation(work)]
    # Fused attention keeps the tensor cores as busy as a matrix product, so the power limit of a
    # long step slows it alike. A ring of context-parallel ranks runs cp kernels, each over the
    # keys of one rank (Liu et al. 2023, arXiv 2310.01889).
    factor = work.cp * (scale / (work.gemm_half.sustained * work.stack.attention_rate))
    part = (work.micro_batch_size, heads, queries, queries, depth)
    return (
        flash_forward_seconds(kernel, peak, *part) * factor,
        flash_backward_seconds(kernel, peak, *part) * factor,
    )


def _generation(work: Workload) -> str:
    """The newest kernel generation the device has, up to the one the stack ships."""
    have = work.cluster.device.attention
    wanted = work.stack.attention
    older = [name for name in ("flash3", "flash2", "flash1") if name <= wanted and name in have]
    return older[0] if older else min(have)


def ring_seconds(
    work: Workload, attention_forward: Array, attention_backward: Array
) -> tuple[Array, Array]:
    """Exposed seconds of passing keys and values round the ring, forward and backward.

    Each of cp - 1 steps sends this rank's keys and values (backward: their gradients too)
    while the attention of the step before runs (Liu et al. 2023, arXiv 2310.01889).
    """
    if np.all(work.cp == 1.0):
        zero = np.zeros_like(work.cp)
        return zero, zero
    chunk = 4.0 * work.tokens * work.architecture.key_value_size / work.tp
    step = send_recv_seconds(work.cluster, chunk, work.tp, group_size=work.cp)
    ring = step * (work.cp - 1.0) * work.site.communication
    hidden = (work.cp - 1.0) / work.cp
    forward = np.maximum(ring - hidden * attention_forward, 0.0)
    backward = np.maximum(2.0 * ring - hidden * attention_backward, 0.0)
    return forward, backward
