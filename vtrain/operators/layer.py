"""Seconds of one transformer layer for one micro-batch on one rank, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.collectives import collective_seconds
from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.memory_bound import traffic_seconds
from vtrain.operators.attention import attention_seconds, ring_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.operators.workload import Workload

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCosts:
    """Seconds of one layer and micro-batch, arrays over the shapes of a workload.

    Communication is already split: `*_communication_s` is what compute does not hide.

    Attributes:
        forward_matrix_s: matrix multiplications.
        forward_attention_s: scores, softmax and weighted sum.
        forward_memory_s: norms, activation, rotary, residual.
        forward_communication_s: exposed tensor- and context-parallel traffic.
        input_gradient_s: matrix multiplications of the input gradients.
        weight_gradient_s: matrix multiplications of the weight gradients.
        backward_attention_s: backward of the attention core.
        backward_memory_s: backward of the memory-bound kernels.
        backward_communication_s: exposed traffic of the backward pass.
        recompute_s: what is computed (and sent) a second time.
    """

    forward_matrix_s: Array
    forward_attention_s: Array
    forward_memory_s: Array
    forward_communication_s: Array
    input_gradient_s: Array
    weight_gradient_s: Array
    backward_attention_s: Array
    backward_memory_s: Array
    backward_communication_s: Array
    recompute_s: Array

    @property
    def forward_s(self) -> Array:
        """Seconds of the forward pass."""
        return (
            self.forward_matrix_s
            + self.forward_attention_s
            + self.forward_memory_s
            + self.forward_communication_s
        )

    @property
    def backward_s(self) -> Array:
        """Seconds of the backward pass, recomputation included."""
        return (
            self.input_gradient_s
            + self.weight_gradient_s
            + self.backward_attention_s
            + self.backward_memory_s
            + self.backward_communication_s
            + self.recompute_s
        )


def layer_costs(work: Workload) -> LayerCosts:
    """Return the costs of one layer for every shape of the workload.

    Shapes of the multiplications: Narayanan et al. 2021 (arXiv 2104.04473) §2.3, generalised to
    grouped heads and gated feed-forward blocks; collectives of sequence parallelism and
    recomputation: Korthikanti et al. 2022 (arXiv 2205.05198).
    """
    forward, input_gradient, weight_gradient = _matrices(work)
    attention_forward, attention_backward = attention_seconds(work)
    memory_forward, memory_backward = _memory_bound(work)
    communication = _tensor_parallel(work)
    cp_forward, cp_backward = ring_seconds(work, attention_forward, attention_backward)
    recompute = np.zeros_like(forward)
    if work.structure.recompute == "full":
        recompute = forward + attention_forward + memory_forward + communication + cp_forward
        recompute = recompute + _checkpoint(work)
    elif work.structure.recompute == "selective":
        recompute = _selective(work, forward, attention_forward + cp_forward, memory_forward)
    return LayerCosts(
        forward_matrix_s=forward,
        forward_attention_s=attention_forward,
        forward_memory_s=memory_forward,
        forward_communication_s=communication + cp_forward,
        input_gradient_s=input_gradient,
        weight_gradient_s=weight_gradient,
        backward_attention_s=attention_backward,
        backward_memory_s=memory_backward,
        backward_communication_s=communication + cp_backward,
        recompute_s=recompute,
    )


def _checkpoint(work: Workload) -> Array:
    """Seconds of moving the kept input of a layer off the device and back, half precision."""
    rate = work.stack.checkpoint_bytes_per_s
    if rate <= 0.0:
        return np.zeros_like(work.tp)
    bytes_ = 2.0 * work.tokens_between_blocks * work.architecture.hidden_size
    return bytes_ * (work.site.host / rate)


def _selective(work: Workload, matrix: Array, attention: Array, memory: Array) -> Array:
    """Seconds of what selective recomputation runs again, by the modules the stack names.

    Norm, activation and rotary embedding share the memory-bound seconds of a layer; where one
    of them is recomputed about half of those seconds are (activation and norms weigh the same
    in a gated block with f = 8/3 h).
    """
    modules = work.stack.activations.selective
    seconds = np.zeros_like(matrix)
    if "attention" in modules:
        seconds = seconds + attention
    if "every-second-matmul" in modules:
        return seconds + 0.5 * matrix + memory
    if "mlp" in modules:
        arch = work.architecture
        mlp = arch.mlp_matrices * arch.hidden_size * arch.ffn_hidden_size
        seconds = seconds + matrix * (mlp / arch.matmul_parameters_per_layer)
    if "norm" in modules:
        seconds = seconds + 0.5 * memory
    if "activation" in modules or "mlp" in modules:
        seconds = seconds + 0.5 * memory
    return seconds


def _matrices(work: Workload) -> tuple[Array, Array, Array]:
    """Forward, input gradient and weight gradient of the four (or five) matrices."""
    arch = work.architecture
    tp = work.tp
    ones = np.ones_like(tp)
    gates = 2.0 if arch.gated_mlp else 1.0
    outputs = np.stack(
        [
            (arch.query_size + 2.0 * arch.key_value_size) / tp,
            arch.hidden_size * ones,
            gates * arch.ffn_hidden_size / tp,
            arch.hidden_size * ones,
        ]
    )
    inputs = np.stack(
        [
            arch.hidden_size * ones,
            arch.query_size / tp,
            arch.hidden_size * ones,
            arch.ffn_hidden_size / tp,
        ]
    )
    rows = np.broadcast_to(work.tokens, outputs.shape)
    device = work.cluster.device
    args = (work.gemm, work.gemm_peak_flops, device.hbm_bytes_per_s)
    scale = work.site.matrix
    forward = gemm_seconds(*args, rows, outputs, inputs).sum(axis=0) * scale
    input_gradient = gemm_seconds(*args, rows, inputs, outputs).sum(axis=0) * scale
    # The weight gradient reuses the casts of forward (its input) and of the input gradient.
    weight_gradient = gemm_seconds(*args, outputs, inputs, rows, input_is_quantised=True)
    weight_gradient = weight_gradient.sum(axis=0)
    return forward, input_gradient, weight_gradient * (scale * work.gemm.weight_gradient)


def _memory_bound(work: Workload) -> tuple[Array, Array]:
    """Forward and backward traffic of norms, rotary, activation and residual, half precision.

    Minimum bytes a token, 2-byte elements. Forward: a norm reads and writes h; rotary reads and
    writes queries and keys; SwiGLU reads 2f and writes f, GELU reads and writes f; the residual
    reads 2h and writes h (dropout adds a 1-byte mask). Backward: a norm reads its input and
    gradient and writes one; SwiGLU reads 3f and writes 2f, GELU reads 2f and writes f; the
    residual adds two gradients; dropout reads gradient and mask and writes.
    """
    arch, stack, tp = work.architecture, work.stack, work.tp
    constants = work.cluster.device.memory_bound
    hbm = work.cluster.device.hbm_bytes_per_s
    inside, between = work.tokens, work.tokens_between_blocks
    h, f = float(arch.hidden_size), float(arch.ffn_hidden_size)
    heads = float(arch.query_size + arch.key_value_size)
    norm_forward, norm_backward = (
        (constants.norm_forward_fused, constants.norm_backward_fused)
        if stack.fused_norm
        else (constants.norm_forward_eager, constants.norm_backward_eager)
    )
    activation = (
        constants.activation_fused if stack.fused_activation else constants.activation_eager
    )
    activation_forward, activation_backward = (6.0, 10.0) if arch.gated_mlp else (4.0, 6.0)
    if arch.gated_mlp and not stack.fused_activation:
        # Activation and product run apart: SiLU 4f, product 6f; backward 10f and 6f.
        activation_forward, activation_backward = 10.0, 16.0
    rotary = constants.rotary if stack.fused_rope else constants.rotary / 2.0
    floor = constants.floor_s

    def seconds(bytes_a_token: float, tokens: Array, fraction: float) -> Array:
        return traffic_seconds(bytes_a_token * tokens, hbm, fraction, floor)

    inner = inside / tp
    forward = 2.0 * seconds(4.0 * h, between, norm_forward)
    forward += seconds(activation_forward * f, inner, activation)
    forward += 2.0 * seconds(
        (7.0 if stack.dropout else 6.0) * h, between, constants.bias_dropout_residual
    )
    backward = 2.0 * seconds(6.0 * h, between, norm_backward)
    backward += seconds(activation_backward * f, inner, activation)
    backward += 2.0 * seconds(6.0 * h, between, constants.bias_dropout_residual)
    if stack.dropout:
        backward += 2.0 * seconds(5.0 * h, between, constants.bias_dropout_residual)
    if arch.position == "rotary":
        forward += seconds(4.0 * heads, inner, rotary)
        backward += seconds(4.0 * heads, inner, rotary)
    if arch.qk_norm != "none":
        forward += seconds(4.0 * heads, inner, norm_forward)
        backward += seconds(6.0 * heads, inner, norm_backward)
    return forward * work.site.memory, backward * work.site.memory


def _tensor_parallel(work: Workload) -> Array:
    """Exposed seconds of the two collectives (or gather-scatter pairs) of one direction.

    Plain tensor parallelism all-reduces the output of both blocks; sequence parallelism gathers
    their inputs and scatters their outputs (the second gather of the backward pass hides behind
    the input gradient and is not counted).
    """
    if np.all(work.tp == 1.0):
        return np.zeros_like(work.tp)
    elements = work.tokens * work.architecture.hidden_size
    place = (work.tp, 1.0)
    if work.structure.sequence_parallel:
        # What is gathered feeds a product, so it travels in that product's format (Transformer
        # Engine gathers quantised tensors); what is summed stays in half precision.
        width = 2.0 if work.precision == work.half_precision else 1.0
        once = collective_seconds(work.cluster, "all_gather", width * elements, *place)
        once = once + collective_seconds(work.cluster, "reduce_scatter", 2.0 * elements, *place)
    else:
        once = collective_seconds(work.cluster, "all_reduce", 2.0 * elements, *place)
    overlap = work.stack.overlap
    exposed = (1.0 - overlap.tp) + (overlap.slow_down - 1.0) * overlap.tp
    return 2.0 * once * (exposed * work.site.communication)
