"""The main job, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(module: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"from {module} import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_rows_fed_back_to_the_simulator_agree(tmp_path: Path) -> None:
    """`vtrain simulate` gives the step time, memory and MFU of a row to 1e-9."""
    done = run(
        "vtrain_search.cli", "--budget", "1e5usd", "--trials", "16", "--workers", "1", "-q",
        "--json", "--save-dir", "run", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    (tmp_path / "row.json").write_text(json.dumps(row))
    for source in ("row.json", "run/best.toml"):
        again = run("vtrain.cli", "simulate", "--design", source, "--json", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        simulated = json.loads(again.stdout)
        for key in ("step_time_s", "mem_peak_bytes", "mfu", "mem_limit_bytes"):
            assert simulated[key] == pytest.approx(row[key], rel=1e-9), key


@pytest.mark.slow
def test_a_million_dollars_buy_a_sensible_model(tmp_path: Path) -> None:
    """$1M on H100: 40-120B parameters, 13-24 tokens each, a few hundred GPUs, MFU 36-60 %."""
    done = run(
        "vtrain_search.cli", "--budget", "1e6usd", "--workers", "1", "-q", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert 40e9 <= row["parameters"] <= 120e9
    assert 13.0 <= row["tokens_per_parameter"] <= 24.0
    assert 1.970 <= row["loss"] <= 1.990
    assert 440 <= row["gpus"] <= 700
    assert 0.36 <= row["mfu"] <= 0.60
    assert 22.0 <= row["days"] <= 30.0
    assert row["tp"] <= 8
    critical = 0.567 * row["tokens"] ** 0.571 / row["seq_length"]
    assert critical / 1.6 <= row["global_batch_size"] <= critical * 1.6


def test_a_dry_run_evaluates_little_and_says_what_is_ahead(tmp_path: Path) -> None:
    """--dry-run prints the size of the space, the feasible share and the expected time."""
    done = run(
        "vtrain_search.cli", "--budget", "1e4usd", "--dry-run", "--workers", "1", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for part in ("architectures", "fit in memory", "(design, plan) points", "expected time"):
        assert part in done.stdout


def test_a_target_loss_needs_no_budget(tmp_path: Path) -> None:
    """--target-loss answers in dollars; a loss no model reaches ends with exit code 3."""
    few = ("--fix", "recompute=none", "--fix", "micro_batch_size=2", "--trials", "16")
    done = run(
        "vtrain_search.cli", "--target-loss", "2.3", *few, "--workers", "1", "-q", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["loss"] <= 2.3
    assert row["target_loss"] == 2.3
    none = run("vtrain_search.cli", "--target-loss", "1.7", *few, "--workers", "1", "-q",
               cwd=tmp_path)  # fmt: skip
    assert none.returncode == 3
    assert "irreducible" in none.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_a_users_own_search_module_does_no_harm(tmp_path: Path) -> None:
    """With a file called search.py in the working directory two Ray workers still start."""
    (tmp_path / "search.py").write_text("raise ImportError('not the one you want')\n")
    done = run(
        "vtrain_search.cli", "--budget", "1e4usd", "--trials", "8", "--workers", "2", "-q",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == 1
    assert done.stderr == ""


def test_running_out_of_time_is_a_partial_result(tmp_path: Path) -> None:
    """--timeout prints what was found and ends with exit code 4."""
    done = run(
        "vtrain_search.cli", "--budget", "1e4usd..1e6usd:5", "--timeout", "6s", "--workers", "1",
        "-q", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (3, 4), done.stderr
    if done.returncode == 4:
        assert "What to train" in done.stdout
        assert "stopped early" in done.stderr
