"""Utilisation and foreign files from Python are those of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.errors import UserInputError
from vtrain.formats.cli import export_command, import_command
from vtrain.mfu_cli import mfu_command

THROUGHPUTS = (
    (["--tokens-per-second", 5e5], {"tokens_per_s": 5e5}),
    (["--tokens-per-second-per-gpu", 8e3], {"tokens_per_s_per_gpu": 8e3}),
    (["--step-time", 12.5, "--global-batch", 512], {"step_time_s": 12.5, "global_batch_size": 512}),
    (["--tokens-per-second", 5e5, "--peak", 1e15, "--recompute", "full", "--tp", 8],
     {"tokens_per_s": 5e5, "peak_flops_per_s": 1e15, "recompute": "full", "tp": 8}),
)  # fmt: skip


@pytest.mark.parametrize(("words", "arguments"), THROUGHPUTS)
def test_utilisation_is_the_commands(
    words: list[object], arguments: dict[str, object], printed
) -> None:
    """Every way to state a throughput gives the rows of `vtrain mfu`, and its explanations."""
    theirs = printed(mfu_command, "--model", "llama3-8b", "--gpus", 64, *words, "--reported", 38)
    table = vt.mfu("llama3-8b", gpus=64, **arguments)
    rows = [
        {**{k: v for k, v in row.items() if k != "utilization"}, "mfu": row["utilization"]}
        for row in theirs["rows"]
    ]
    assert table.reset_index().to_dict("records") == rows
    assert vt.explain_mfu(38, "llama3-8b", gpus=64, **arguments) == theirs["explanations"]


@pytest.mark.parametrize(
    "arguments", [{}, {"tokens_per_s": 1e5, "step_time_s": 1.0}, {"step_time_s": 1.0}]
)
def test_one_throughput_is_needed(arguments: dict[str, float]) -> None:
    """None, two, or a step without its batch are refused with the choices."""
    with pytest.raises(UserInputError, match="step_time_s with global_batch_size"):
        vt.mfu("llama3-8b", gpus=64, **arguments)


def test_foreign_files_are_read_and_written_as_by_the_commands(tmp_path: Path, printed) -> None:
    """A launch script gives the document of `vtrain import` and the text of `vtrain export`."""
    run = vt.simulate("llama3-8b", "h100", gpus=64, tp=2, global_batch_size=512)
    script = tmp_path / "run.sh"
    script.write_text(vt.export(run.design(), "megatron"))
    found = vt.read_file(script)
    assert found.document() == printed(import_command, script)
    assert found.table.loc[("plan", "tp"), "value"] == 2
    assert "global_batch_size" in found._repr_html_()
    words = [str(script), "--format", "slurm", "--cluster", "h200-sxm-141g"]
    theirs = CliRunner().invoke(export_command, words, catch_exceptions=False).stdout
    assert vt.export(script, "slurm", cluster="h200-sxm-141g") == theirs
