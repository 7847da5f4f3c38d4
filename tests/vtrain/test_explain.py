"""The words of `--explain`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.simulate_cli import simulate_command


@pytest.mark.parametrize("pp", [1, 4])
def test_every_bubble_says_which_it_is(pp: int) -> None:
    """Columns sum to the played step, are the timeline's own, and say over which ranks."""
    run = vt.simulate("llama3-8b", gpus=16, tp=2, pp=pp, global_batch_size=32)
    timeline, text = run.timeline(), run.explain()
    assert ("then the mean of 4 ranks" in text) == (pp > 1)
    block = text[: text.index("memory of the heaviest stage")].splitlines()[1:]
    columns = np.array([[float(s) for s in re.findall(r"([\d.e-]+) s", line)] for line in block])
    assert columns.sum(axis=0) == pytest.approx(timeline.step_time_s, rel=2e-3)
    shown = {line[2:30].strip(): row for line, row in zip(block, columns, strict=True)}
    assert ("bubble (waiting)" in shown) == (pp > 1)
    if pp > 1:
        bubble = timeline.breakdown_s["bubble"]
        wanted = (bubble[timeline.critical_rank], bubble.mean())
        assert shown["bubble (waiting)"] == pytest.approx(wanted, rel=1e-3)
    words = f"--model llama3-8b --gpus 16 --tp 2 --pp {pp} --global-batch 32".split()
    printed = CliRunner().invoke(simulate_command, words, catch_exceptions=False).output
    assert "(closed form, busiest pipeline rank) bubble" in printed
