"""Reads the `config.json` of a Hugging Face model into an Architecture.

Dense decoders only. What a family always does (Qwen2's biases, BLOOM's embedding norm) is not in
its config.json, so families are told apart by `model_type`; one that is not known is refused
rather than guessed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Differences between families of Llama's kind: rotary, RMSNorm, gated MLP, no biases, untied.
_LLAMA_LIKE: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"attention_qkv_bias": True},
    "qwen3": {"qk_norm": "head"},
    "olmo": {"norm": "layernorm-plain"},
    "olmo2": {"qk_norm": "full"},
    "gemma": {"tied_embeddings": True},
}
# Differences between families of GPT's kind: LayerNorm, biases, plain MLP, multi-head.
_GPT_LIKE: dict[str, dict[str, Any]] = {
    "gpt2": {"position": "learned", "tied_embeddings": True},
    "opt": {"position": "learned", "tied_embeddings": True},
    "bloom": {"position": "alibi", "tied_embeddings": True, "embedding_norm": True},
    "gpt_neox": {"position": "rotary", "tied_embeddings": False},
}
_KEYS = {
    "num_layers": ("num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "ffn_hidden_size": ("intermediate_size", "ffn_dim", "n_inner"),
    "vocab_size": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions", "seq_length"),
}
_OPT_POSITION_OFFSET = 2  # facebook/opt reserves two rows of its position table


def read_hf_config(path: Path) -> tuple[Architecture, int]:
    """Read a config.json.

    Args:
        path: the file.

    Returns:
        The architecture, named after the file's folder, and the longest sequence the model
        takes: a config does not say with which one it was trained.

    Raises:
        UserInputError: unreadable file, unknown family, missing field or impossible shape.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise UserInputError(f"{str(path)!r} is not JSON: {error}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise UserInputError(f"{str(path)!r} is no model configuration: it has no model_type")
    return architecture_of(config, name=path.resolve().parent.name)


def architecture_of(config: dict[str, Any], *, name: str = "") -> tuple[Architecture, int]:
    """Turn the values of a config.json into an architecture and its longest sequence.

    Raises:
        UserInputError: as `read_hf_config`.
    """
    family = str(config["model_type"])
    if any("expert" in key for key in config):
        raise UserInputError(
            f"model_type={family!r} has experts", hint="only dense models are understood so far"
        )

    def size(field: str) -> int:
        for key in _KEYS[field]:
            if isinstance(config.get(key), int):
                return int(config[key])
        raise UserInputError(f"the configuration lacks {' or '.join(_KEYS[field])}")

    if family in _LLAMA_LIKE:
        return _llama_like(config, family, size, name), size("positions")
    if family in _GPT_LIKE:
        return _gpt_like(config, family, size, name)
    raise unknown_name("model_type", family, {*_LLAMA_LIKE, *_GPT_LIKE})


def _llama_like(
    config: dict[str, Any], family: str, size: Callable[[str], int], name: str
) -> Architecture:
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    bias = bool(config.get("attention_bias", False))
    values: dict[str, Any] = {
        "attention_qkv_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bool(config.get("mlp_bias", False)),
        **_LLAMA_LIKE[family],
    }
    if "tie_word_embeddings" in config:
        values["tied_embeddings"] = bool(config["tie_word_embeddings"])
    return Architecture(
        num_layers=size("num_layers"),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        ffn_hidden_size=size("ffn_hidden_size"),
        gated_mlp=True,
        vocab_size=size("vocab_size"),
        name=name,
        **values,
    )


def _gpt_like(
    config: dict[str, Any], family: str, size: Callable[[str], int], name: str
) -> tuple[Architecture, int]:
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    if config.get("word_embed_proj_dim", hidden) != hidden:
        raise UserInputError(
            f"word_embed_proj_dim must equal hidden_size={hidden}",
            hint="embeddings of another width (OPT-350M) are not understood",
        )
    has_ffn = any(isinstance(config.get(key), int) for key in _KEYS["ffn_hidden_size"])
    # BLOOM's config.json names no maximum: ALiBi has none. It was trained at 2,048.
    positions = 2048 if family == "bloom" and "seq_length" not in config else size("positions")
    values = dict(_GPT_LIKE[family])
    if "tie_word_embeddings" in config:
        values["tied_embeddings"] = bool(config["tie_word_embeddings"])
    if values["position"] == "learned":
        values["max_positions"] = positions + (_OPT_POSITION_OFFSET if family == "opt" else 0)
    architecture = Architecture(
        num_layers=size("num_layers"),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        ffn_hidden_size=size("ffn_hidden_size") if has_ffn else 4 * hidden,
        gated_mlp=False,
        vocab_size=size("vocab_size"),
        norm="layernorm",
        attention_qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        name=name,
        **values,
    )
    return architecture, positions
