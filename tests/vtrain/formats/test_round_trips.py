"""What is exported comes back the same, in every format that can carry it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.architecture import Architecture
from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.formats import export, read_any
from vtrain.formats.huggingface import FAMILIES, family_of, read_config, write_config

Designs = Callable[[str, int], list[Design]]
NAMES = {"megatron": "run.sh", "slurm": "job.sbatch", "torchtitan": "job.toml"}


@pytest.mark.parametrize("format_", ["megatron", "slurm", "torchtitan"])
def test_a_design_comes_back_whole(format_: str, random_designs: Designs, tmp_path: Path) -> None:
    """Architecture, plan, sequence length, tokens and stack of 200 random designs survive."""
    file = tmp_path / NAMES[format_]
    kind = "torchtitan" if format_ == "torchtitan" else "megatron"
    for design in random_designs(kind, 200):
        file.write_text(export(design, format_))
        found = read_any(file)
        assert found.design(cluster=design.cluster) == design
        assert found.unknown_fields == ()


def test_a_deepspeed_plan_comes_back(random_designs: Designs, tmp_path: Path) -> None:
    """DeepSpeed JSON carries no model; the plan of 200 random designs survives."""
    file = tmp_path / "ds.json"
    for design in random_designs("deepspeed", 200):
        file.write_text(export(design, "deepspeed"))
        found = read_any(file)
        assert found.plan == design.plan
        assert found.architecture is None
        assert found.unknown_fields == ()


def test_own_files_come_back(random_designs: Designs, tmp_path: Path) -> None:
    """best.toml, a JSON row and a document of rows hold 200 random designs."""
    for design in random_designs("megatron", 200):
        row = design.to_row()
        (tmp_path / "best.toml").write_text(tomli_w.dumps(row))
        (tmp_path / "row.json").write_text(json.dumps(row))
        (tmp_path / "all.json").write_text(json.dumps({"schema_version": 1, "rows": [row]}))
        for name in ("best.toml", "row.json", "all.json"):
            assert read_any(tmp_path / name).design() == design


def test_a_row_of_a_search_keeps_its_results_apart(random_designs: Designs, tmp_path: Path) -> None:
    """Result columns of a --json row are listed as without effect; the first row is taken."""
    first, second = random_designs("megatron", 2)
    rows = [{**d.to_row(), "loss": 2.1, "budget": "1e6usd"} for d in (first, second)]
    (tmp_path / "all.json").write_text(json.dumps({"rows": rows}))
    found = read_any(tmp_path / "all.json")
    assert found.design() == first
    assert found.ignored_fields == ("loss", "budget")
    assert "row 1 of 2" in found.notes[0]
    assert read_any(tmp_path / "all.json", row=2).design() == second
    with pytest.raises(UserInputError, match="no row 3; nearest valid: 2"):
        read_any(tmp_path / "all.json", row=3)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Any architecture that some Hugging Face family can have."""
    family = draw(st.sampled_from(sorted(FAMILIES)))
    gpt = family in ("gpt2", "gpt_neox", "opt", "bloom")
    kv = draw(st.integers(1, 8))
    heads = kv if gpt else kv * draw(st.integers(1, 8))
    head_dim = draw(st.sampled_from([32, 64, 80, 128]))
    hidden = heads * head_dim if gpt else draw(st.integers(1, 64)) * 64
    bias = draw(st.booleans())
    common = {
        "num_layers": draw(st.integers(1, 100)),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "vocab_size": draw(st.integers(1, 300_000)),
        "tied_embeddings": draw(st.booleans()),
        "gated_mlp": not gpt,
        "ffn_hidden_size": 4 * hidden if family == "bloom" else draw(st.integers(1, 30_000)),
    }
    learned = {"position": "learned", "max_positions": draw(st.integers(3, 5000))}
    all_biases = {"attention_qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
    own = {
        "llama": {"attention_qkv_bias": bias, "attention_output_bias": bias,
                  "mlp_bias": draw(st.booleans())},
        "mistral": {},
        "qwen2": {"attention_qkv_bias": True},
        "qwen3": {"qk_norm": "head", "attention_qkv_bias": bias, "attention_output_bias": bias},
        "olmo": {"norm": "layernorm-plain", "attention_qkv_bias": bias,
                 "attention_output_bias": bias},
        "olmo2": {"qk_norm": "full", "attention_qkv_bias": bias, "attention_output_bias": bias},
        "gpt2": {"norm": "layernorm", **all_biases, **learned},
        "gpt_neox": {"norm": "layernorm", "attention_qkv_bias": bias,
                     "attention_output_bias": bias, "mlp_bias": True},
        "opt": {"norm": "layernorm-plain", **learned},
        "bloom": {"norm": "layernorm", "position": "alibi", "embedding_norm": True, **all_biases},
    }  # fmt: skip
    return Architecture(**common, **own[family])


@given(architecture=architectures())
@settings(max_examples=200, deadline=None)
def test_an_architecture_comes_back_from_hugging_face(architecture: Architecture) -> None:
    """config.json carries the model; the plainest family that can hold it is chosen."""
    config = json.loads(json.dumps(write_config(architecture, seq_length=2048)))
    found = read_config(config, "config.json")
    assert found.architecture == architecture
    assert found.unknown_fields == ()
    assert config["model_type"] == family_of(architecture).model_type


def test_a_name_survives_in_hugging_face() -> None:
    """The name of a model is kept where the format has a field for it."""
    from vtrain.models import load_model

    architecture = load_model("llama3-8b").architecture
    assert (
        read_config(write_config(architecture, seq_length=8192), "x").architecture == architecture
    )


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({"position": "alibi"}, "position=alibi"),
        ({"norm": "layernorm"}, "norm=layernorm"),
        ({"gated_mlp": False}, "gated_mlp=False"),
        ({"mlp_bias": True, "qk_norm": "head"}, "qk_norm=head"),
    ],
)
def test_what_no_family_has_is_named(change: dict[str, object], lacks: str) -> None:
    """An architecture outside every Hugging Face family is refused with what is in the way."""
    from vtrain.architecture import default_architecture

    odd = replace(default_architecture(hidden_size=2048, num_layers=4), **change)
    with pytest.raises(UserInputError, match=lacks):
        write_config(odd, seq_length=2048)
