"""Bytes a token that one layer keeps from forward to backward, by what divides them.

Term by term this is Korthikanti et al. 2022 (arXiv 2205.05198), section 4, generalised to grouped
heads, gated feed-forward blocks and flash attention. Everything here is scalar: sizes that
differ from plan to plan enter in `vtrain.memory.stage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.stack import Stack

ELEMENT = 2.0  # bytes of a bf16 or fp16 activation
MASK = 1.0  # bytes of one element of a dropout mask (Korthikanti et al., section 4.1)
LOGSUMEXP = 4.0  # bytes a head and token that flash attention keeps (arXiv 2205.14135, alg. 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBytes:
    """Bytes a token of the micro-batch held by one rank, by what divides them.

    Attributes:
        split: divided by tp.
        key_value: divided by tp, but by no more than the number of key-value heads.
        stream: divided by tp under sequence parallelism, else whole.
        whole: never divided.
    """

    split: float = 0.0
    key_value: float = 0.0
    stream: float = 0.0
    whole: float = 0.0

    def __add__(self, other: TokenBytes) -> TokenBytes:
        """Add term by term."""
        return TokenBytes(
            split=self.split + other.split,
            key_value=self.key_value + other.key_value,
            stream=self.stream + other.stream,
            whole=self.whole + other.whole,
        )

    def __sub__(self, other: TokenBytes) -> TokenBytes:
        """Subtract term by term."""
        return TokenBytes(
            split=self.split - other.split,
            key_value=self.key_value - other.key_value,
            stream=self.stream - other.stream,
            whole=self.whole - other.whole,
        )


NOTHING = TokenBytes()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerActivations:
    """What one layer keeps, by part.

    Attributes:
        parts: kept from forward to backward, by part of the layer.
        recomputed: rebuilt for one layer at a time during backward.
    """

    parts: dict[str, TokenBytes]
    recomputed: TokenBytes

    @property
    def kept(self) -> TokenBytes:
        """Sum of the parts."""
        return sum(self.parts.values(), NOTHING)


def layer_activations(
    architecture: Architecture,
    stack: Stack,
    recompute: str,
    seq_length: int,
    *,
    sequence_parallel: bool,
) -> LayerActivations:
    """Return what one layer keeps for one token.

    Args:
        architecture: the model.
        stack: the software; decides fusion, dropout and copies.
        recompute: one of `vtrain.plan.RECOMPUTE`.
        seq_length: tokens of one whole sequence (unfused scores grow with it).
        sequence_parallel: only then can gathered inputs be kept beside shards.
    """
    everything = _everything(architecture, stack, seq_length, sequence_parallel=sequence_parallel)
    whole_layer = sum(everything.values(), NOTHING)
    if recompute == "none":
        return LayerActivations(parts=everything, recomputed=NOTHING)
    if recompute == "full":
        boundary = {"layer input": TokenBytes(stream=ELEMENT * architecture.hidden_size)}
        return LayerActivations(parts=boundary, recomputed=whole_layer - boundary["layer input"])
    modules = stack.activations.selective
    if "every-second-matmul" in modules:
        parts = _every_second_matmul(architecture)
        if stack.activations.compiled:
            del parts["mlp output"]
    else:
        dropped = {name for module in modules for name in _DROPPED[module]}
        parts = {name: value for name, value in everything.items() if name not in dropped}
    return LayerActivations(parts=parts, recomputed=whole_layer - sum(parts.values(), NOTHING))


# Megatron-Core `--recompute-modules` (megatron/core/transformer/transformer_config.py): core_attn,
# layernorm, activation of the feed-forward block, mlp.
_DROPPED = {
    "attention": ("attention scores",),
    "norm": ("attention norm output", "mlp norm output"),
    "activation": ("activation output",),
    "mlp": ("mlp inner", "activation output", "mlp norm output"),
}


def _everything(
    a: Architecture, stack: Stack, seq_length: int, *, sequence_parallel: bool
) -> dict[str, TokenBytes]:
    h, q, kv, f = a.hidden_size, a.query_size, a.key_value_size, a.ffn_hidden_size
    facts = stack.activations
    norm_output = facts.linear_input * h
    if facts.gathered_inputs_kept and sequence_parallel:
        one_norm_output = TokenBytes(whole=norm_output)
    else:
        one_norm_output = TokenBytes(stream=norm_output)
    parts = {
        "norm inputs": TokenBytes(stream=2 * ELEMENT * h),
        "attention norm output": one_norm_output,
        "mlp norm output": one_norm_output,
        "queries": TokenBytes(split=ELEMENT * q),
        "keys and values": TokenBytes(key_value=2 * ELEMENT * kv),
        "attention output": TokenBytes(split=facts.attention_output_copies * ELEMENT * q),
        "attention scores": _scores(a, stack, seq_length),
        # A gated block keeps gate and up projections, a plain one its single projection.
        "mlp inner": TokenBytes(split=(a.mlp_matrices - 1) * ELEMENT * f),
        "activation output": TokenBytes(split=facts.linear_input * f),
    }
    if a.gated_mlp and not stack.fused_activation:
        # Unfused, the activated gate is kept for the product's backward pass.
        parts["mlp inner"] += TokenBytes(split=ELEMENT * f)
    if a.qk_norm != "none":
        parts["norm inputs"] += TokenBytes(split=ELEMENT * q, key_value=ELEMENT * kv)
    if stack.dropout:
        parts["dropout masks"] = TokenBytes(stream=2 * MASK * h)
    return parts


def _scores(a: Architecture, stack: Stack, seq_length: int) -> TokenBytes:
    """Softmax output, dropout mask and dropout output (5 a s), or flash's log-sum-exp."""
    if stack.attention != "unfused":
        return TokenBytes(split=LOGSUMEXP * a.num_attention_heads)
    bytes_per_score = stack.activations.score_bytes
    if stack.dropout:
        bytes_per_score += MASK + ELEMENT
    return TokenBytes(split=bytes_per_score * a.num_attention_heads * seq_length)


def _every_second_matmul(a: Architecture) -> dict[str, TokenBytes]:
    """Torchtitan's selective option: every second matrix product and the attention output.

    `torchtitan/distributed/activation_checkpoint.py`: of the seven products of a gated block the
    outputs of query, value, first and last feed-forward product stay. The last one is read by
    nobody in the backward pass, so a compiled layer drops it.
    """
    return {
        "layer input": TokenBytes(stream=ELEMENT * a.hidden_size),
        "queries": TokenBytes(split=ELEMENT * a.query_size),
        "keys and values": TokenBytes(key_value=ELEMENT * a.key_value_size),
        "attention output": TokenBytes(split=ELEMENT * a.query_size),
        "mlp inner": TokenBytes(split=ELEMENT * a.ffn_hidden_size),
        "mlp output": TokenBytes(stream=ELEMENT * a.hidden_size),
    }
