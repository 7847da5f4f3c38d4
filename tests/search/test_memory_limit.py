"""A stated memory limit binds every design of a search, and the what-if table prices one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vtrain_search.api import dry_run, search
from vtrain_search.build import Request, build_problem
from vtrain_search.evaluator import Evaluator
from vtrain_search.html_report.provenance import command_line
from vtrain_search.report import answer_case
from vtrain_search.report.assumptions import assumptions
from vtrain_search.report.what_if import what_if_cells, what_if_json, what_if_note
from vtrain_search.sensitivity import sensitivity

import vtrain.api as vt
from vtrain.errors import InfeasibleError, UserInputError
from vtrain.interval import UNRELIABLE_SHARE
from vtrain.memory_limit import SHARE_FITS

FIX = {"recompute": "none", "micro_batch_size": (1, 2), "virtual_stages": 1}
NAME = "memory under 85 % of the device"
BOUND_NATS = 3e-4
"""About 1 % of a budget, as in test_monotone."""
PROBLEM = build_problem(Request(budgets=("1e5usd",), fixed=("recompute=none", "virtual_stages=1")))
EVALUATORS: dict[float, Evaluator] = {}


def evaluator(share: float) -> Evaluator:
    """Return one evaluator a limit, with its own tables."""
    if share not in EVALUATORS:
        EVALUATORS[share] = Evaluator(replace(PROBLEM, memory_limit_share=share))
    return EVALUATORS[share]


@settings(max_examples=25, deadline=None)
@given(
    st.floats(4.0, 6.0), st.sampled_from((0.3, 0.5, 0.7, 0.85)), st.sampled_from((0.86, 0.9, 1.0)),
    st.sampled_from(((2048, 24), (4096, 40), (6144, 48), (8192, 80))),
)  # fmt: skip
def test_a_larger_limit_never_raises_the_loss(
    log_usd: float, low: float, high: float, shape: tuple[int, int]
) -> None:
    """For any architecture and budget; and the design found keeps its limit."""
    point = PROBLEM.space.point(hidden_size=float(shape[0]), layers=float(shape[1]))
    case = replace(PROBLEM.cases[0], usd=10.0**log_usd)
    tight, loose = (evaluator(share).outcome(point, case) for share in (low, high))
    for outcome in (tight, loose):
        if outcome.feasible:
            assert outcome.row["mem_peak_bytes"] <= outcome.row["mem_limit_bytes"]
    if tight.feasible:
        assert loose.feasible
        assert loose.value <= tight.value + BOUND_NATS


@pytest.mark.parametrize("space", ["bilevel", "joint"])
def test_every_design_of_a_search_keeps_the_limit(space: str) -> None:
    """Every trial, tie and smaller model, in both forms of the search."""
    found = search("3e4usd", fix=FIX, trials=24, space=space, memory_limit="60%")
    limit = found.best["mem_limit_bytes"]
    usable = build_problem(Request(budgets=("3e4usd",), memory_limit="1.0"))
    assert found.best["mem_limit_share"] == 0.6
    assert usable.memory_limit_share == 1.0
    rows = [t.outcome.row for t in found.found.searches[0].trials if t.outcome.feasible]
    for row in [*rows, *found.best["ties"], *found.best["smaller"]]:
        assert row["mem_limit_bytes"] == limit
        assert row["mem_peak_bytes"] <= limit
    assert all(row["mem_limit_share"] == 0.6 for row in found.best["ties"])


def test_the_default_stated_is_the_default(tmp_path: Path) -> None:
    """`--memory-limit 0.9` and `90%` find the bytes that no option finds."""
    for name, limit in (("none", None), ("share", 0.9), ("percent", "90%")):
        search("1e4usd", fix=FIX, trials=16, memory_limit=limit, save_dir=tmp_path / name)
    first, *others = [(tmp_path / n / "trials.csv").read_bytes() for n in ("none", "share",
                                                                           "percent")]  # fmt: skip
    assert others == [first, first]


def test_the_limit_goes_with_the_run(tmp_path: Path) -> None:
    """run.json, resume, best.toml, assumptions and the printed command all hold it."""
    where = tmp_path / "run"
    made = search("1e4usd", fix=FIX, trials=16, memory_limit="70%", save_dir=where)
    assert json.loads((where / "run.json").read_text())["request"]["memory_limit"] == "70%"
    again = search("1e4usd", fix=FIX, trials=16, memory_limit=0.7, save_dir=where, resume=True)
    assert again.best == made.best
    with pytest.raises(UserInputError, match="different memory limit"):
        search("1e4usd", fix=FIX, trials=16, save_dir=where, resume=True)
    told = vt.simulate_design(where / "best.toml").document
    assert told["mem_limit_bytes"] == made.best["mem_limit_bytes"]
    assert told["mem_limit_share"] == 0.7
    assert "at most 70 % of what" in assumptions(made.problem)["memory_limit"]
    assert "--memory-limit 70%" in command_line(made.request, made.settings)
    assert "expected time" in dry_run("1e4usd", fix=FIX, memory_limit=0.7)
    assert "at most 90 % of what" in assumptions(PROBLEM)["memory_limit"]


@pytest.mark.parametrize("command", [[], ["verify"]])
def test_a_bad_limit_is_one_line_and_exit_code_2(command: list[str], tmp_path: Path) -> None:
    """The rule, the value, the nearest valid choice."""
    code = "from vtrain_search.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--budget", "1e4usd", "--memory-limit", "85"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nearest valid: 0.85" in done.stderr


def test_where_only_the_limit_binds_the_usual_one_is_named() -> None:
    """A model that the usual limit would hold is not sent to larger machines."""
    asked = {"model": "llama3-8b", "cluster": "h100", "max_gpus": 8,
             "fix": {"recompute": "none", "tp": 4, "pp": 1}}  # fmt: skip
    assert search("1e5usd", **asked).answers
    with pytest.raises(InfeasibleError, match=r"30 % of the memory.*--memory-limit 0\.9 would"):
        search("1e5usd", **asked, memory_limit=0.3)


def test_what_if_prices_the_safer_design() -> None:
    """The row is there where the warning is; under its limit both are gone, the loss is as told."""
    found = search("2e5usd", fix=FIX, trials=24)
    answer = found.answers[0]
    device_bytes = answer.case.offers[0].cluster.device.memory_bytes
    assert answer.row["mem_peak_bytes"] > UNRELIABLE_SHARE * device_bytes
    changes = sensitivity(found.problem, answer)
    change = next(c for c in changes if c.name == NAME)
    share = change.memory_limit_share
    assert share is not None
    assert share < SHARE_FITS
    assert change.row is not None
    assert change.row["mem_peak_bytes"] <= UNRELIABLE_SHARE * device_bytes
    assert change.gap == pytest.approx(change.row["loss"] - answer.row["loss"])
    assert change.gap > -BOUND_NATS
    warning = next(w for w in answer.row["warnings"] if w.startswith("memory:"))
    assert f"--memory-limit {share:g} " in warning
    note = what_if_note(answer, changes)
    assert f"--memory-limit {share:g}" in note
    assert f"{change.row['mem_peak_bytes'] / 2**30:.1f} GiB" in note
    assert NAME in [row[0] for row in what_if_cells(answer, changes)[1]]
    records = {r["change"]: r for r in what_if_json(answer, changes)["changes"]}
    assert records[NAME]["mem_limit_share"] == share
    assert "mem_limit_share" not in records["deadline 60 days"]

    safer = search("2e5usd", fix=FIX, trials=24, memory_limit=share)
    assert not any(w.startswith("memory:") for w in safer.best["warnings"])
    assert NAME not in [c.name for c in sensitivity(safer.problem, safer.answers[0])]
    # The search may find better than the finalists, hardly worse.
    assert safer.best["loss"] <= change.row["loss"] + BOUND_NATS


def test_no_answer_no_row() -> None:
    """An answer that leaves memory free is not asked about it."""
    problem = replace(PROBLEM, memory_limit_share=0.5)
    found = search("1e5usd", fix=FIX, trials=16, memory_limit=0.5)
    answer = answer_case(problem, problem.cases[0], found.found.searches[0], seed=0)
    assert answer is not None
    assert NAME not in [c.name for c in sensitivity(problem, answer)]
