from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from tests.vtrain.validation.conftest import line
from vtrain.errors import UserInputError
from vtrain.validation.cli import validate
from vtrain.validation.runs import read_runs
from vtrain.validation.score import Entry, Options, hash_order, mean_entry, validate_runs

FIELDS = (
    "source", "gpu", "framework", "rows", "judged", "skipped", "time_mape_pct",
    "time_median_ape_pct", "time_p90_ape_pct", "time_bias_pct", "interval_coverage_pct",
    "interval_half_width_pct", "memory_rows", "memory_quantity", "memory_mape_pct",
    "memory_bias_pct", "spearman", "regret_groups", "plan_regret_median_pct",
    "plan_regret_p90_pct", "random_regret_median_pct",
)  # fmt: skip


def many(write_runs, count: int = 26, slow: float = 1.0):
    """Runs of one source that differ in batch."""
    rows = [
        line(run_id=f"lab-{i:04d}", global_batch_seqs=8 * i, iteration_s=0.05 * slow * i)
        for i in range(1, count + 1)
    ]
    return write_runs(*rows)


def test_the_document_has_the_documented_fields(write_runs):
    """Names, order and null for what is not defined."""
    path = many(write_runs)
    result = CliRunner().invoke(validate, [str(path), "--few-shot", "8", "--seeds", "2", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["schema_version"] == 1
    (entry,) = document["zero_shot"]
    assert tuple(entry) == FIELDS
    assert entry["memory_mape_pct"] is None
    (few,) = document["few_shot"]
    assert tuple(few) == (*FIELDS, "time_mape_range_pct")
    assert few["judged"] == 18
    assert few["skipped"] == {"fitted": 8}
    low, high = few["time_mape_range_pct"]
    assert low <= few["time_mape_pct"] <= high


def test_the_text_explains_itself(write_runs, tmp_path):
    """Every column of the table is in the legend, and a missing file costs no errno."""
    result = CliRunner().invoke(validate, [str(many(write_runs))])
    assert result.exit_code == 0, result.output
    table, legend = result.output.split("Columns, in %")
    assert "nothing fitted" not in table
    for column in ("rows", "MAPE", "median", "bias", "in 90 %", "memory", "plan lost", "random"):
        assert column in table
        assert column in legend
    missing = CliRunner().invoke(validate, [str(tmp_path / "none.csv")])
    assert str(missing.exception).endswith("none.csv: No such file or directory")


def test_a_site_twice_as_slow_is_learned_from_eight_rows(write_runs):
    """Few-shot corrects a level that zero-shot cannot know."""
    runs = read_runs(many(write_runs))
    plain = validate_runs(runs, Options()).rows
    factor = plain[0].predicted_s / plain[0].measured_s
    slow = read_runs(many(write_runs, slow=1.25 * factor))
    report = validate_runs(slow, Options(few_shot=8, seeds=2))
    assert report.few_shot[0].time_mape_pct < 0.5 * report.zero_shot[0].time_mape_pct


def test_small_groups_are_judged_zero_shot_only(write_runs):
    """Below 24 rows there is no few-shot entry."""
    report = validate_runs(read_runs(many(write_runs, count=23)), Options(few_shot=8))
    assert report.few_shot == ()
    assert report.zero_shot[0].judged == 23


def test_rows_are_picked_by_hash_and_not_by_place():
    """The same seed picks the same rows whatever else is in the file; seeds differ."""
    names = [f"lab-{i}" for i in range(50)]
    first = [names[i] for i in hash_order(names, 0)[:8]]
    shuffled = names[::-1]
    assert [shuffled[i] for i in hash_order(shuffled, 0)[:8]] == first
    assert [names[i] for i in hash_order(names, 1)[:8]] != first


def test_filters_count_what_they_leave_out(write_runs):
    """--min-mfu and --max-memory-share appear among the reasons."""
    path = write_runs(line(), line(run_id="lab-0002", mfu=0.01))
    (entry,) = validate_runs(read_runs(path), Options(min_mfu=0.05)).zero_shot
    assert entry.skipped == {"MFU under 0.05": 1}
    (entry,) = validate_runs(read_runs(path), Options(max_memory_share=0.01)).zero_shot
    assert entry.judged == 0
    assert list(entry.skipped.values()) == [2]


def test_rows_out_has_a_line_a_row(write_runs, tmp_path):
    """Prediction, interval, error and stack, for the user's own eyes."""
    out = tmp_path / "rows.csv"
    result = CliRunner().invoke(validate, [str(write_runs(line())), "--rows-out", str(out)])
    assert result.exit_code == 0, result.output
    header, row = out.read_text(encoding="utf-8").splitlines()
    values = dict(zip(header.split(","), row.split(","), strict=True))
    assert values["stack"] == "megatron-core-2025"
    low, middle, high = (float(values[k]) for k in ("low_s", "predicted_s", "high_s"))
    assert low < middle < high


def test_an_unknown_source_names_those_there_are(write_runs):
    """One line, with what the file holds."""
    result = CliRunner().invoke(validate, [str(write_runs(line())), "--source", "mars"])
    assert isinstance(result.exception, UserInputError)
    assert "have: lab" in str(result.exception)


def test_bytes_do_not_depend_on_the_order_of_files(write_runs, tmp_path):
    """Groups are sorted; the same rows give the same report."""
    runs = read_runs(write_runs(line(), line(run_id="other-1", gpu="A100-SXM")))
    forward = validate_runs(runs, Options()).zero_shot
    backward = validate_runs(runs[::-1], Options()).zero_shot
    assert [e.source for e in forward] == [e.source for e in backward] == ["lab", "other"]
    assert np.isclose(forward[0].time_mape_pct, backward[0].time_mape_pct)


# Zero-shot MAPE, in %, that each measured source must stay under: what issue 3 asks for, and
# 15 and 10 of issue 2 as the outer bound of the first two.
CEILINGS = {
    ("vtrain_multi", "A100-SXM"): 8.0, ("seqsel22", "A100-SXM"): 5.0,
    ("bigsci", "A100-SXM"): 12.0, ("bigsci", "V100-SXM2"): 7.0, ("mpt", "A100-SXM"): 9.0,
    ("mpt", "H100-SXM"): 9.0, ("mbridge", "H100-SXM"): 12.0, ("mbridge", "B200-SXM"): 12.0,
    ("simumax", "B200-SXM"): 8.0, ("titan", "H100-SXM-96GB-HBM2e(500W)"): 11.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(shared_data):
    folder = shared_data / "measurements"
    return [r for f in ("vtrain_multi", "published_runs") for r in read_runs(folder / f"{f}.csv")]


@pytest.mark.parametrize(("source", "gpu"), CEILINGS)
def test_zero_shot_error_on_the_published_runs(measured, source, gpu):
    """Nothing fitted on the source: the error stays under its ceiling."""
    report = validate_runs([r for r in measured if r.source == source], Options())
    (entry,) = [e for e in report.zero_shot if e.gpu == gpu]
    assert entry.time_mape_pct <= CEILINGS[source, gpu]


def test_few_fully_specified_dense_rows_are_skipped(measured):
    """Less than 3 % of the rows that state everything cannot be judged."""
    excused = {
        "no iteration time", "flagged by the data as contradictory", "mixture of experts",
        "fine-tuning", "architecture not given", "plan not given",
    }  # fmt: skip
    report = validate_runs(measured, Options())
    judged = sum(e.judged for e in report.zero_shot)
    lost = sum(n for e in report.zero_shot for why, n in e.skipped.items() if why not in excused)
    assert judged > 2000
    assert lost / (judged + lost) < 0.03


def test_the_mean_over_seeds_counts_every_seed_once():
    """MAPE of 2, 4 and 9 % means 5 %, from 2 to 9 %; what was averaged stays as it was."""
    entries = [
        Entry(source="a", gpu="g", framework="f", rows=30, judged=22, time_mape_pct=error)
        for error in (2.0, 4.0, 9.0)
    ]
    mean = mean_entry(entries)
    assert mean.time_mape_pct == pytest.approx(5.0)
    assert mean.time_mape_range_pct == (2.0, 9.0)
    assert entries[0].time_mape_pct == 2.0
