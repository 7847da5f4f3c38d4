"""The model that Megatron-LM arguments describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.formats.megatron import names

if TYPE_CHECKING:
    from vtrain.formats.fields import Fields

GPT2_VOCABULARY = 50_257
"""Tokens of GPT-2's byte-pair vocabulary (Radford et al. 2019)."""


def _refuse_other_models(fields: Fields) -> None:
    for name, kind in names.OTHER_MODELS.items():
        value = fields.raw(name)
        if value not in (None, False, 0, "0", "null", "None"):
            raise UserInputError(
                f"--{name.replace('_', '-')} asks for {kind}, which is not supported yet",
                hint="dense decoders are known",
            )


def read_architecture(
    fields: Fields, notes: list[str], *, vocab_size: int | None, is_yaml: bool
) -> Architecture:
    """Turn arguments into an architecture, with Megatron-LM's own defaults.

    Args:
        fields: the arguments.
        notes: what is assumed is appended.
        vocab_size: tokens of the vocabulary, where it comes with the tokenizer.
        is_yaml: a YAML states num_query_groups without a switch.

    Raises:
        UserInputError: wrong type, contradictory sizes, or another kind of model.
    """
    _refuse_other_models(fields)
    hidden = fields.whole("hidden_size")
    heads = fields.whole("num_attention_heads")
    head_dim = fields.maybe_whole("kv_channels")
    if head_dim is None and hidden % heads:
        raise UserInputError(
            f"num_attention_heads={heads} must divide hidden_size={hidden} where kv_channels is "
            "not given"
        )
    groups = fields.maybe_whole("num_query_groups")
    grouped = fields.flag("group_query_attention", default=is_yaml and groups is not None)
    if groups is not None and not grouped and not is_yaml and groups != 1:
        notes.append("--num-query-groups has no effect without --group-query-attention")
    # Lists, not `or`: every field must be taken, or it would be reported as unknown.
    gated = any([fields.flag(n) for n in ("swiglu", "gated_linear_unit", "quick_geglu")])
    # Megatron's own defaults where no size is given (megatron/training/arguments.py).
    ffn = fields.maybe_whole("ffn_hidden_size")
    if ffn is None:
        ffn = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
        notes.append(f"ffn_hidden_size is not in the file: Megatron's default, {ffn}")
    fields.raw("activation_func")
    position, longest = _position(fields)
    norm_name = fields.word("normalization", default="LayerNorm")
    norms = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}
    if norm_name not in norms:
        raise UserInputError(f"normalization={norm_name} is not known", hint="LayerNorm or RMSNorm")
    linear_bias = all(
        [
            fields.flag("add_bias_linear", default=True),
            not fields.flag("disable_bias_linear"),
        ]
    )
    qkv_bias = fields.flag("add_qkv_bias")
    qk_norm = "head" if fields.flag("qk_layernorm") else "none"
    if qk_norm == "head" and norm_name == "LayerNorm":
        notes.append("the biases of LayerNorm on queries and keys are not counted")
    return Architecture(
        num_layers=fields.whole("num_layers", "decoder_num_layers"),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=groups if grouped and groups is not None else heads,
        head_dim=head_dim or hidden // heads,
        ffn_hidden_size=ffn,
        gated_mlp=gated,
        vocab_size=_vocabulary(fields, notes, vocab_size),
        tied_embeddings=not fields.flag("untie_embeddings_and_output_weights"),
        position=position,
        max_positions=longest,
        norm=norms[norm_name],
        attention_qkv_bias=qkv_bias or linear_bias,
        attention_output_bias=linear_bias,
        mlp_bias=linear_bias,
        qk_norm=qk_norm,
        embedding_norm=fields.flag("embed_layernorm"),
    )


def _position(fields: Fields) -> tuple[str, int]:
    """Return the kind of positions and the rows of a learned table."""
    kind = fields.word("position_embedding_type", default="learned_absolute")
    if fields.flag("use_rotary_position_embeddings"):
        kind = "rope"
    longest = fields.maybe_whole("max_position_embeddings")
    kinds = {
        "learned_absolute": "learned", "rope": "rotary", "rotary": "rotary", "yarn": "rotary",
        "none": "none", "alibi": "alibi",
    }  # fmt: skip
    if kind not in kinds:
        raise UserInputError(
            f"position_embedding_type={kind} is not known", hint=f"one of {', '.join(kinds)}"
        )
    if kinds[str(kind)] != "learned":
        return kinds[str(kind)], 0
    return "learned", longest or fields.whole("seq_length", "encoder_seq_length")


def _vocabulary(fields: Fields, notes: list[str], given: int | None) -> int:
    tokenizer = fields.word("tokenizer_type")
    size = fields.maybe_whole("vocab_size")
    padded = fields.maybe_whole("padded_vocab_size", "pad_vocab_size_to")
    multiple = fields.maybe_whole("make_vocab_size_divisible_by")
    if multiple not in (None, 128):
        notes.append(f"make_vocab_size_divisible_by={multiple}: a stack pads by its vocab_multiple")
    if given is not None:
        return given
    if size is not None and tokenizer == "NullTokenizer":
        # megatron/core/tokenizers: NullTokenizer adds the end-of-document token.
        notes.append(f"NullTokenizer adds one token: the vocabulary is {size} + 1")
        return size + 1
    if size is not None:
        return size
    if padded is not None:
        notes.append(f"only the padded vocabulary is in the file: {padded}")
        return padded
    if tokenizer == "GPT2BPETokenizer":
        notes.append(f"GPT2BPETokenizer: GPT-2's vocabulary of {GPT2_VOCABULARY} is assumed")
        return GPT2_VOCABULARY
    raise UserInputError(
        "the vocabulary size is not in the file, it comes with the tokenizer",
        hint="add --vocab-size N to the arguments, or pass --vocab N to vtrain import",
    )
