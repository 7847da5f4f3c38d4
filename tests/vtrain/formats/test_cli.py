"""`vtrain import` and `vtrain export` from a shell's point of view."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner

from vtrain.architecture import default_architecture
from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.formats.cli import export_command, import_command
from vtrain.formats.suggestion import suggest
from vtrain.plan import Plan


@pytest.fixture
def best(tmp_path: Path) -> tuple[Design, Path]:
    """A design and its best.toml."""
    design = Design(
        architecture=default_architecture(hidden_size=2048, num_layers=24),
        plan=Plan(dp=16, global_batch_size=256), cluster="h100-sxm-80g",
        stack="megatron-core-2025", seq_length=4096, tokens=256 * 4096 * 20_000,
    )  # fmt: skip
    file = tmp_path / "best.toml"
    file.write_text(tomli_w.dumps(design.to_row()))
    return design, file


def test_import_prints_one_document(best: tuple[Design, Path]) -> None:
    """--json is one document with a schema version and nothing but names we document."""
    design, file = best
    result = CliRunner().invoke(import_command, [str(file), "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert document["plan"]["gpus"] == 16
    assert document["architecture"]["parameters"] == design.architecture.parameters
    assert set(document) == {
        "schema_version", "source", "path", "architecture", "plan", "seq_length", "tokens",
        "gpus", "cluster", "stack", "unknown_fields", "ignored_fields", "notes",
    }  # fmt: skip


def test_import_for_people_names_what_is_unknown(best: tuple[Design, Path], tmp_path: Path) -> None:
    """The text ends with what was ignored and what is unknown."""
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                    "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100,
                    "whatsit": 1})
    )  # fmt: skip
    result = CliRunner().invoke(import_command, [str(file)], catch_exceptions=False)
    assert "unknown   whatsit" in result.stdout


@pytest.mark.parametrize("format_", ["megatron", "slurm", "deepspeed", "hf"])
def test_export_to_a_file_or_stdout(
    format_: str, best: tuple[Design, Path], tmp_path: Path
) -> None:
    """The same text goes to stdout or, whole, to a file."""
    _, file = best
    out = tmp_path / "out"
    arguments = [str(file), "--format", format_]
    shown = CliRunner().invoke(export_command, arguments, catch_exceptions=False)
    CliRunner().invoke(export_command, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert shown.stdout == out.read_text()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_model_alone_is_enough_for_hugging_face(tmp_path: Path) -> None:
    """The format carries no plan: a shipped name or another config.json will do, nothing else."""
    run = CliRunner().invoke
    named = run(export_command, ["llama3-8b", "--format", "hf"], catch_exceptions=False)
    config = json.loads(named.stdout)
    assert config["model_type"] == "llama"
    assert config["max_position_embeddings"] == 8192
    file = tmp_path / "config.json"
    file.write_text(named.stdout)
    again = run(export_command, [str(file), "--format", "hf"], catch_exceptions=False)
    assert json.loads(again.stdout) | {"_name_or_path": ""} == config | {"_name_or_path": ""}
    refused = run(export_command, [str(file), "--format", "slurm"])
    assert isinstance(refused.exception, UserInputError)
    assert "lacks a whole plan" in str(refused.exception)


def test_export_from_a_launch_script(best: tuple[Design, Path], tmp_path: Path) -> None:
    """A Megatron script plus a cluster is a whole design: Slurm from it equals Slurm from best."""
    _, file = best
    script = tmp_path / "run.sh"
    run = CliRunner().invoke
    run(export_command, [str(file), "--format", "megatron", "--out", str(script)])
    direct = run(export_command, [str(file), "--format", "slurm"], catch_exceptions=False)
    again = run(
        export_command, [str(script), "--format", "slurm", "--cluster", "H100"],
        catch_exceptions=False,
    )  # fmt: skip
    assert again.stdout == direct.stdout


def test_an_export_says_what_it_leaves_behind(best: tuple[Design, Path], tmp_path: Path) -> None:
    """Another precision and unknown arguments of the file are named on stderr, not dropped."""
    _, file = best
    run = CliRunner().invoke
    text = run(export_command, [str(file), "--format", "megatron"]).stdout
    script = tmp_path / "run.sh"
    script.write_text(text.replace("--bf16", "--fp16\n    --made-up 3"))
    result = run(
        export_command, [str(script), "--format", "slurm", "--cluster", "H100"],
        catch_exceptions=False,
    )  # fmt: skip
    assert "trains in fp16, the export in bf16" in result.stderr
    assert "not taken over: made_up" in result.stderr
    assert "note" not in result.stdout.replace("vtrain_note", "")


def test_the_suggestion_is_the_step_law(best: tuple[Design, Path]) -> None:
    """Arithmetic of arXiv 2503.04715: lr = 1.79 N^-0.713 D^0.307, batch = 0.58 D^0.571 tokens."""
    design, _ = best
    hint = suggest(design)
    assert hint is not None
    n, d = design.architecture.parameters_non_embedding, design.tokens
    assert d is not None
    assert hint.learning_rate == pytest.approx(1.79 * n**-0.713 * d**0.307, rel=0.005)
    assert hint.batch_tokens == pytest.approx(0.58 * d**0.571)
    assert hint.warmup_steps == 2000
    assert "suggestion" in hint.remark


def test_the_suggestion_lies_where_the_law_was_fitted() -> None:
    """For 1B parameters and 100B tokens the law's own paper uses rates near 1e-3."""
    design = Design(
        architecture=default_architecture(hidden_size=2048, num_layers=20),
        plan=Plan(global_batch_size=512), cluster="H100", stack="megatron-core-2025",
        seq_length=2048, tokens=512 * 2048 * 95_000,
    )  # fmt: skip
    hint = suggest(design)
    assert hint is not None
    assert 5e-4 < hint.learning_rate < 5e-3
    assert 5e5 < hint.batch_tokens < 5e6
    assert "outside" not in hint.remark


def test_no_tokens_no_suggestion() -> None:
    """Without a token count the law says nothing, and neither do we."""
    design = Design(
        architecture=default_architecture(hidden_size=2048, num_layers=20),
        plan=Plan(global_batch_size=8), cluster="H100", stack="megatron-core-2025",
        seq_length=2048,
    )  # fmt: skip
    assert suggest(design) is None


@pytest.mark.parametrize(
    ("stack", "format_", "said"),
    [
        ("megatron-core-2025", "torchtitan", "torchtitan-2024 or torchtitan-2025"),
        ("torchtitan-2025", "torchtitan", None),
        ("megatron-core-2025", "megatron", None),
        ("torchtitan-2024", "slurm", "megatron-core-2025"),
    ],
)
def test_other_software_than_was_priced_is_named(
    stack: str, format_: str, said: str | None, best: tuple[Design, Path], tmp_path: Path
) -> None:
    """The file says which stack its figures hold for; stderr, where it starts another one."""
    design, _ = best
    plan = replace(design.plan, sharding="zero2" if format_ == "torchtitan" else "none")
    file = tmp_path / "one.toml"
    file.write_text(tomli_w.dumps(replace(design, stack=stack, plan=plan).to_row()))
    arguments = [str(file), "--format", format_]
    done = CliRunner().invoke(export_command, arguments, catch_exceptions=False)
    assert f"figures predicted for stack {stack}" in done.stdout
    if said is None:
        assert "predicted for" not in done.stderr
    else:
        assert f"predicted for stack {stack}" in done.stderr
        assert said in done.stderr
