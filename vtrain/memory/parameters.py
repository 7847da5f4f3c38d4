"""Parameters held by one rank of one stage: the count every state byte multiplies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankParameters:
    """Parameters of one tensor-parallel rank, one entry a plan.

    Attributes:
        layer: one transformer layer.
        layer_matrices: its matrices alone (what an fp8 copy is made of).
        embedding: what the stage with the input holds (tokens, positions, embedding norm).
        head: what the stage with the output holds (final norm, output matrix).
        tied_head: the output matrix that pp = 1 shares with a tied embedding, to be left out
            of `head` there.
        vocab_rows: rows of the padded vocabulary on one rank.
    """

    layer: Floats
    layer_matrices: Floats
    embedding: Floats
    head: Floats
    tied_head: Floats
    vocab_rows: Floats


def rank_parameters(architecture: Architecture, vocab_multiple: int, tp: Floats) -> RankParameters:
    """Count the parameters of one tensor-parallel rank.

    Column-parallel matrices and biases and the vocabulary are divided by tp; norms, biases after
    the row-parallel products and learned positions are on every rank (Megatron-LM
    `core/tensor_parallel/layers.py`). Key and value heads are copied where tp exceeds them.

    Args:
        architecture: the model.
        vocab_multiple: the vocabulary is padded to this times tp.
        tp: tensor-parallel degree of each plan.
    """
    a = architecture
    h = a.hidden_size
    # (weights, biases) by what divides them.
    split = 2 * h * a.query_size + a.mlp_matrices * h * a.ffn_hidden_size
    grouped = 2 * h * a.key_value_size
    split_biases = grouped_biases = 0
    whole = 2 * a.norm_parameters
    if a.attention_qkv_bias:
        split_biases += a.query_size
        grouped_biases += 2 * a.key_value_size
    if a.attention_output_bias:
        whole += h
    if a.mlp_bias:
        split_biases += (a.mlp_matrices - 1) * a.ffn_hidden_size
        whole += h
    if a.qk_norm == "head":
        whole += 2 * a.head_dim
    elif a.qk_norm == "full":
        split_biases += a.query_size
        grouped_biases += a.key_value_size
    by_heads = 1.0 / np.minimum(tp, a.num_key_value_heads)
    matrices = split / tp + grouped * by_heads
    layer = matrices + (split_biases / tp + grouped_biases * by_heads + whole)
    vocab_rows = np.ceil(a.vocab_size / (vocab_multiple * tp)) * vocab_multiple
    vocabulary = vocab_rows * h
    ends = a.max_positions * h + (a.norm_parameters if a.embedding_norm else 0)
    return RankParameters(
        layer=layer,
        layer_matrices=matrices,
        embedding=vocabulary + ends,
        head=vocabulary + a.norm_parameters,
        tied_head=vocabulary if a.tied_embeddings else np.zeros_like(vocabulary),
        vocab_rows=vocab_rows,
    )
