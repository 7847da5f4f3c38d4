"""Families of the Llama block: rotary positions, gated MLP, grouped heads, own head size.

Which projections have biases and which norms exist is read off each family's modelling file in
transformers 5.24 (`models/<family>/modeling_<family>.py`); the counts are tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.formats.huggingface.family import Family, flag_or_note, head_size

if TYPE_CHECKING:
    from vtrain.formats.fields import Fields


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """What sets one family apart from Llama."""

    norm: str = "rmsnorm"
    qk_norm: str = "none"
    fixed_qkv_bias: bool | None = None
    has_mlp_bias: bool = False
    has_sliding_window: bool = False
    default_key_value_heads: int | None = None
    default_head_dim: int | None = None

    def read(self, fields: Fields, notes: list[str]) -> Architecture:
        """Turn config fields into an architecture."""
        hidden = fields.whole("hidden_size")
        heads = fields.whole("num_attention_heads")
        key_value_heads = fields.maybe_whole("num_key_value_heads")
        if key_value_heads is None:
            key_value_heads = self.default_key_value_heads or heads
            notes.append(
                f"num_key_value_heads is not in the file: the library's default, {key_value_heads}"
            )
        head_dim = fields.maybe_whole("head_dim") or self.default_head_dim
        if self.fixed_qkv_bias is None:
            bias = fields.flag("attention_bias", default=False)
            qkv_bias, output_bias = bias, bias
        else:
            qkv_bias, output_bias = self.fixed_qkv_bias, False
        if self.has_sliding_window:
            _note_sliding_window(fields, notes)
        return Architecture(
            num_layers=fields.whole("num_hidden_layers"),
            hidden_size=hidden,
            num_attention_heads=heads,
            num_key_value_heads=key_value_heads,
            head_dim=head_dim or head_size(fields, hidden, heads),
            ffn_hidden_size=fields.whole("intermediate_size"),
            gated_mlp=True,
            vocab_size=fields.whole("vocab_size"),
            tied_embeddings=flag_or_note(fields, notes, "tie_word_embeddings", False),
            position="rotary",
            norm=self.norm,
            attention_qkv_bias=qkv_bias,
            attention_output_bias=output_bias,
            mlp_bias=fields.flag("mlp_bias", default=False) if self.has_mlp_bias else False,
            qk_norm=self.qk_norm,
        )

    def write(self, a: Architecture) -> dict[str, Any]:
        """Turn an architecture into the family's config fields."""
        config: dict[str, Any] = {
            "hidden_size": a.hidden_size,
            "intermediate_size": a.ffn_hidden_size,
            "num_hidden_layers": a.num_layers,
            "num_attention_heads": a.num_attention_heads,
            "num_key_value_heads": a.num_key_value_heads,
            "head_dim": a.head_dim,
            "vocab_size": a.vocab_size,
            "tie_word_embeddings": a.tied_embeddings,
            "hidden_act": "silu",
        }
        if self.fixed_qkv_bias is None:
            config["attention_bias"] = a.attention_qkv_bias
        if self.has_mlp_bias:
            config["mlp_bias"] = a.mlp_bias
        if self.has_sliding_window:
            config["sliding_window"] = None
        return config


def _note_sliding_window(fields: Fields, notes: list[str]) -> None:
    window = fields.maybe_whole("sliding_window")
    used = fields.flag("use_sliding_window", default=window is not None)
    if used and window is not None:
        notes.append(f"sliding_window={window} is not modelled: attention is counted in full")


def _family(model_type: str, model_class: str, block: _Block) -> Family:
    return Family(
        model_type=model_type, model_class=model_class, read=block.read, write=block.write
    )


FAMILIES = (
    _family("llama", "LlamaForCausalLM", _Block(has_mlp_bias=True)),
    _family(
        "mistral",
        "MistralForCausalLM",
        _Block(fixed_qkv_bias=False, has_sliding_window=True, default_key_value_heads=8),
    ),
    _family(
        "qwen2",
        "Qwen2ForCausalLM",
        _Block(fixed_qkv_bias=True, has_sliding_window=True, default_key_value_heads=32),
    ),
    _family(
        "qwen3",
        "Qwen3ForCausalLM",
        _Block(
            qk_norm="head",
            has_sliding_window=True,
            default_key_value_heads=32,
            default_head_dim=128,
        ),
    ),
    _family("olmo", "OlmoForCausalLM", _Block(norm="layernorm-plain")),
    _family("olmo2", "Olmo2ForCausalLM", _Block(qk_norm="full")),
)
