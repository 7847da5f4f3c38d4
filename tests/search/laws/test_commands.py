"""`vtrain-search laws` and `vtrain-search fit-law` as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from vtrain_search.fit_law.cli import fit_law_command
from vtrain_search.laws import LossModel, law_names, load_law, rule_names
from vtrain_search.laws.cli import laws_command

from vtrain.errors import UserInputError


@pytest.fixture
def pilots(tmp_path: Path) -> Path:
    """Return a file of 24 pilots that follow the default law with 0.2 % noise."""
    c = load_law().facts.coefficients
    n = np.repeat(np.geomspace(1e8, 2e9, 6), 4)
    d = n * np.tile([10.0, 20.0, 50.0, 150.0], 6)
    loss = c["E"] + c["A"] / n ** c["alpha"] + c["B"] / d ** c["beta"]
    loss = loss * np.exp(0.002 * np.random.default_rng(0).standard_normal(n.size))
    path = tmp_path / "pilots.csv"
    rows = [f"{a:.0f},{b:.0f},{v:.5f}" for a, b, v in zip(n, d, loss, strict=True)]
    path.write_text("params,tokens,loss\n" + "\n".join(rows) + "\n")
    return path


def run(pilots: Path, *words: str) -> Result:
    """Run fit-law with few bootstraps, in the folder of the pilots."""
    output = ["--output", str(pilots.parent / "mine.law.toml")]
    return CliRunner().invoke(
        fit_law_command, [str(pilots), "--replicates", "100", *output, *words]
    )


def refusal(result: Result) -> str:
    """Return the line that a command which refuses its input ends with."""
    assert isinstance(result.exception, UserInputError), result.output
    return str(result.exception)


def test_json(pilots: Path) -> None:
    """--json prints one document with coefficients, intervals, errors and exclusions."""
    result = run(pilots, "--json", "--exclude", "1, 7")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["coefficients"]) == {"E", "A", "B", "alpha", "beta"}
    assert set(found["interval90"]) == set(found["coefficients"])
    for name, value in found["coefficients"].items():
        low, high = found["interval90"][name]
        assert low <= high
        assert value > 0
    assert found["rms_pct"] == pytest.approx(0.2, abs=0.1)
    assert found["heldout_rms_pct"] < 2
    assert found["excluded"] == [1, 7]


def test_law_file_serves_as_a_law(pilots: Path, make_designs) -> None:
    """The file that fit-law writes is a law with its own interval, range and name."""
    assert run(pilots).exit_code == 0
    law = load_law(pilots.parent / "mine.law.toml")
    assert law.name == "mine"
    assert law.facts.parameters_range == pytest.approx((1e8, 2e9))
    low, median, high = LossModel(law=law).interval(make_designs(7e9, 1.4e11))
    assert low < median < high
    assert float(median) == pytest.approx(
        float(LossModel(law=load_law()).loss(make_designs())), rel=0.02
    )


def test_table_and_plot(pilots: Path, tmp_path: Path) -> None:
    """The text says law, intervals, errors, rows left out and the file; the plot is an SVG."""
    result = run(pilots, "--plot", str(tmp_path / "fit.svg"))
    assert result.exit_code == 0, result.output
    for words in ("24 runs: L = ", "90 %", "held out", "rows left out: none", "mine.law.toml"):
        assert words in result.stdout
    svg = (tmp_path / "fit.svg").read_text()
    assert svg.startswith("<svg")
    assert svg.count("<circle") >= 3 * 24


def test_law_file_is_not_replaced_silently(pilots: Path) -> None:
    """The same fit again is fine, another one needs --force."""
    assert run(pilots).exit_code == 0
    assert run(pilots).exit_code == 0
    assert "exists with other contents" in refusal(run(pilots, "--seed", "1"))
    assert run(pilots, "--seed", "1", "--force").exit_code == 0


def test_default_file_is_rebuilt_from_the_same_pilots(
    pilots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --output the law lands here, is rebuilt from the same pilots, never from others."""
    monkeypatch.chdir(pilots.parent)
    words = [str(pilots), "--replicates", "100"]
    assert CliRunner().invoke(fit_law_command, words).exit_code == 0
    assert CliRunner().invoke(fit_law_command, [*words, "--seed", "1"]).exit_code == 0
    target = pilots.parent / "pilots.law.toml"
    target.write_text("mine = true\n")
    assert refusal(CliRunner().invoke(fit_law_command, words))
    assert target.read_text() == "mine = true\n"


def test_bits(pilots: Path) -> None:
    """Bits are refused with the way out, and converted when said."""
    rows = pilots.read_text().splitlines()
    in_bits = [rows[0]]
    for row in rows[1:]:
        n, d, loss = row.split(",")
        in_bits.append(f"{n},{d},{float(loss) / np.log(2):.6f}")
    pilots.write_text("\n".join(in_bits))
    refused = run(pilots, "--json")
    assert "--unit bits" in refusal(refused)
    assert not refused.stdout
    told = run(pilots, "--json", "--unit", "bits")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["coefficients"]["E"] == pytest.approx(1.82, abs=0.15)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--exclude", "99"], "--exclude names row 99, the runs are rows 1-24"),
        (["--exclude", "x"], "--exclude takes row numbers, got 'x'"),
        (["--drop-lowest-ratio", "24"], "leaves none of 24 runs"),
        (["--output", "/nonexistent/law.toml"], "cannot write /nonexistent/law.toml"),
    ],
)
def test_refusals(pilots: Path, words: list[str], message: str) -> None:
    """Wrong options get exit code 2 and one line."""
    text = refusal(run(pilots, *words))
    assert message in text
    assert "\n" not in text


def test_missing_file() -> None:
    """A file that is not there gets one line and exit code 2."""
    assert "cannot read nowhere.csv" in refusal(
        CliRunner().invoke(fit_law_command, ["nowhere.csv"])
    )


def test_errors_read_as_those_of_every_command(tmp_path: Path) -> None:
    """From a shell: `error: ...` on one line, exit code 2."""
    code = "from vtrain_search.cli import main; main()"
    words = [sys.executable, "-c", code, "fit-law", "nowhere.csv"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot read nowhere.csv: No such file or directory;")
    assert done.stderr.count("\n") == 1


def test_quiet_writes_and_says_nothing(pilots: Path) -> None:
    """-q leaves the law file and an empty stdout; with --json the document is still printed."""
    result = run(pilots, "-q")
    assert result.exit_code == 0
    assert result.output == ""
    assert (pilots.parent / "mine.law.toml").exists()
    assert json.loads(run(pilots, "-q", "--json").stdout)["runs"] == 24


def test_laws_lists_everything() -> None:
    """`laws` names every law and rule with formula, convention, source and status."""
    result = CliRunner().invoke(laws_command, [])
    assert result.exit_code == 0
    for name in (*law_names(), *rule_names()):
        assert name in result.stdout
    for words in ("verification", "n convention", "citation", "besiroglu2024  (default)"):
        assert words in result.stdout


def test_laws_json() -> None:
    """`laws --json` is one document; with --compute the rules give N and D."""
    result = CliRunner().invoke(laws_command, ["--json", "--compute", "1e24"])
    found = json.loads(result.stdout)
    assert [law["name"] for law in found["loss_laws"]] == list(law_names())
    assert found["loss_laws"][0]["default"]
    for rule in found["rules"]:
        assert 6 * rule["parameters"] * rule["tokens"] == pytest.approx(1e24)
