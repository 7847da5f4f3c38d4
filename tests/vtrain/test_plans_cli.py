"""What `vtrain plans` says of plans that fit, nearly fit and do not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner, Result

import vtrain.api as vt
from vtrain.errors import InfeasibleError, UserInputError
from vtrain.memory import VERDICTS, verdict
from vtrain.plans_cli import plans_command
from vtrain.presets import load_stack
from vtrain.ranking import verdict_codes

LLAMA = "--model llama3-70b --seq 8192 --global-batch 96"


def run(words: str) -> Result:
    """Run `vtrain plans` on Llama 3 70B; what it raises is in `exception`."""
    return CliRunner().invoke(plans_command, f"{LLAMA} {words}".split())


def test_an_empty_answer_says_what_was_tried_and_what_would_fit() -> None:
    """The error names the enumerated sharding and an option that then has plans."""
    error = run("--gpus 24").exception
    assert isinstance(error, InfeasibleError)
    assert "sharding zero1; cp 1)" in error.message
    assert error.hint is not None
    option = error.hint.split(" has ")[0]
    assert option == "--sharding zero2"
    counts = json.loads(run(f"--gpus 24 {option} --json").output)["counts"]
    assert f" {counts['fit']} that fit" in error.hint
    # On one node no sharding helps; what is named is more GPUs, and fits.
    further = run("--gpus 8").exception
    assert isinstance(further, InfeasibleError)
    assert further.hint is not None
    assert "--gpus 24 --sharding zero2" in further.hint


def test_a_pin_that_leaves_nothing_is_named() -> None:
    """Where the request's own options are what keeps plans out, dropping them is the way out."""
    error = run("--gpus 32 --recompute none --tp 1").exception
    assert isinstance(error, InfeasibleError)
    assert error.hint is not None
    assert error.hint.startswith("without --tp the request has 5 that fit")
    assert json.loads(run("--gpus 32 --recompute none --json").output)["counts"]["fit"] == 5


def test_context_parallelism_may_be_the_way_out() -> None:
    """Where splitting sequences is what makes plans fit, --cp is named."""
    error = run("--gpus 64 --recompute none --tp 2").exception
    assert isinstance(error, InfeasibleError)
    assert error.hint is not None
    assert error.hint.startswith("--cp 4 has 3 that fit")


def test_plans_that_fit_come_before_tight_ones() -> None:
    """No plan above the limit stands before one below it, and both are counted apart."""
    document = json.loads(run("--gpus 32,64 --top 1000 --json").output)
    for gpus in (32, 64):
        words = [row["verdict"] for row in document["rows"] if row["gpus"] == gpus]
        assert {"fits", "tight"} <= set(words)
        assert words == sorted(words, key=VERDICTS.index)
    counts = document["counts"]
    found = [row["verdict"] for row in document["rows"]]
    assert counts["fit"] == found.count("fits")
    assert counts["tight"] == found.count("tight")
    text = run("--gpus 32").output
    assert "13 tight (above the limit of 69.8 GiB)" in text
    assert text.startswith("enumerated: recompute none, selective or full; sharding zero1; cp 1\n")
    frame = vt.plans("llama3-70b", gpus=32, seq_length=8192, global_batch_size=96, misfits=True)
    assert frame["verdict"].map(VERDICTS.index).is_monotonic_increasing


def test_a_tight_plan_beats_no_plan_that_fits() -> None:
    """The Pareto front keeps the fastest plan that fits beside a faster tight one."""
    rows = json.loads(run("--gpus 32 --pareto --json").output)["rows"]
    everything = json.loads(run("--gpus 32 --json").output)["rows"]
    assert rows[0] == everything[0]
    assert rows[0]["verdict"] == "fits"


def test_gpu_counts_on_which_nothing_fits_are_noted() -> None:
    """A count without plans that fit gets one line, as does one without valid plans."""
    lines = run("--gpus 8,16,24,32 --top 1").output.splitlines()
    assert [line.split(" GPUs")[0] for line in lines if line.startswith("note:")] == [
        "note: on 8", "note: on 16", "note: on 24",
    ]  # fmt: skip


@pytest.mark.parametrize(("words", "code"), [("", 3), ("--all", 0)])
def test_where_nothing_fits_the_leanest_plan_is_explained(words: str, code: int) -> None:
    """`--explain` names what makes the leanest plan fit, with the exit code of no answer."""
    done = run(f"--gpus 8 --explain {words}")
    told = done.output
    assert (3 if isinstance(done.exception, InfeasibleError) else 0) == code
    assert "8 GPUs, tp 8 pp 1" in told
    assert "recompute full" in told
    assert "would fit: pp 1 → 4, GPUs 8 → 32" in told


@pytest.mark.parametrize("share", [0.6, 0.9, 1.0])
@pytest.mark.parametrize("spread", [0.0, 0.05, 0.3])
def test_tables_and_single_plans_are_judged_alike(share: float, spread: float) -> None:
    """`verdict_codes` is `verdict` of every peak, for uncertain stacks and other limits too."""
    stack = replace(load_stack("megatron-core-2025"), memory_log_sd=spread)
    peaks = np.linspace(1e9, 90e9, 400)
    words = [verdict(peak, 80e9, stack, limit_share=share).verdict for peak in peaks]
    assert [VERDICTS[code] for code in verdict_codes(peaks, 80e9, stack, share)] == words


def test_less_than_one_step_is_refused() -> None:
    """A run of fewer tokens than a step has no days and no dollars; one of a step has."""
    error = run("--gpus 64 --tokens 1000").exception
    assert isinstance(error, UserInputError)
    assert error.hint == "nearest valid: 786432"
    row = json.loads(run("--gpus 64 --tokens 786432 --json").output)["rows"][0]
    assert row["cost_usd"] > 0
