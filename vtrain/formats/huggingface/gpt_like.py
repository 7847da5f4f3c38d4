"""Families of the GPT block: LayerNorm, plain MLP, one key-value head for each query head.

Biases, norms and position tables are read off each family's modelling file in transformers 5.24
(`models/<family>/modeling_<family>.py`); the counts are tested against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.formats.huggingface.family import Family, flag_or_note, head_size

if TYPE_CHECKING:
    from vtrain.formats.fields import Fields

OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows more than positions (`OPTLearnedPositionalEmbedding`)."""


def _sizes(fields: Fields, *, hidden: tuple[str, ...], layers: tuple[str, ...],
           heads: tuple[str, ...]) -> dict[str, Any]:  # fmt: skip
    width = fields.whole(*hidden)
    count = fields.whole(*heads)
    return {
        "num_layers": fields.whole(*layers),
        "hidden_size": width,
        "num_attention_heads": count,
        "num_key_value_heads": count,
        "head_dim": head_size(fields, width, count),
        "gated_mlp": False,
        "vocab_size": fields.whole("vocab_size"),
    }


def _biases(value: bool) -> dict[str, Any]:
    return {"attention_qkv_bias": value, "attention_output_bias": value, "mlp_bias": value}


def _read_gpt2(fields: Fields, notes: list[str]) -> Architecture:
    sizes = _sizes(
        fields, hidden=("n_embd", "hidden_size"), layers=("n_layer", "num_hidden_layers"),
        heads=("n_head", "num_attention_heads"),
    )  # fmt: skip
    if fields.flag("add_cross_attention"):
        raise UserInputError("add_cross_attention=true: only decoder-only models are known")
    return Architecture(
        **sizes,
        **_biases(True),
        # transformers: n_inner null means four times the width.
        ffn_hidden_size=fields.maybe_whole("n_inner") or 4 * sizes["hidden_size"],
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        position="learned",
        max_positions=_positions(fields),
        norm="layernorm",
    )


def _positions(fields: Fields) -> int:
    # Published GPT-2 configs carry n_ctx beside n_positions; the table follows n_positions.
    fields.raw("n_ctx")
    return fields.whole("n_positions", "max_position_embeddings")


def _write_gpt2(a: Architecture) -> dict[str, Any]:
    return {
        "n_embd": a.hidden_size,
        "n_layer": a.num_layers,
        "n_head": a.num_attention_heads,
        "n_inner": a.ffn_hidden_size,
        "n_positions": a.max_positions,
        "vocab_size": a.vocab_size,
        "tie_word_embeddings": a.tied_embeddings,
    }


def _read_neox(fields: Fields, notes: list[str]) -> Architecture:
    if fields.flag("use_parallel_residual", default=True):
        notes.append("use_parallel_residual is not modelled: the two halves of a layer run in turn")
    bias = fields.flag("attention_bias", default=True)
    return Architecture(
        **_sizes(
            fields, hidden=("hidden_size",), layers=("num_hidden_layers",),
            heads=("num_attention_heads",),
        ),
        ffn_hidden_size=fields.whole("intermediate_size"),
        tied_embeddings=flag_or_note(fields, notes, "tie_word_embeddings", False),
        position="rotary",
        norm="layernorm",
        attention_qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=True,
    )  # fmt: skip


def _write_neox(a: Architecture) -> dict[str, Any]:
    return {
        "hidden_size": a.hidden_size,
        "num_hidden_layers": a.num_layers,
        "num_attention_heads": a.num_attention_heads,
        "intermediate_size": a.ffn_hidden_size,
        "vocab_size": a.vocab_size,
        "tie_word_embeddings": a.tied_embeddings,
        "attention_bias": a.attention_qkv_bias,
        "use_parallel_residual": False,
        "hidden_act": "gelu",
    }


def _read_opt(fields: Fields, notes: list[str]) -> Architecture:
    sizes = _sizes(
        fields, hidden=("hidden_size",), layers=("num_hidden_layers",),
        heads=("num_attention_heads",),
    )  # fmt: skip
    projected = fields.maybe_whole("word_embed_proj_dim")
    if projected not in (None, sizes["hidden_size"]):
        raise UserInputError(
            f"word_embed_proj_dim={projected} differs from hidden_size={sizes['hidden_size']}",
            hint="projected embeddings (OPT-350M) are not supported; other OPT sizes are",
        )
    before = fields.flag("do_layer_norm_before", default=True)
    removed = fields.flag("_remove_final_layer_norm", default=False)
    if not before or removed:
        raise UserInputError(
            "an OPT without a final norm (do_layer_norm_before=false or "
            "_remove_final_layer_norm=true) is not supported",
            hint="all published OPT sizes but 350M have one",
        )
    affine = fields.flag("layer_norm_elementwise_affine", default=True)
    return Architecture(
        **sizes,
        **_biases(fields.flag("enable_bias", default=True)),
        ffn_hidden_size=fields.whole("ffn_dim"),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        position="learned",
        max_positions=fields.whole("max_position_embeddings") + OPT_POSITION_OFFSET,
        norm="layernorm" if affine else "layernorm-plain",
    )


def _write_opt(a: Architecture) -> dict[str, Any]:
    return {
        "hidden_size": a.hidden_size,
        "word_embed_proj_dim": a.hidden_size,
        "num_hidden_layers": a.num_layers,
        "num_attention_heads": a.num_attention_heads,
        "ffn_dim": a.ffn_hidden_size,
        "vocab_size": a.vocab_size,
        "max_position_embeddings": max(1, a.max_positions - OPT_POSITION_OFFSET),
        "tie_word_embeddings": a.tied_embeddings,
        "enable_bias": a.mlp_bias,
        "layer_norm_elementwise_affine": a.norm != "layernorm-plain",
        "activation_function": "relu",
    }


def _read_bloom(fields: Fields, notes: list[str]) -> Architecture:
    sizes = _sizes(
        fields, hidden=("hidden_size", "n_embed"), layers=("n_layer", "num_hidden_layers"),
        heads=("n_head", "num_attention_heads"),
    )  # fmt: skip
    return Architecture(
        **sizes,
        **_biases(True),
        ffn_hidden_size=4 * sizes["hidden_size"],
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        position="alibi",
        norm="layernorm",
        embedding_norm=True,
    )


def _write_bloom(a: Architecture) -> dict[str, Any]:
    return {
        "hidden_size": a.hidden_size,
        "n_layer": a.num_layers,
        "n_head": a.num_attention_heads,
        "vocab_size": a.vocab_size,
        "tie_word_embeddings": a.tied_embeddings,
    }


FAMILIES = (
    Family(
        model_type="gpt2", model_class="GPT2LMHeadModel", read=_read_gpt2, write=_write_gpt2,
        length_field="n_positions",
    ),
    Family(
        model_type="gpt_neox", model_class="GPTNeoXForCausalLM", read=_read_neox,
        write=_write_neox,
    ),
    Family(model_type="opt", model_class="OPTForCausalLM", read=_read_opt, write=_write_opt),
    Family(
        model_type="bloom", model_class="BloomForCausalLM", read=_read_bloom, write=_write_bloom,
        length_field="seq_length",
    ),
)  # fmt: skip
