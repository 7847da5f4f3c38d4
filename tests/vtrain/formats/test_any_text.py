"""Whatever a file holds, the answer is a reading or one line."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.formats import read_any

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**40), st.floats(), st.text(max_size=5),
    st.sampled_from(["auto", "llama", "gpt2", "opt", "1F1B", "8B", "always"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=2),
    max_leaves=4,
)  # fmt: skip
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "head_dim": 16,
    "layer_types": None, "sliding_window": None, "n_positions": 8, "ffn_dim": 9,
    "max_position_embeddings": 8, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSPEED = {
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "tensor_parallel": {},
    "activation_checkpointing": {},
}  # fmt: skip
TITAN: dict[str, Any] = {
    "job": {"description": "x"}, "model": {"name": "llama3", "flavor": "8B", "converters": []},
    "training": {"local_batch_size": 2, "global_batch_size": 8, "seq_len": 64, "steps": 3},
    "parallelism": {
        "data_parallel_shard_degree": 2, "data_parallel_replicate_degree": 1,
        "tensor_parallel_degree": 2, "pipeline_parallel_degree": 1,
        "fsdp_reshard_after_forward": "default", "pipeline_parallel_layers_per_stage": 4,
    },
    "activation_checkpoint": {"mode": "none"},
}  # fmt: skip
DESIGN = {
    "cluster": "H100", "seq_length": 64, "layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "ffn_hidden_size": 8, "vocab_size": 9, "tp": 1, "dp": 1, "pp": 1,
    "global_batch_size": 8, "gpus": 1, "head_dim": 16, "tokens": 512,
}  # fmt: skip
LENIENT = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(file: Path) -> None:
    """Read a file; anything but a reading or one line fails the test."""
    line = ""
    try:
        read_any(file, gpus=8).document()
    except UserInputError as error:
        line = str(error)
    assert "\n" not in line


@pytest.mark.parametrize("base", [CONFIG, DEEPSPEED, DESIGN], ids=["hf", "deepspeed", "design"])
@given(data=st.data())
@LENIENT
def test_json_with_wrong_values(base: dict[str, Any], data: st.DataObject, tmp_path: Path) -> None:
    """Any value in the place of any two fields."""
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(base)), VALUES, max_size=2))
    (tmp_path / "a.json").write_text(json.dumps(base | changes))
    read(tmp_path / "a.json")


@given(data=st.data())
@LENIENT
def test_toml_with_wrong_values(data: st.DataObject, tmp_path: Path) -> None:
    """Any value in the place of a section or one of its fields."""
    section = data.draw(st.sampled_from(sorted(TITAN)))
    value = data.draw(VALUES.filter(lambda v: "None" not in repr(v)))
    if data.draw(st.booleans()):
        changed = {**TITAN, section: value}
    else:
        key = data.draw(st.sampled_from(sorted(TITAN[section])))
        changed = {**TITAN, section: {**TITAN[section], key: value}}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(changed), errors="replace")
    read(tmp_path / "a.toml")


@given(text=st.text(string.printable, max_size=80))
@settings(parent=LENIENT, max_examples=150)
def test_scripts_of_any_text(text: str, tmp_path: Path) -> None:
    """Unclosed quotes, odd expansions and stray separators never break the reader."""
    (tmp_path / "a.sh").write_text(f"X=3\n{text}\n--num-layers $((X * 2)) {text[::-1]}")
    read(tmp_path / "a.sh")
