"""Decoder-only transformer architectures: exact parameter counts and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from vtrain.errors import UserInputError

POSITIONS = ("learned", "rotary", "alibi", "none")
NORMS = ("layernorm", "rmsnorm", "layernorm-plain")
QK_NORMS = ("none", "head", "full")


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One dense decoder transformer.

    Attributes:
        num_layers: transformer blocks.
        hidden_size: width of the residual stream.
        num_attention_heads: query heads.
        num_key_value_heads: key-value heads; equal to the query heads for plain multi-head.
        head_dim: size of one head; need not be hidden_size / num_attention_heads.
        ffn_hidden_size: inner width of the feed-forward block.
        gated_mlp: three feed-forward matrices (SwiGLU kind) instead of two.
        vocab_size: tokens in the vocabulary, before padding.
        tied_embeddings: the output head shares the input embedding.
        position: one of POSITIONS.
        max_positions: rows of a learned position table (0 when there is none).
        norm: one of NORMS; "layernorm-plain" has no parameters (OLMo 1).
        attention_qkv_bias: biases on the query, key and value projections.
        attention_output_bias: bias on the attention output projection.
        mlp_bias: biases on the feed-forward projections.
        qk_norm: normalisation of queries and keys, per head or over the full width.
        embedding_norm: a norm after the embedding (BLOOM).
        name: what people call it; empty for a design of the search.
    """

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    ffn_hidden_size: int
    gated_mlp: bool
    vocab_size: int
    tied_embeddings: bool = False
    position: str = "rotary"
    max_positions: int = 0
    norm: str = "rmsnorm"
    attention_qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str = "none"
    embedding_norm: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse shapes that cannot exist.

        Raises:
            UserInputError: naming the rule and the nearest valid value.
        """
        for field in (
            "num_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
            "head_dim", "ffn_hidden_size", "vocab_size",
        ):  # fmt: skip
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserInputError(f"{field} must be a whole number of at least 1, got {value!r}")
        if self.num_attention_heads % self.num_key_value_heads:
            heads = divisors(self.num_attention_heads)
            near = max(d for d in heads if d <= self.num_key_value_heads)
            raise UserInputError(
                f"num_key_value_heads={self.num_key_value_heads} must divide "
                f"num_attention_heads={self.num_attention_heads}",
                hint=f"nearest valid: num_key_value_heads={near}",
            )
        for field, choices in (("position", POSITIONS), ("norm", NORMS), ("qk_norm", QK_NORMS)):
            if getattr(self, field) not in choices:
                raise UserInputError(
                    f"{field}={getattr(self, field)!r} is not known",
                    hint=f"one of {', '.join(choices)}",
                )
        if (self.position == "learned") != (self.max_positions > 0):
            raise UserInputError(
                f"position={self.position!r} contradicts max_positions={self.max_positions}",
                hint="learned positions need max_positions > 0, all others need 0",
            )

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all key heads together (the values are as wide again)."""
        return self.num_key_value_heads * self.head_dim

    @property
    def mlp_matrices(self) -> int:
        """Feed-forward matrices: 3 when gated, else 2."""
        return 3 if self.gated_mlp else 2

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over the hidden size."""
        return {"layernorm": 2, "rmsnorm": 1, "layernorm-plain": 0}[self.norm] * self.hidden_size

    @property
    def matmul_parameters_per_layer(self) -> int:
        """Weights of the matrices of one layer, without biases and norms."""
        attention = self.hidden_size * (2 * self.query_size + 2 * self.key_value_size)
        return attention + self.mlp_matrices * self.hidden_size * self.ffn_hidden_size

    @property
    def parameters_per_layer(self) -> int:
        """Every parameter of one layer."""
        count = self.matmul_parameters_per_layer + 2 * self.norm_parameters
        if self.attention_qkv_bias:
            count += self.query_size + 2 * self.key_value_size
        if self.attention_output_bias:
            count += self.hidden_size
        if self.mlp_bias:
            count += (self.mlp_matrices - 1) * self.ffn_hidden_size + self.hidden_size
        if self.qk_norm == "head":
            count += 2 * self.head_dim
        elif self.qk_norm == "full":
            count += self.query_size + self.key_value_size
        return count

    @property
    def parameters_embedding(self) -> int:
        """Parameters of token embedding, learned positions and an untied output head."""
        tables = 1 if self.tied_embeddings else 2
        return (tables * self.vocab_size + self.max_positions) * self.hidden_size

    @property
    def parameters_non_embedding(self) -> int:
        """Parameters of all layers and the norms outside them."""
        norms = self.norm_parameters * (2 if self.embedding_norm else 1)
        return self.num_layers * self.parameters_per_layer + norms

    @property
    def parameters(self) -> int:
        """Every trainable parameter, with the unpadded vocabulary."""
        return self.parameters_embedding + self.parameters_non_embedding

    def forward_flops_per_token(self, seq_length: int, *, causal: bool = False) -> float:
        """FLOPs of the forward pass for one token (a multiply-add counts 2).

        Two FLOPs for each matrix weight a token meets (layers and output head; the embedding is
        a look-up) and 4 x s x (heads x head_dim) a layer for scores and values, as in Narayanan
        et al. 2021, appendix (arXiv 2104.04473), generalised to grouped heads and gated MLPs.

        Args:
            seq_length: tokens of one sequence.
            causal: count only the half of the scores that a causal mask keeps.
        """
        weights = self.num_layers * self.matmul_parameters_per_layer
        head = self.vocab_size * self.hidden_size
        attention = 4.0 * seq_length * self.query_size * self.num_layers
        return 2.0 * (weights + head) + (0.5 if causal else 1.0) * attention

    def training_flops_per_token(self, seq_length: int, *, causal: bool = False) -> float:
        """Model FLOPs of forward and backward for one token: three times the forward pass."""
        return 3.0 * self.forward_flops_per_token(seq_length, causal=causal)


def divisors(value: int) -> list[int]:
    """Return every divisor of a positive number, rising; a typing error of 1e12 stays quick."""
    small = [d for d in range(1, isqrt(value) + 1) if value % d == 0]
    return sorted({*small, *(value // d for d in small)})


def padded_vocab_size(vocab_size: int, tp: int, multiple: int = 128) -> int:
    """Return the vocabulary padded to a multiple of `multiple` x tp.

    Megatron-LM's rule (`megatron/training/tokenizer`, `_vocab_size_with_padding`).
    """
    step = multiple * tp
    return -(-vocab_size // step) * step


def default_ffn_hidden_size(hidden_size: int) -> int:
    """Return 8/3 x hidden rounded up to a multiple of 256 (Llama's rule, arXiv 2302.13971)."""
    return -(-8 * hidden_size // (3 * 256)) * 256


def default_architecture(
    *,
    hidden_size: int,
    num_layers: int,
    vocab_size: int = 128_256,
    head_dim: int = 128,
    num_key_value_heads: int | None = None,
    ffn_hidden_size: int | None = None,
) -> Architecture:
    """Build the Llama-like block that the search uses unless told otherwise.

    RMSNorm, rotary positions, SwiGLU, untied embedding; 8 key-value heads, 4 below a hidden
    size of 4,096 (fewer where they would not divide the query heads).

    Args:
        hidden_size: width; must be a multiple of head_dim.
        num_layers: depth.
        vocab_size: unpadded vocabulary.
        head_dim: size of one head.
        num_key_value_heads: overrides the default.
        ffn_hidden_size: overrides `default_ffn_hidden_size`.

    Raises:
        UserInputError: when head_dim does not divide hidden_size.
    """
    if hidden_size % head_dim:
        near = max(1, round(hidden_size / head_dim)) * head_dim
        raise UserInputError(
            f"hidden_size={hidden_size} must be a multiple of head_dim={head_dim}",
            hint=f"nearest valid: hidden_size={near}",
        )
    heads = hidden_size // head_dim
    if num_key_value_heads is None:
        wanted = 8 if hidden_size >= 4096 else 4
        num_key_value_heads = max(d for d in range(1, wanted + 1) if heads % d == 0)
    return Architecture(
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        ffn_hidden_size=default_ffn_hidden_size(hidden_size)
        if ffn_hidden_size is None
        else ffn_hidden_size,
        gated_mlp=True,
        vocab_size=vocab_size,
    )
