"""Calibration from Python is `vtrain calibrate`, from logs or from a frame."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pandas as pd
import pytest

import vtrain.api as vt
from vtrain.calibrate_cli import calibrate_command
from vtrain.errors import UserInputError

MODEL = "llama3-8b"
SHARED = {"gpus": 64, "global_batch_size": 512}


def log(path: Path, slower: float, **plan: int) -> Path:
    """Write the log of a plan that runs so many times slower than predicted."""
    step_s = slower * vt.simulate(MODEL, **SHARED, **plan).step_time_s
    rows = [f"{i},{step_s * (1.0 + 0.001 * (i % 3)):.6f}" for i in range(1, 41)]
    path.write_text("\n".join(["number,step_time_s", *rows]) + "\n")
    return path


@pytest.fixture
def logs(tmp_path: Path) -> dict[Path, dict[str, int]]:
    """Two logs of a machine that is a tenth slower, and the tensor-parallel degree of each."""
    return {log(tmp_path / f"tp{tp}.csv", 1.1, tp=tp): {"tp": tp} for tp in (2, 4)}


def test_logs_are_read_as_by_the_command(
    logs: dict[Path, dict[str, int]], tmp_path: Path, printed
) -> None:
    """Factors, logs and warnings are those that the command prints and writes."""
    out = tmp_path / "site.toml"
    words = [f"--log={path}@tp={plan['tp']}" for path, plan in logs.items()]
    theirs = printed(
        calibrate_command, *words, "--model", MODEL, "--gpus", 64, "--global-batch", 512,
        "--out", out,
    )  # fmt: skip
    found = vt.calibrate(MODEL, logs=logs, **SHARED)
    assert {**found.document(out), "command": ""} == {**theirs, "command": ""}
    assert found.runs["log"].tolist() == [str(path) for path in logs]
    assert found.runs["after_s"].to_numpy() == pytest.approx(found.runs["measured_s"], rel=0.05)
    again = tmp_path / "again.toml"
    found.write(again)
    ours, written = (tomllib.loads(path.read_text()) for path in (again, out))
    assert ours["factors"] == written["factors"]
    with pytest.raises(UserInputError, match="exists"):
        found.write(again)
    html = found._repr_html_()
    assert "log_sd" in html
    assert "before_s" in html


def test_a_written_site_serves_every_function(tmp_path: Path) -> None:
    """Factors of a frame, written and read again, predict the same step."""
    runs = pd.DataFrame({"tp": [1, 2, 4], "step_time_s": [14.4, 14.9, 15.8]})
    found = vt.calibrate(MODEL, runs=runs, **SHARED)
    found.write(tmp_path / "site.toml")
    from_file = vt.simulate(MODEL, **SHARED, tp=2, site=str(tmp_path / "site.toml"))
    assert from_file.step_time_s == pytest.approx(
        vt.simulate(MODEL, **SHARED, tp=2, site=found.factors).step_time_s
    )
    assert found.runs["after_s"].tolist()[1] == pytest.approx(from_file.step_time_s)
    assert list(found.table.index) == ["matrix", "memory", "communication", "host"]
    assert found.interval[0] < 1.0 < found.interval[1]


def test_logs_that_cannot_be_true_are_not_written(tmp_path: Path) -> None:
    """Steps ten times faster than the peak allows give no site file."""
    path = log(tmp_path / "fast.csv", 0.05, tp=2)
    found = vt.calibrate(MODEL, logs=path, tp=2, **SHARED)
    with pytest.raises(UserInputError):
        found.write(tmp_path / "site.toml")
    assert not (tmp_path / "site.toml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "runs or logs"),
        ({"logs": "x.csv", "layers": 3}, "takes no 'layers'"),
        ({"logs": {"x.csv": {"vpp": 2}}, **SHARED}, "cannot read x.csv|takes no 'vpp'"),
        ({"logs": "no-such.log", **SHARED}, "no-such.log"),
        ({"runs": pd.DataFrame({"step_time_s": [1.0]})}, "needs a column 'gpus'"),
    ],
)
def test_mistakes_get_one_line(words: dict[str, object], message: str) -> None:
    """What cannot be fitted is refused with the rule and the way out."""
    with pytest.raises(UserInputError, match=message):
        vt.calibrate(MODEL, **words)
