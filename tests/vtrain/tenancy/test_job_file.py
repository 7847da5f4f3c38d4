"""Job files: what is read, what is refused and how."""

from __future__ import annotations

import math

import pytest

from vtrain.errors import UserInputError
from vtrain.tenancy.job_file import read_jobs

KNOWN = {"gpt": 2048, "bare": None}


def own_length(model):
    if model not in KNOWN:
        raise UserInputError(f"unknown model {model!r}")
    return KNOWN[model]


def read(tmp_path, text):
    path = tmp_path / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return read_jobs(path, own_length)


def test_a_full_row_is_read(tmp_path):
    """Every column reaches the job; tokens become whole steps, durations seconds."""
    jobs, bad = read(tmp_path, (
        "job,model,tokens,arrival_s,deadline_s,gpus,min_gpus,max_gpus,global_batch_size,priority\n"
        "a,gpt,1e9,60,10d,64,8,128,512,2\n"
    ))  # fmt: skip
    assert not bad
    number, job = jobs[0]
    assert number == 1
    assert (job.name, job.model, job.arrival_s, job.deadline_s) == ("a", "gpt", 60.0, 864000.0)
    assert job.steps == math.ceil(1e9 / (512 * 2048))
    assert (job.gpus, job.min_gpus, job.max_gpus, job.priority) == (64, 8, 128, 2)


def test_empty_cells_take_the_default(tmp_path):
    """No deadline, no limits, row number as name."""
    jobs, _ = read(tmp_path, "model,steps,arrival_s,deadline_s,gpus\ngpt,10,0,,\n")
    job = jobs[0][1]
    assert (job.name, job.steps, job.gpus, job.seq_length) == ("row-1", 10, 0, 2048)
    assert not job.has_deadline


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("gpt,-5,,0,", "tokens must be a number above zero"),
        ("gpt,,,0,", "tokens and steps are both empty"),
        ("gpt,1e9,5,0,", "both given"),
        ("gpt,,2.5,0,", "steps must be a whole number"),
        ("gpt,1e9,,100,50", "deadline_s=50 must lie after arrival_s=100"),
        ("nonsense,1e9,,0,", "unknown model 'nonsense'"),
        ("gpt,1e9,,,", "arrival_s is empty"),
        ("gpt,1e9,,-3,", "arrival_s must be finite and not negative"),
        ("gpt,1e9,,nan,", "arrival_s"),
        ("bare,1e9,,0,", "seq_length is not known"),
        ("gpt,1e9,,0,,7", "more cells than columns"),
    ],
)
def test_bad_rows_are_refused_with_number_and_reason(tmp_path, row, reason):
    """A bad row does not hide the good ones; it carries its number and the rule it breaks."""
    jobs, bad = read(tmp_path, f"model,tokens,steps,arrival_s,deadline_s\ngpt,,1,0,\n{row}\n")
    assert [number for number, _ in jobs] == [1]
    assert [item.row for item in bad] == [2]
    assert reason in bad[0].reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model,arrival_s\ngpt,0\n", "lacks column tokens (or steps)"),
        ("tokens,arrival_s\n1e9,0\n", "lacks column model"),
        ("", "lacks column model, arrival_s, tokens (or steps)"),
        ("model,tokens,arrival_s,dedline_s\ngpt,1,0,5\n", "unknown column 'dedline_s'"),
        ("model,tokens,arrival_s\n", "holds no jobs"),
    ],
)
def test_bad_headers_stop_the_run(tmp_path, text, reason):
    """Without the needed columns nothing can be run."""
    with pytest.raises(UserInputError) as error:
        read(tmp_path, text)
    assert reason in error.value.message


def test_a_missing_file_is_one_line(tmp_path):
    """A file that is not there is the user's to mend."""
    with pytest.raises(UserInputError, match="cannot read jobs"):
        read_jobs(tmp_path / "none.csv", own_length)
