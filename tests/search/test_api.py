"""The search from Python finds and says what the command line does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from vtrain_search.api import SearchResult, dry_run, laws, search
from vtrain_search.cli import cli

import vtrain.api as vt
from vtrain.errors import InfeasibleError, UserInputError

FEW = {"recompute": "none", "micro_batch_size": 2, "virtual_stages": 1, "tp": (1, 2)}


@pytest.fixture(scope="module")
def result() -> SearchResult:
    """Two budgets, most of the plan pinned."""
    return search(["1e4usd", "3e4usd"], fix=FEW, trials=16)


def test_the_call_is_the_command(result: SearchResult) -> None:
    """The document of a search is the one that `vtrain-search --json` prints."""
    words = ["--budget", "1e4usd", "--budget", "3e4usd", "--trials", "16", "--workers", "1"]
    for pin in ("recompute=none", "micro_batch_size=2", "virtual_stages=1", "tp=1,2"):
        words += ["--fix", pin]
    printed = CliRunner().invoke(cli, [*words, "--json", "-q"], catch_exceptions=False)
    assert json.loads(json.dumps(result.document())) == json.loads(printed.stdout)


def test_frames_hold_the_rows(result: SearchResult) -> None:
    """Tables have one row a budget, alternative or trial, and the best is the last budget's."""
    assert list(result.table["budget"]) == ["$10.0k", "$30.0k"]
    assert result.best["loss"] == result.table["loss"].iloc[-1]
    assert len(result.trials) >= 32
    feasible = result.trials[result.trials["feasible"]]
    assert result.best["loss"] == pytest.approx(feasible["loss"].min())
    assert set(result.alternatives["choice"]) <= {"tie", "half size", "quarter size"}
    assert not result.stopped
    html = result._repr_html_()
    assert "With $30.0k on h100-sxm-80g" in html
    assert html.count("<tr") == 3


def test_the_design_simulates_to_its_row(result: SearchResult) -> None:
    """Fed to the simulator, a recommended design has the step time, memory and MFU of its row."""
    for row in result.rows:
        found = vt.simulate_design(result.design(row["budget"]))
        assert found.step_time_s == pytest.approx(row["step_time_s"], rel=1e-12)
        assert found.mem_peak_bytes == pytest.approx(row["mem_peak_bytes"], rel=1e-12)
        assert found.mfu == pytest.approx(row["mfu"], rel=1e-12)


def test_a_row_of_a_document_is_read_and_exported(result: SearchResult, tmp_path: Path) -> None:
    """The document of two budgets is a file of two designs; either is exported by its row."""
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(result.document()))
    for row, found in enumerate(result.rows, start=1):
        assert vt.read_file(path, row=row).plan == result.design(found["budget"]).plan
        assert vt.export(path, "megatron", row=row) == vt.export(
            result.design(found["budget"]), "megatron"
        )


def test_questions_about_a_result(result: SearchResult) -> None:
    """What-if rows, laws and the dry run are those of the command line."""
    document = result.document()
    told = result.what_if().to_dict("records")
    assert [row["change"] for row in told] == [
        row["change"] for row in document["sensitivity"]["changes"]
    ]
    laws_ = result.compare_laws("$10.0k")
    assert {pick["law"] for pick in laws_.picks} == set(laws().index)
    text = dry_run("1e4usd", fix=FEW)
    assert "expected time" in text
    assert "with 1 worker" in text
    with pytest.raises(UserInputError, match="takes no 'trials'"):
        dry_run("1e4usd", trials=3)


def test_a_run_folder_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    """`save_dir` keeps the folder of --save-dir; `resume` finds the same again."""
    words = {"fix": FEW, "trials": 8, "save_dir": tmp_path / "run"}
    first = search("1e4usd", **words)
    assert (tmp_path / "run" / "best.toml").exists()
    assert vt.simulate_design(tmp_path / "run" / "best.toml").plan == first.design().plan
    assert search("1e4usd", **words, resume=True).rows == first.rows
    with pytest.raises(UserInputError, match="run"):
        search("1e4usd", **words)
    with pytest.raises(UserInputError, match="different"):
        search("2e4usd", **words, resume=True)
    assert search("2e4usd", **words, force=True).best["budget"] == "$20.0k"
    with pytest.raises(UserInputError, match="resume needs save_dir"):
        search("1e4usd", resume=True)


def test_reports_and_alternatives(result: SearchResult, tmp_path: Path) -> None:
    """A result writes its report and explains a named alternative."""
    result.report(tmp_path / "plan.md", alternatives=["tp=4"], budget="$10.0k", date="2026-12-01")
    text = (tmp_path / "plan.md").read_text()
    assert "**With $10.0k" in text
    assert "tp=4: at best" in text
    (only,) = result.why_not("tp=1", budget="$10.0k")
    assert only.row is not None
    assert only.row["tp"] == 1


def test_pins_and_ranges_reach_the_search() -> None:
    """Pinned and ranged dimensions hold in the answer; a fixed model stays itself."""
    held = search(
        "1e4usd", fix={**FEW, "tp": 2}, limit={"layers": (20, 24)}, price=2.5, trials=8,
        deadline="20d", max_gpus=16, cluster="a100",
    ).best  # fmt: skip
    assert held["tp"] == 2
    assert 20 <= held["layers"] <= 24
    assert held["price_usd_per_gpu_hour"] == 2.5
    assert held["gpus"] <= 16
    assert held["days"] <= 20
    assert held["cluster"] == "a100-sxm-80g"
    long = search("1e4usd", fix=FEW, trials=8, tokens_per_parameter_min=100).best
    assert long["tokens"] >= 100 * long["parameters"]
    assert search("1e5usd", model="llama3-8b", fix=FEW).best["parameters"] == 8_030_261_248


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"budget": "1M"}, UserInputError, "1M"),
        ({"budget": "1e6usd", "fix": {"tq": 3}}, UserInputError, "unknown key 'tq'"),
        ({}, UserInputError, "no budget"),
        ({"budget": "0.01usd", "trials": 4}, InfeasibleError, "smallest budget"),
    ],
)
def test_mistakes_are_the_commands(
    words: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Errors are those of the command line, with the way out."""
    with pytest.raises(error, match=message):
        search(**words)


def test_unknown_budgets_are_named(result: SearchResult) -> None:
    """Asking for a budget that was not searched lists those that were."""
    with pytest.raises(UserInputError, match=r"\$10\.0k, \$30\.0k"):
        result.design("$7")


def test_laws_are_listed_with_their_sources() -> None:
    """Every shipped law has a formula and a citation."""
    table = laws()
    assert table.loc["besiroglu2024", "default"]
    assert (table["citation"].str.len() > 10).all()
