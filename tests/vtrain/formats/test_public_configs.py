"""Public configs import with the parameter counts their publishers state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrain.formats import load_architecture, read_any
from vtrain.formats.huggingface import FAMILIES, read_config

# Fields that decide the shape, as their publishers have them; `source` is the page of the file and
# `parameters` the count shown beside it (checked in test_real_readers against transformers).
MODELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "public_configs.json").read_text()
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_the_count_is_exact(model: dict[str, Any]) -> None:
    """Every parameter is counted, biases, norms and position tables included."""
    found = read_config(model["config"], model["name"])
    assert found.architecture is not None
    assert found.architecture.parameters == model["parameters"]
    assert found.unknown_fields == ()


def test_the_collection_is_broad() -> None:
    """At least fifteen configs, every family among them, each with its source."""
    assert len(MODELS) >= 15
    assert {model["config"]["model_type"] for model in MODELS} == set(FAMILIES)
    assert all(model["source"].startswith("https://huggingface.co/") for model in MODELS)


def test_a_gated_mlp_has_three_matrices() -> None:
    """PC-50: Qwen1.5-72B was counted as 56.19B with two matrices; it has 72.3B parameters."""
    model = next(m for m in MODELS if m["name"] == "Qwen1.5-72B")
    architecture = read_config(model["config"], "x").architecture
    assert architecture is not None
    assert architecture.parameters == 72_287_920_128
    missing = architecture.num_layers * architecture.hidden_size * architecture.ffn_hidden_size
    assert (architecture.parameters - missing) / 1e9 == pytest.approx(56.19, abs=0.02)


def test_a_config_gives_no_training_sequence(tmp_path: Path) -> None:
    """The longest context is no training length; only a position table bounds it."""
    for name, seq_length in (("Llama-3.1-405B", None), ("gpt2", 1024), ("opt-125m", 2048)):
        model = next(m for m in MODELS if m["name"] == name)
        (tmp_path / "config.json").write_text(json.dumps(model["config"]))
        assert load_architecture(str(tmp_path))[1] == seq_length
        assert read_any(tmp_path).notes


def test_names_win_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped name is taken as such; ./NAME and endings are files."""
    monkeypatch.chdir(tmp_path)
    model = next(m for m in MODELS if m["name"] == "gpt2-xl")
    Path("gpt2").write_text(json.dumps(model["config"]))
    assert load_architecture("gpt2")[0].num_layers == 12
    assert load_architecture("./gpt2")[0].num_layers == 48
