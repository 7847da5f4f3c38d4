"""Seconds of the embedding and of the output head with its loss, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.collectives import collective_seconds
from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.memory_bound import traffic_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.operators.workload import Workload

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndCosts:
    """Seconds for one micro-batch on the first and the last pipeline rank, arrays [n].

    Attributes:
        embedding_forward_s: look-up, positions, dropout, and its traffic.
        embedding_backward_s: scatter-add of the gradient.
        head_forward_s: final norm, logits and loss.
        head_backward_s: the same backward.
    """

    embedding_forward_s: Array
    embedding_backward_s: Array
    head_forward_s: Array
    head_backward_s: Array


def padded_vocab(vocab_size: int, tp: Array, multiple: int) -> Array:
    """Return the vocabulary padded to a multiple of `multiple` x tp (Megatron-LM's rule)."""
    step = multiple * tp
    return np.ceil(vocab_size / step) * step


def end_costs(work: Workload) -> EndCosts:
    """Return the costs of both ends for every shape of the workload."""
    arch, stack = work.architecture, work.stack
    device = work.cluster.device
    constants = device.memory_bound
    hbm = device.hbm_bytes_per_s
    tokens, between = work.tokens, work.tokens_between_blocks
    h = float(arch.hidden_size)
    memory = work.site.memory

    half = work.half_precision
    vocab = padded_vocab(arch.vocab_size, work.tp, stack.vocab_multiple) / work.tp
    # The head stays in half precision where the layers run fp8 (Transformer Engine's default).
    gemm = work.gemm_half
    args = (gemm, device.peak_flops[half], hbm)
    logits = gemm_seconds(*args, tokens, vocab, h)
    gradients = gemm_seconds(*args, tokens, h, vocab)
    gradients = gradients + gemm_seconds(*args, vocab, h, tokens) * gemm.weight_gradient

    # One third of the loss traffic is forward: the softmax is read once more for the gradient.
    loss = traffic_seconds(
        stack.loss_traffic_bytes_per_logit * tokens * vocab, hbm, constants.cross_entropy,
        constants.floor_s,
    )  # fmt: skip
    norm = traffic_seconds(4.0 * h * between, hbm, constants.norm_forward_fused, constants.floor_s)
    lookup = traffic_seconds(4.0 * h * tokens, hbm, constants.embedding, constants.floor_s)
    scatter = traffic_seconds(8.0 * h * tokens, hbm, constants.embedding, constants.floor_s)

    # The vocabulary is split over tp: the embedding sums its parts, the head gathers its input.
    activation = 2.0 * tokens * h
    if np.all(work.tp == 1.0):
        traffic = np.zeros_like(work.tp)
    elif work.structure.sequence_parallel:
        traffic = collective_seconds(work.cluster, "reduce_scatter", activation, work.tp, 1.0)
    else:
        traffic = collective_seconds(work.cluster, "all_reduce", activation, work.tp, 1.0)
    traffic = traffic * work.site.communication
    return EndCosts(
        embedding_forward_s=lookup * memory + traffic,
        embedding_backward_s=scatter * memory + traffic,
        head_forward_s=logits * work.site.matrix + (norm + loss / 3.0) * memory + traffic,
        head_backward_s=gradients * work.site.matrix
        + (1.5 * norm + loss * (2.0 / 3.0)) * memory
        + traffic,
    )
