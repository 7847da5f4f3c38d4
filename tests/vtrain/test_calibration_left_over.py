"""What `vtrain calibrate` says and does when the fitted factors do not explain the steps."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from vtrain.calibrate import FACTORS, factor_range, fit_factors
from vtrain.calibrate_cli import calibrate_command
from vtrain.calibration_check import REFUSE_PCT, WARN_PCT
from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.models import load_model
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SHIPPED, SiteFactors

ROOT = Path(__file__).parents[2]
PLAN = ["--gpus", "64", "--tp", "2", "--micro-batch", "1", "--global-batch", "256"]
COMMON = ["--model", "llama3-8b", "--cluster", "h100-sxm-80g", "--seq", "8192", *PLAN]


def seconds(site: SiteFactors = SHIPPED, *, tp: int = 2, pp: int = 1, batch: int = 256) -> float:
    plan = Plan(
        tp=tp, pp=pp, dp=64 // tp // pp, micro_batch_size=1, global_batch_size=batch,
        sequence_parallel=tp > 1,
    )  # fmt: skip
    found = step_seconds(
        load_model("llama3-8b").architecture, load_cluster("h100-sxm-80g"),
        load_stack("megatron-core-2025"), PlanTable.from_plans([plan]), seq_length=8192, site=site,
    )  # fmt: skip
    return float(found[0])


def steps_csv(folder: Path, step_s: float, name: str = "steps.csv", extra: str = "") -> Path:
    """Write twenty equal steps, with one further column where `extra` is `name=value`."""
    column, _, value = extra.partition("=")
    head = f"number,step_time_s{',' + column if column else ''}\n"
    tail = f",{value}" if column else ""
    path = folder / name
    path.write_text(head + "".join(f"{i},{step_s:.6f}{tail}\n" for i in range(20)))
    return path


def invoke(folder: Path, *logs: str | Path, more: tuple[str, ...] = ()) -> Result:
    words = [word for log in logs for word in ("--log", str(log))]
    return CliRunner().invoke(
        calibrate_command, [*words, *COMMON, "--out", str(folder / "site.toml"), *more]
    )


def refusal(result: Result) -> str:
    assert isinstance(result.exception, UserInputError)
    assert result.exception.exit_code == 2
    return str(result.exception)


def test_a_batch_half_as_large_as_the_measured_one_is_refused_and_named(tmp_path: Path) -> None:
    """Steps of 512 sequences said to be of 256: nothing is written, the batch is suspected."""
    result = invoke(tmp_path, steps_csv(tmp_path, seconds(batch=512)))
    line = refusal(result)
    assert "48.9 % off" in line
    assert f"bound {REFUSE_PCT:.0f} %" in line
    assert "--global-batch 512 instead of 256 (would be 0.0 % off)" in line
    assert not (tmp_path / "site.toml").exists()


def test_the_arithmetic_of_a_log_that_is_off_is_shown(tmp_path: Path) -> None:
    """Tokens/s, TFLOP/s per GPU and MFU, measured against predicted, beside the errors."""
    out = invoke(tmp_path, steps_csv(tmp_path, seconds(batch=512))).stdout
    assert f"({100 * (seconds() / seconds(batch=512) - 1):.1f} %) before the fit" in out
    measured, predicted = (
        next(line for line in out.splitlines() if line.strip().startswith(word))
        for word in ("measured:", "predicted:")
    )
    assert measured.count("tokens/s") == predicted.count("tokens/s") == 1
    shares = [float(x.rsplit("= ", 1)[1].rstrip("% MFU")) for x in (measured, predicted)]
    assert shares[0] == pytest.approx(0.5 * shares[1], rel=0.02)
    assert "64 GPUs" in measured
    assert "989 TFLOP/s dense peak" in measured


def test_force_writes_a_refused_fit_and_the_file_says_so(tmp_path: Path) -> None:
    """--force overrides; whoever finds the file later can read why it was refused."""
    result = invoke(tmp_path, steps_csv(tmp_path, seconds(batch=512)), more=("--force",))
    assert result.exit_code == 0
    table = tomllib.loads((tmp_path / "site.toml").read_text())
    assert "even the fitted factors" in table["forced"]
    assert table["error_after_pct"] > REFUSE_PCT
    (line,) = (text for text in result.stderr.splitlines() if "off even with" in text)
    assert line.count("tokens/s") == line.count("TFLOP/s per GPU") == line.count("MFU") == 2


def test_json_of_a_refusal_carries_the_same_facts(tmp_path: Path) -> None:
    """One document on stdout, exit code 2, nothing written."""
    result = invoke(tmp_path, steps_csv(tmp_path, seconds(batch=512)), more=("--json",))
    assert refusal(result)
    found = json.loads(result.stdout)
    assert found["written"] is False
    assert found["refusal"] in str(result.exception)
    assert found["refuse_above_pct"] == REFUSE_PCT
    assert found["error_before_pct"] == pytest.approx(50.0, abs=0.5)
    log = found["logs"][0]
    assert log["error_after_pct"] < -REFUSE_PCT
    rates = log["measured"]
    assert rates["tokens_per_s"] == pytest.approx(log["tokens"] / rates["step_time_s"])
    assert rates["mfu"] == pytest.approx(rates["tflops_per_gpu"] / 989, rel=1e-3)
    assert log["predicted"]["mfu"] == pytest.approx(rates["mfu"] / 0.5, rel=0.02)
    assert any("--global-batch 512" in one["change"] for one in found["suspects"])


def test_a_fit_between_the_bounds_warns_and_writes(tmp_path: Path) -> None:
    """A log 37 % slower than predicted is written, with the reason to doubt it."""
    result = invoke(tmp_path, steps_csv(tmp_path, 1.37 * seconds()), more=("--json",))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["written"] is True
    assert WARN_PCT < found["error_after_pct"] < REFUSE_PCT
    assert "warning: steps.csv: -" in result.stderr
    assert "most likely wrong: " in result.stderr or "explains it alone" in result.stderr
    assert tomllib.loads((tmp_path / "site.toml").read_text())["warnings"]


def test_a_site_near_the_shipped_one_is_not_warned_of(tmp_path: Path) -> None:
    """Five per cent slower is what sites are."""
    result = invoke(tmp_path, steps_csv(tmp_path, 1.05 * seconds()))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "(-4.8 %) before the fit" in result.stdout
    assert "MFU" not in result.stdout


def test_a_batch_that_the_log_prints_is_not_suspected(tmp_path: Path) -> None:
    """What the log itself confirms is not what is wrong."""
    path = steps_csv(tmp_path, seconds(batch=512), extra="global_batch_size=256")
    line = refusal(invoke(tmp_path, path))
    assert "--global-batch" not in line
    assert "--gpus 32 instead of 64" in line


def test_rates_that_agree_with_time_clear_batch_length_and_gpus(tmp_path: Path) -> None:
    """A printed rate that fits the printed time leaves none of its inputs to doubt."""
    step = seconds(batch=512)
    rate = 256 * 8192 / 64 / step
    path = steps_csv(tmp_path, step, extra=f"tokens_per_s_per_gpu={rate}")
    line = refusal(invoke(tmp_path, path))
    for option in ("--global-batch", "--gpus", "--seq"):
        assert option not in line


def test_one_log_of_four_that_is_off_is_named_and_the_rest_serve(tmp_path: Path) -> None:
    """A wrong plan behind one @ does not spoil the fit; the log is named."""
    logs = []
    for tp, pp, wrong in ((1, 1, 1.0), (2, 1, 1.0), (4, 1, 1.0), (2, 2, 2.0)):
        path = steps_csv(tmp_path, 1.05 * wrong * seconds(tp=tp, pp=pp), f"tp{tp}pp{pp}.csv")
        logs.append(f"{path}@tp={tp},pp={pp}")
    result = invoke(tmp_path, *logs)
    assert result.exit_code == 0
    named = [line for line in result.stderr.splitlines() if "off even with" in line]
    assert len(named) == 1
    assert "tp2pp2.csv" in named[0]
    assert (tmp_path / "site.toml").exists()


def test_a_factor_at_the_end_of_its_range_is_named(tmp_path: Path) -> None:
    """Logs that agree on matrix work 1.45 x slower are fitted, and doubted all the same."""
    logs = []
    for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2), (1, 4)):
        step = seconds(SiteFactors(matrix=1.45), tp=tp, pp=pp)
        logs.append(f"{steps_csv(tmp_path, step, f'tp{tp}pp{pp}.csv')}@tp={tp},pp={pp}")
    result = invoke(tmp_path, *logs, more=("--json",))
    found = json.loads(result.stdout)
    assert found["error_after_pct"] < 5.0
    assert "matrix" in found["at_range_end"]
    assert "factor matrix = 1." in result.stderr
    assert "(0.82 to 1.22, which 95 of 100 sites keep)" in result.stderr


@pytest.mark.parametrize("times", [1e-6, 1e6])
def test_no_measurement_drives_a_factor_out_of_what_a_site_file_holds(times: float) -> None:
    """However wild the rows, the fit ends inside the limits instead of failing on them."""
    measured = times * np.ones(400)
    found = fit_factors(lambda site: np.full(400, site.matrix * site.memory), measured)
    assert 0.05 <= found.factors.matrix <= 20.0
    assert abs(found.error_after_pct[0]) > REFUSE_PCT


def test_the_range_of_a_factor_holds_one() -> None:
    """Every range is symmetric in the logarithm and has the shipped value inside."""
    for name in FACTORS:
        low, high = factor_range(name)
        assert low < 1.0 < high
        assert low * high == pytest.approx(1.0)


def test_the_bounds_follow_from_the_measured_errors() -> None:
    """The bound lies above nine in ten few-shot errors, at about three times the mean ones."""
    rows = json.loads((ROOT / "results" / "validation" / "all.json").read_text())["few_shot"]
    # nano: plans that stall, which no column tells, decide its errors.
    steady: list[dict[str, Any]] = [row for row in rows if row["source"] != "nano"]
    assert max(row["time_p90_ape_pct"] for row in steady) < REFUSE_PCT
    assert 2.5 < REFUSE_PCT / max(row["time_mape_pct"] for row in steady) < 4.0


def test_help_lists_the_columns_and_the_bounds() -> None:
    """`--help` alone is enough to write a CSV and to know when it is refused."""
    text = CliRunner().invoke(calibrate_command, ["--help"], env={"COLUMNS": "200"}).output
    flat = " ".join(text.split())
    for column in (
        "step_time_s", "step_time_ms", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s",
        "global_batch_size", "consumed_samples", "tflops_per_gpu", "mfu", "memory_bytes",
    ):  # fmt: skip
        assert column in flat
    assert f"{WARN_PCT:.0f} %" in flat
    assert f"{REFUSE_PCT:.0f} %" in flat


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iter,time\n1,9.4\n2,9.4\n", "its columns: iter, time"),
        ("1,9.4\n2,9.5\n", "its first line has no names"),
        ("time\n9.4\n", "its columns: time"),
        ("", "its columns: none"),
        ('number,step_time_s\n1,"9' + "4" * 200_000, "is a damaged CSV: field larger than"),
        ("number,step_time_s\n1,slow\n2,0\n", "no row with a positive number in step_time_s (2"),
    ],
)
def test_a_csv_without_its_columns_says_which_and_gives_an_example(
    tmp_path: Path, text: str, words: str
) -> None:
    """The message names what was found, what is wanted, and lines that would do."""
    path = tmp_path / "steps.csv"
    path.write_text(text)
    line = refusal(invoke(tmp_path, path))
    assert words in line
    assert "the header `number,step_time_s` and lines like `1,9.42`" in line
    if "no column" in line:
        assert "step_time_ms" in line
        assert "tokens_per_s_per_gpu" in line


def test_a_single_step_is_too_few_to_be_sure_of(tmp_path: Path) -> None:
    """One measured step is calibrated on, with a warning; twenty are without."""
    path = tmp_path / "one.csv"
    path.write_text(f"number,step_time_s\n1,{seconds():.6f}\n")
    result = invoke(tmp_path, path, more=("--force",))
    assert result.exit_code == 0
    assert "1 steady step(s), fewer than 5" in result.stdout + result.stderr
    many = invoke(tmp_path, steps_csv(tmp_path, seconds()), more=("--force",))
    assert "fewer than" not in many.stdout + many.stderr
