"""A shared cluster from Python is that of `vtrain tenancy`."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

import vtrain.api as vt
from vtrain.errors import UserInputError
from vtrain.tenancy.cli import admit_command, run_command

MODEL = "megatron-18.4b"
JOBS = pd.DataFrame({
    "model": MODEL, "tokens": [2e9, 4e9, 1e9], "arrival_s": ["0", "1h", "2h"],
    "deadline_s": ["12h", "36h", None], "gpus": [64, None, 32], "priority": [1, None, 0],
})  # fmt: skip


@pytest.fixture
def jobs_file(tmp_path: Path) -> Path:
    """The same jobs as a file."""
    path = tmp_path / "jobs.csv"
    JOBS.convert_dtypes().to_csv(path, index=False)
    return path


def test_a_frame_of_jobs_plays_as_a_file_does(jobs_file: Path, printed) -> None:
    """Jobs of a frame give the document of the command, but for what the workload is called."""
    words = ["--gpus", 256, "--policy", "elasticflow", "--rescale", "10min", "--recompute", "full"]
    theirs = printed(run_command, "--jobs", jobs_file, *words)
    options = {"gpus": 256, "policy": "elasticflow", "rescale": 600.0, "recompute": "full"}
    played = vt.tenancy_run(JOBS, **options)
    assert played.document["assumptions"].pop("workload") == "the frame of jobs"
    assert theirs["assumptions"].pop("workload") == str(jobs_file)
    assert played.document == theirs
    assert vt.tenancy_run(jobs_file, **options).document["jobs_log"] == theirs["jobs_log"]
    assert list(played.jobs["job"]) == ["row-1", "row-2", "row-3"]
    assert played.table.loc["completed", "value"] == 3
    assert played.runs["makespan_s"].tolist() == [theirs["makespan_s"]]
    assert played.timeline["end_s"].max() == pytest.approx(theirs["makespan_s"])
    html = played._repr_html_()
    assert "deadline_ratio" in html
    assert "</svg>" in html


def test_seeds_of_a_recipe_are_the_commands(printed) -> None:
    """Several seeds give the runs and means of the command, from words or from a mapping."""
    recipe = f"jobs=4,load=0.9,tightness=1.5,models={MODEL}"
    theirs = printed(run_command, "--gpus", 256, "--generate", recipe, "--seeds", 2, "--seed", 3)
    mapping = {"jobs": 4, "load": 0.9, "tightness": 1.5, "models": [MODEL]}
    for words in (recipe, mapping):
        many = vt.tenancy_run(generate=words, gpus=256, seeds=2, seed=3)
        assert many.document == theirs
    assert list(many.runs.index) == [3, 4]
    assert many.runs.to_dict("records") == theirs["runs"]
    mean = many.table.loc["makespan_s", "mean"]
    assert mean == pytest.approx(many.runs["makespan_s"].mean())
    assert many.gantt() == ""
    assert many.timeline.empty
    assert "half_width_95" in many._repr_html_()


def test_admission_is_the_commands(jobs_file: Path, printed) -> None:
    """A promise, its share and its dates are those of `vtrain tenancy admit`."""
    words = ["--gpus", 256, "--model", MODEL, "--tokens", 5e9, "--jobs", jobs_file]
    theirs = printed(admit_command, *words, "--within", "12h", "--at", "1h")
    ours = vt.tenancy_admit(
        MODEL, gpus=256, tokens=5e9, within="12h", at=3600.0, jobs=JOBS
    )  # fmt: skip
    assert ours.document == theirs
    assert ours.promised is True
    assert ours.share.to_dict("records") == theirs["share"]
    assert ours.earliest_s == theirs["earliest_s"]
    assert str(ours).startswith("yes: megatron-18.4b")
    assert "<pre>yes" in ours._repr_html_()
    late = vt.tenancy_admit(MODEL, gpus=256, tokens=5e13, within="1h")
    assert late.promised is False
    assert late.earliest_s < math.inf


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"gpus": 256}, "either --jobs or --generate"),
        ({"gpus": 12, "jobs": JOBS}, "nearest valid: 16"),
        ({"gpus": 256, "jobs": JOBS, "policy": "best"}, "one of fifo"),
        ({"gpus": 256, "jobs": JOBS, "speed": "fast"}, "one of vtrain"),
        ({"gpus": 256, "jobs": JOBS, "failures": "few"}, "is not known"),
        ({"gpus": 256, "jobs": JOBS, "seeds": 2}, "--seeds above 1"),
        ({"gpus": 256, "jobs": JOBS, "seeds": 0}, "at least 1"),
        ({"gpus": 256, "jobs": JOBS.drop(columns="tokens")}, "the frame of jobs lacks column"),
        ({"gpus": 256, "jobs": JOBS.assign(gpus=12)}, "the frame of jobs row 1: gpus=12"),
    ],
)
def test_mistakes_get_one_line(words: dict[str, object], message: str) -> None:
    """What cannot be played is refused with the rule and the way out."""
    with pytest.raises(UserInputError, match=message):
        vt.tenancy_run(**words)


def test_bad_rows_are_left_out_on_request() -> None:
    """`skip_bad` runs the other jobs and lists what it left out."""
    bad = JOBS.assign(gpus=[64, 12, 32])
    played = vt.tenancy_run(bad, gpus=256, policy="fifo", skip_bad=True)
    assert [entry["row"] for entry in played.document["skipped"]] == [2]
    assert len(played.jobs) == 2
