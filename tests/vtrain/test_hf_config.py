"""Hugging Face config.json: the same architectures as the shipped model files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.models import load_model

LLAMA3_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
    "attention_bias": False,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": LLAMA3_8B,
    "llama2-7b": {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
    "qwen1.5-72b": {
        "model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 24576,
        "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 3072,
        "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": True,
    },
    "olmo2-7b": {
        "model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "vocab_size": 100352, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    },
    "gemma-2b": {
        "model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "head_dim": 256,
        "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384,
        "vocab_size": 256000, "max_position_embeddings": 8192,
    },
    "gpt2-xl": {
        "model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_inner": None,
        "vocab_size": 50257, "n_positions": 1024,
    },
    "opt-6.7b": {
        "model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "ffn_dim": 16384, "vocab_size": 50272,
        "max_position_embeddings": 2048, "word_embed_proj_dim": 4096,
    },
    "bloom-176b": {
        "model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44,
        "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432,
        "max_position_embeddings": 2048, "tie_word_embeddings": False,
    },
}  # fmt: skip


def _load(folder: Path, config: object) -> Architecture:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return load_model(str(path)).architecture


@pytest.mark.parametrize("name", CONFIGS)
def test_config_and_model_file_agree(tmp_path: Path, name: str) -> None:
    """A published config.json gives the very architecture that ships under the model's name."""
    folder = tmp_path / name
    folder.mkdir()
    assert _load(folder, CONFIGS[name]) == load_model(name).architecture


def test_name_and_longest_sequence(tmp_path: Path) -> None:
    """The model is named after its folder; the sequence is the longest it takes."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA3_8B))
    model = load_model(str(path))
    assert (model.name, model.seq_length) == (tmp_path.name, 8192)


def test_biases_are_read(tmp_path: Path) -> None:
    """Optional biases of Llama configurations count."""
    plain = _load(tmp_path, LLAMA3_8B)
    biased = _load(tmp_path, {**LLAMA3_8B, "attention_bias": True, "mlp_bias": True})
    expected = replace(plain, attention_qkv_bias=True, attention_output_bias=True, mlp_bias=True)
    assert biased == expected


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({**LLAMA3_8B, "model_type": "lama"}, "unknown model_type 'lama'; nearest: "),
        ({**LLAMA3_8B, "num_local_experts": 8}, "only dense models"),
        ({k: v for k, v in LLAMA3_8B.items() if k != "vocab_size"}, "lacks vocab_size"),
        ({**LLAMA3_8B, "num_key_value_heads": 5}, "must divide"),
        ({**CONFIGS["opt-6.7b"], "word_embed_proj_dim": 512}, "another width"),
        ({"hidden_size": 1}, "has no model_type"),
        ([1], "has no model_type"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, config: object, rule: str) -> None:
    """Unknown families, experts and missing fields are refused, never guessed."""
    with pytest.raises(UserInputError, match=re.escape(rule)):
        _load(tmp_path, config)


def test_unreadable_files(tmp_path: Path) -> None:
    """A missing or broken file is refused in one line."""
    with pytest.raises(UserInputError, match="cannot read"):
        load_model(str(tmp_path / "config.json"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserInputError, match="is not JSON"):
        load_model(str(tmp_path / "config.json"))
