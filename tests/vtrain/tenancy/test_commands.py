"""`vtrain tenancy` from the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.tenancy.cli import POLICY_NAMES, tenancy
from vtrain.tenancy.outcome import METRICS
from vtrain.tenancy.policies import POLICIES

RUN = ["run", "--gpus", "256", "--cluster", "a100-sxm-80g", "--generate",
       "jobs=6,load=0.9,tightness=1.5,models=megatron-18.4b"]  # fmt: skip


def invoke(*words, fails=False):
    result = CliRunner().invoke(tenancy, list(words), catch_exceptions=True)
    if not fails:
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
    return result


def test_the_command_line_knows_every_policy():
    """The names are listed twice, to keep --help light; the lists agree."""
    assert POLICY_NAMES == POLICIES


@pytest.mark.parametrize("speed", ["vtrain", "data-parallel"])
def test_run_prints_one_document(speed):
    """--json carries every promised figure, the assumptions, and a line a job."""
    document = json.loads(invoke(*RUN, "--speed", speed, "--policy", "fifo", "--json").stdout)
    assert document["schema_version"] == 1
    assert set(METRICS) <= set(document)
    assert document["completed"] == 6
    assert len(document["jobs_log"]) == 6
    assert document["assumptions"]["policy"] == "fifo"


def test_run_writes_log_timeline_and_picture(tmp_path):
    """Files are written on request; the picture is valid XML with a bar for every job."""
    log, timeline, gantt = (tmp_path / name for name in ("log.csv", "time.csv", "gantt.svg"))
    invoke(*RUN, "--log", str(log), "--timeline", str(timeline), "--gantt", str(gantt))
    assert len(log.read_text().splitlines()) == 7
    assert timeline.read_text().startswith("job,start_s,end_s,nodes,node_ranges")
    root = ElementTree.fromstring(gantt.read_text())
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert {title.split()[0] for title in titles} == {f"job-{i:05d}" for i in range(6)}


def test_several_seeds_give_intervals():
    """--seeds prints means with half-widths, the same as single runs would."""
    document = json.loads(invoke(*RUN, "--seeds", "3", "--policy", "elasticflow", "--json").stdout)
    assert len(document["runs"]) == 3
    single = json.loads(invoke(*RUN, "--seed", "1", "--policy", "elasticflow", "--json").stdout)
    assert document["runs"][1]["makespan_s"] == single["makespan_s"]
    assert document["means"]["completion_mean_s"]["half_width_95"] > 0.0


@pytest.mark.ray
@pytest.mark.slow
def test_workers_change_nothing():
    """Seeds on two Ray workers give the figures of one process."""
    one = json.loads(invoke(*RUN, "--seeds", "4", "--json").stdout)
    two = json.loads(invoke(*RUN, "--seeds", "4", "--workers", "2", "--json").stdout)
    assert one["runs"] == two["runs"]


def test_bad_rows_stop_the_run_or_are_skipped(tmp_path):
    """A job larger than the cluster is refused with its row; --skip-bad runs the rest."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "model,tokens,arrival_s,gpus\nmegatron-18.4b,1e9,0,64\nmegatron-18.4b,1e9,0,4096\n"
        "megatron-145.6b,1e9,0,\nmegatron-18.4b,1e9,0,12\n"
    )
    words = ["run", "--gpus", "32", "--jobs", str(path)]
    refused = invoke(*words, fails=True)
    assert "row 1: gpus=64 exceeds the cluster's 32 GPUs" in str(refused.exception)
    words = ["run", "--gpus", "64", "--jobs", str(path), "--skip-bad", "--json"]
    result = invoke(*words)
    document = json.loads(result.stdout)
    assert [item["row"] for item in document["skipped"]] == [2, 4]
    assert "row 4 left out: gpus=12 must be whole nodes of 8" in result.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "--generate", "jobs=2"], "--gpus is needed"),
        (["run", "--gpus", "60", "--generate", "jobs=2"], "whole nodes of 8"),
        (["run", "--gpus", "64"], "either --jobs or --generate"),
        (["run", "--gpus", "64", "--jobs", "x.csv", "--seeds", "2"], "--seeds above 1"),
        (["run", "--gpus", "64", "--generate", "jobs=2", "--recompute", "some"], "--recompute"),
        (["admit", "--gpus", "64", "--tokens", "1e9"], "--model is needed"),
        (["admit", "--gpus", "64", "--model", "gpt3-5b"], "--tokens is needed"),
    ],
)
def test_bad_options_are_one_line(words, reason):
    """Contradictory or missing options name the way out."""
    assert reason in str(invoke(*words, fails=True).exception)


def test_admit_says_yes_no_and_when():
    """A generous date is promised with a share, a tight one refused with the earliest date."""
    words = ["admit", "--gpus", "256", "--model", "megatron-18.4b", "--tokens", "10e9", "--json"]
    free = json.loads(invoke(*words).stdout)
    assert free["promised"] is None
    assert free["earliest_s"] == pytest.approx(free["alone_s"], rel=1e-3)
    yes = json.loads(invoke(*words, "--within", "60d").stdout)
    assert yes["promised"] is True
    assert yes["share"]
    result = invoke(*words, "--within", "1h")
    no = json.loads(result.stdout)
    assert no["promised"] is False
    assert no["earliest_s"] > 3600.0


def test_admit_sees_the_jobs_that_are_there(tmp_path):
    """Beside a job that is promised the whole cluster, the earliest date moves behind it."""
    path = tmp_path / "jobs.csv"
    base = ["admit", "--gpus", "64", "--model", "megatron-18.4b", "--tokens", "1e9", "--json"]
    alone = json.loads(invoke(*base).stdout)["alone_s"]
    other = json.loads(
        invoke("admit", "--gpus", "64", "--model", "megatron-18.4b", "--tokens", "50e9",
               "--json").stdout
    )["alone_s"]  # fmt: skip
    path.write_text(
        f"model,tokens,arrival_s,deadline_s\nmegatron-18.4b,50e9,0,{1.02 * other:.0f}\n"
    )
    busy = json.loads(invoke(*base, "--jobs", str(path)).stdout)
    assert busy["other_jobs"] == 1
    assert busy["others_rejected"] == 0
    assert busy["earliest_s"] > 0.8 * other > alone


@pytest.mark.parametrize("words", [
    ["admit", "--gpus", "64", "--model", "llama3-405b", "--tokens", "1e12"],
    ["run", "--gpus", "16", "--generate", "jobs=2,models=megatron-145.6b"],
])  # fmt: skip
def test_nothing_that_fits_is_no_usage_error(words: list[str]) -> None:
    """A model too large for the cluster ends with the exit code of nothing feasible."""
    error = CliRunner().invoke(tenancy, words).exception
    assert isinstance(error, InfeasibleError)
    assert "the leanest needs" in str(error)


def test_a_file_of_jobs_none_of_which_fits_is_no_usage_error(tmp_path: Path) -> None:
    """Rows that no plan can run are infeasible; a row with a mistake beside them is bad input."""
    head = "job,model,tokens,global_batch_size,seq_length,arrival_s\n"
    large = "a,llama3-405b,1e12,1024,8192,0\n"
    path = tmp_path / "jobs.csv"
    for rows, kind in ((large, InfeasibleError), (large + "b,llama3-8b,x,1024,8192,0\n",
                                                  UserInputError)):  # fmt: skip
        path.write_text(head + rows)
        words = ["run", "--gpus", "64", "--jobs", str(path)]
        assert type(CliRunner().invoke(tenancy, words).exception) is kind
