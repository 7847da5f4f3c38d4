"""Traces, misfits and micro-batches from Python are those of the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.errors import UserInputError
from vtrain.plans_cli import plans_command
from vtrain.trace_cli import trace_command

WORDS = "--model llama3-8b --gpus 32 --tp 2 --pp 4 --global-batch 256"
PLAN = {"gpus": 32, "tp": 2, "pp": 4, "global_batch_size": 256}


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [([], {}), (["--ranks", "0,3"], {"ranks": [0, 3]}), (["--full"], {"full": True})],
)
def test_a_trace_is_the_commands(
    flags: list[str], arguments: dict[str, object], tmp_path: Path
) -> None:
    """`Simulation.trace` writes the bytes that `vtrain trace` writes, memory counter and all."""
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    options = [*WORDS.split(), "--out", str(theirs), *flags, "--json"]
    printed = CliRunner().invoke(trace_command, options, catch_exceptions=False).output
    run = vt.simulate("llama3-8b", **PLAN)
    assert run.trace(ours, **arguments) == json.loads(printed)["events"]
    assert ours.read_bytes() == theirs.read_bytes()
    events = json.loads(ours.read_text())["traceEvents"]
    levels = [e["args"]["GiB"] for e in events if e["ph"] == "C" and e["pid"] == 0]
    # The counter leaves out the working memory of single operators.
    assert 0.8 * run.mem_peak_bytes / 2**30 < max(levels) <= run.mem_peak_bytes / 2**30


def test_a_rank_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A pipeline rank beyond the last is named with the nearest valid one."""
    with pytest.raises(UserInputError, match="nearest valid: 3"):
        vt.simulate("llama3-8b", **PLAN).trace(tmp_path / "x.json", ranks=[4])


def test_largest_micro_batches_are_the_commands() -> None:
    """`max_micro_batch` keeps the rows that --max-micro-batch keeps."""
    options = "--model llama3-8b --gpus 16 --global-batch 64 --tp 1,2 --max-micro-batch"
    words = [*options.split(), "--top", "1000", "--json"]
    printed = CliRunner().invoke(plans_command, words, catch_exceptions=False).output
    frame = vt.plans("llama3-8b", gpus=16, global_batch_size=64, tp=(1, 2), max_micro_batch=True)
    rows = [
        {k: v for k, v in row.items() if k not in ("days", "gpu_hours", "cost_usd")}
        for row in json.loads(printed)["rows"]
    ]
    assert frame.to_dict("records") == rows


def test_misfits_are_explained_as_by_the_command() -> None:
    """`explain_plans` says what --explain adds to the table."""
    options = "--model llama3-8b --gpus 16 --global-batch 64 --tp 1,2 --explain"
    printed = CliRunner().invoke(plans_command, options.split(), catch_exceptions=False).output
    told = vt.explain_plans("llama3-8b", gpus=16, global_batch_size=64, tp=(1, 2))
    assert told
    assert printed.rstrip().endswith(told.rstrip())
