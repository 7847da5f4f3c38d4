"""Files that cannot be taken are refused in one line that says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrain.architecture import default_architecture
from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.formats import export, export_all, load_architecture, read_any
from vtrain.plan import Plan

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip


def refusal(tmp_path: Path, name: str, text: str, **options: Any) -> str:
    """Return the one line that reading a file gives."""
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UserInputError) as caught:
        read_any(file, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(file)) or f"cannot read {file}" in line
    return line


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "mixture-of-experts"),
        ({"model_type": "qwen3_moe"}, "'qwen3_moe' is mixture-of-experts"),
        ({"num_experts": 64}, "(num_experts=64) is mixture-of-experts"),
        ({"model_type": "rwkv"}, "unknown model family 'rwkv'"),
        ({"model_type": None, "architectures": ["X"]}, "model_type is missing"),
        ({"hidden_size": "1024"}, "hidden_size must be a whole number of at least 1, got '1024'"),
        ({"hidden_size": 1024.5}, "hidden_size must be a whole number"),
        ({"hidden_size": True}, "hidden_size must be a whole number"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": -1}, "vocab_size must be a whole number of at least 1"),
        ({"num_attention_heads": 7}, "nearest valid: num_attention_heads=8"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3 must divide num_attention_heads=8"),
        # A typing error of twelve digits is answered as fast as any other.
        ({"num_key_value_heads": 10**12}, "nearest valid: num_key_value_heads=8"),
        ({"num_attention_heads": 10**12}, "nearest valid: num_attention_heads=1024"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
        (
            {"model_type": "gpt2", "n_embd": 512, "n_layer": 2, "n_head": 8, "n_positions": 64},
            "n_embd=512 contradicts hidden_size=1024",
        ),
        (
            {"model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 512,
             "max_position_embeddings": 64},
            "word_embed_proj_dim=512 differs from hidden_size=1024",
        ),
    ],
)  # fmt: skip
def test_bad_configs(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    """Wrong types, unknown families and contradictory sizes of a config.json are named."""
    assert what in refusal(tmp_path, "config.json", json.dumps(LLAMA | change))


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[1]", "must hold one JSON object, got a list"),
        ("a.json", '{"a": 1}', "is of no known format; known: a Hugging Face config.json"),
        ("a.json", '{"rows": []}', "holds no row"),
        ("a.json", '{"tp": 1, "dp": 1, "layers": 2}', "hidden_size"),
        ("a.toml", "a = ", "is not valid TOML"),
        ("a.toml", "a = 1", "is of no known format"),
        ("a.yaml", "a: [", "is not valid YAML"),
        ("a.yaml", "- 1", "must be a table of arguments"),
        ("a.sh", "echo hello", "is of no known format"),
    ],
)
def test_files_of_no_format(name: str, text: str, what: str, tmp_path: Path) -> None:
    """What is no known file is told apart from a known file with a mistake."""
    assert what in refusal(tmp_path, name, text)


def test_unreadable_files(tmp_path: Path) -> None:
    """Missing files, binary files and unknown names each get one line."""
    with pytest.raises(UserInputError, match=r"cannot read .*No such file"):
        read_any(tmp_path / "none.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserInputError, match="not UTF-8"):
        read_any(tmp_path / "b.json")
    with pytest.raises(UserInputError, match="unknown model 'llama9'"):
        load_architecture("llama9")
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8}')
    with pytest.raises(UserInputError, match="holds no model"):
        load_architecture(str(tmp_path / "ds.json"))


def test_unknown_fields_are_listed(tmp_path: Path) -> None:
    """A field nobody knows is listed and not used; a known one without effect is told apart."""
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA | {"rope_theta": 1e4, "brand_new": 1, "sliding_window": 7})
    )
    found = read_any(tmp_path)
    assert found.unknown_fields == ("brand_new", "sliding_window")
    assert found.ignored_fields == ("model_type", "rope_theta")


def test_defaults_are_noted(tmp_path: Path) -> None:
    """What the file leaves to the library's default is said."""
    short = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    (tmp_path / "config.json").write_text(json.dumps(short))
    found = read_any(tmp_path)
    assert found.architecture is not None
    assert found.architecture.num_key_value_heads == 8
    assert any("num_key_value_heads is not in the file" in note for note in found.notes)


def design(**changes: Any) -> Design:
    """Return a small design on one node."""
    values: dict[str, Any] = {"dp": 8, "global_batch_size": 64}
    return Design(
        architecture=default_architecture(hidden_size=1024, num_layers=8, vocab_size=32_000),
        plan=Plan(**(values | changes)), cluster="H100", stack="megatron-core-2025",
        seq_length=2048,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("format_", "changes", "what"),
    [
        ("torchtitan", {}, "torchtitan cannot carry sharding=zero1"),
        ("torchtitan", {"dp": 4, "tp": 2, "sharding": "zero3"}, "without sequence parallelism"),
        ("torchtitan", {"dp": 4, "pp": 2, "sharding": "none"}, "replicas that are not sharded"),
        ("torchtitan", {"dp": 4, "pp": 2, "sharding": "zero3", "schedule": "zb-h1"}, "zb-h1"),
        ("deepspeed", {"dp": 4, "pp": 2}, "DeepSpeed JSON cannot carry pp=2"),
        ("deepspeed", {"dp": 4, "cp": 2}, "cp=2"),
        ("deepspeed", {"recompute": "selective"}, "recompute=selective"),
        ("megatron", {"dp": 4, "pp": 2, "schedule": "gpipe"}, "schedule=gpipe"),
        ("megatron", {"dp": 1, "tp": 3, "global_batch_size": 9}, "tp=3 must divide"),
        ("slurm", {"dp": 12, "global_batch_size": 24}, "whole nodes"),
        ("yaml", {}, "unknown format 'yaml'"),
    ],
)
def test_designs_a_format_cannot_carry(format_: str, changes: dict[str, Any], what: str) -> None:
    """A plan is never bent to fit a format."""
    with pytest.raises(UserInputError, match=what):
        export(design(**changes), format_)


def test_export_all_writes_what_it_can(tmp_path: Path) -> None:
    """Every format that carries a design is written; the others say why not."""
    outcome = export_all(design(), tmp_path)
    written = {name for name, file in outcome.items() if (tmp_path / file).exists()}
    assert written == {"megatron", "slurm", "deepspeed", "hf"}
    assert outcome["torchtitan"].startswith("not written: torchtitan cannot carry sharding=zero1")


@pytest.mark.parametrize(
    ("config", "gpus", "what"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
          "gradient_accumulation_steps": 3}, None, "4 x 3 x 5 = 60"),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
          "gradient_accumulation_steps": 4}, 8, "4 x 4 x 8 = 128"),
        ({"train_batch_size": "64"}, None, "train_batch_size must be a whole number"),
        ({"train_batch_size": 64, "zero_optimization": {"stage": 4}}, None, "stage=4"),
        ({"train_batch_size": 64, "zero_optimization": 3}, None, "must be a table"),
        ({"train_batch_size": 64, "tensor_parallel": {"autotp_size": 3}}, 8, "autotp_size=3"),
    ],
)  # fmt: skip
def test_bad_deepspeed_files(
    config: dict[str, Any], gpus: int | None, what: str, tmp_path: Path
) -> None:
    """Batch sizes that do not multiply out are refused with the arithmetic."""
    assert what in refusal(tmp_path, "ds.json", json.dumps(config), gpus=gpus)


def test_deepspeed_leaves_are_filled_or_noted(tmp_path: Path) -> None:
    """One open batch size follows from the GPU count; without it, or with auto, it is noted."""
    file = tmp_path / "ds.json"
    file.write_text(
        json.dumps(
            {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
             "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "odd": 1},
             "bf16": {"enabled": True}, "surprise": 1}
        )
    )  # fmt: skip
    found = read_any(file, gpus=8)
    assert found.plan == Plan(dp=8, micro_batch_size=2, global_batch_size=64, sharding="zero2")
    assert found.unknown_fields == ("surprise", "zero_optimization.odd")
    assert any("offload_optimizer" in note for note in found.notes)
    assert read_any(file).plan is None
    file.write_text('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}')
    assert any("auto" in note for note in read_any(file).notes)


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
steps = 1000
surprise = 1
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
"""


def test_a_torchtitan_config_imports(tmp_path: Path) -> None:
    """A flavour stands for its sizes; what is left of the GPUs is sharded data parallelism."""
    (tmp_path / "job.toml").write_text(TITAN)
    found = read_any(tmp_path / "job.toml", gpus=64)
    assert found.architecture is not None
    assert found.architecture.parameters == 8_030_261_248
    assert found.plan == Plan(
        tp=2, dp=32, micro_batch_size=2, global_batch_size=64, sharding="zero3",
        sequence_parallel=True, recompute="selective",
    )  # fmt: skip
    assert found.unknown_fields == ("training.surprise",)
    assert read_any(tmp_path / "job.toml").plan is None


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"8B"', '"9B"', "flavor '9B' is not known"),
        ("= -1", '= "all"', "data_parallel_shard_degree must be -1 or"),
        ("= -1", "= 3", "contradict tp x pp x cp x dp = 2 x 1 x 1 x 3"),
        ("degree = 2", "degree = 3", "64 GPUs are not a multiple"),
        ("steps = 1000", "global_batch_size = 65", "global_batch_size=65 must be a multiple"),
        ("degree = 2", 'degree = 2\npipeline_parallel_schedule = "ZBVZeroBubble"', "ZBVZero"),
        ("degree = 2", "degree = 2\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_layers_per_stage = 3", "not a multiple of pp=2|contradicts"),
        ("[training]", '[activation_checkpoint]\nmode = "memory_budget"\n[training]', "mode="),
    ],
)  # fmt: skip
def test_bad_torchtitan_configs(old: str, new: str, what: str, tmp_path: Path) -> None:
    """Unknown flavours, odd degrees and contradicting counts are named."""
    import re

    assert re.search(what, refusal(tmp_path, "job.toml", TITAN.replace(old, new), gpus=64))


def test_a_shipped_flavor_is_named_and_others_are_spelled_out() -> None:
    """torchtitan's own sizes need no module; any other comes with one to register it."""
    from dataclasses import replace

    from vtrain.models import load_model

    base = design(sharding="zero3")
    known = replace(base, architecture=load_model("llama3-8b").architecture)
    assert 'flavor = "8B"' in export(known, "torchtitan")
    text = export(base, "torchtitan")
    assert 'custom_import = "vtrain_flavor"' in text
    assert "#       dim=1024, n_layers=8, n_heads=8," in text
