"""The command line: one clear line for every bad input, and nothing heavy for --help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vtrain.design import Design

QUICK = ("--fix", "recompute=none", "--fix", "micro_batch_size=2", "--fix", "virtual_stages=1",
         "--trials", "16", "--workers", "1", "-q")  # fmt: skip


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    code = "from vtrain_search.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, check=False
    )


BAD_INPUT = {
    "unknown cluster": (["--budget", "1e6usd", "--cluster", "h1000"], 2, "nearest: h100"),
    "no unit": (["--budget", "1M"], 2, "no unit"),
    "two readings": (["--budget", "5m", "usd"], 2, "nearest valid: 5Musd"),
    "negative": (["--budget=-3usd"], 2, "negative"),
    "eaten by the shell": (["--budget", "M"], 2, "quote dollars"),
    "unaffordable tokens": (
        ["--budget", "1e4usd", "--fix", "tokens=2e14", "--range", "hidden_size=512..1024",
         "--range", "layers=4..8"], 3, "smallest budget that works",
    ),
    "budget and deadline both too small": (
        ["--budget", "512xH100x30d", "--arch", "llama3-405b", "--fix", "sharding=zero3",
         "--workers", "1"], 3, "a deadline of 50.",
    ),
    "no folder for the report": (
        ["--budget", "1e4usd", "--report", "no/such/folder/x.md"], 2, "a folder that exists",
    ),
    "a size is no pin": (["--budget", "1e6usd", "--fix", "parameters=70e9"], 2, "--why-not 70B"),
    "model too large": (
        ["--budget", "1e4usd", "--arch", "llama3-405b", "--cluster", "v100", "--max-gpus", "8"],
        3, "GPUs of v100-sxm-32g are needed",
    ),
    "tp divides no heads": (
        ["--budget", "1e4usd", "--arch", "llama2-7b", "--fix", "tp=3"], 2, "nearest valid: tp=2",
    ),
    "tp divides no node": (["--budget", "1e4usd", "--fix", "tp=3"], 2, "nearest valid: tp=2"),
    "under the floor": (
        ["--budget", "0.01usd", "--range", "layers=4..6", "--range", "hidden_size=512..1024"],
        3, "smallest budget that works is about $",
    ),
    "no time": (
        ["--budget", "1e4usd", "--deadline", "10s", "--fix", "layers=4", "--fix",
         "hidden_size=512"], 3, "deadline of",
    ),
    "contradicting cluster": (
        ["--budget", "512xH100x30d", "--cluster", "A100"], 2, "drop --cluster",
    ),
    "contradicting deadline": (
        ["--budget", "512xH100x30d", "--deadline", "10d"], 2, "drop --deadline",
    ),
    "unknown law": (["--budget", "1e4usd", "--law", "chinchila"], 2, "unknown loss law"),
    "unknown pin": (["--budget", "1e4usd", "--fix", "foo=3"], 2, "unknown key 'foo'"),
    "no budget": ([], 2, "no budget given"),
    "no such run": (["--resume", "nowhere"], 2, "no run folder"),
    "workers": (["--budget", "1e4usd", "--workers", "0"], 2, "--workers 0"),
    "force alone": (["--budget", "1e4usd", "--force"], 2, "--force needs --save-dir"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line(name: str, tmp_path: Path) -> None:
    """The rule, the value and the way out on one line of stderr, nothing on stdout."""
    words, code, part = BAD_INPUT[name]
    extra = [] if "--workers" in words else ["--workers", "1"]
    done = run(*words, *extra, "-q", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert part in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_existing_and_read_only_folders_are_refused(tmp_path: Path) -> None:
    """A folder with a run, and a folder below a file, end in one line and exit code 2."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "file").write_text("")
    for folder, part in (("run", "holds a run already"), ("file/run", "cannot make run folder")):
        done = run("--budget", "1e4usd", *QUICK, "--save-dir", folder, cwd=tmp_path)
        assert done.returncode == 2
        assert part in done.stderr


def test_help_loads_nothing_heavy() -> None:
    """--help imports neither NumPy nor Optuna, Ray, pandas or SciPy."""
    code = (
        "import sys; sys.argv = ['vtrain-search', '--help']\n"
        "from vtrain_search.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code\n"
        "heavy = {'numpy', 'optuna', 'ray', 'pandas', 'scipy', 'sklearn', 'torch'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--budget" in done.stdout


def test_json_holds_the_contract(tmp_path: Path) -> None:
    """--json is one document with every promised key; each row reads back as a design."""
    done = run("--budget", "1e4usd", *QUICK, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["assumptions"]
    (row,) = document["rows"]
    promised = (
        "budget cluster price_usd_per_gpu_hour loss loss_low loss_high law parameters "
        "parameters_non_embedding tokens tokens_per_parameter layers hidden_size ffn_hidden_size "
        "num_attention_heads num_key_value_heads vocab_size seq_length global_batch_size gpus tp "
        "pp dp cp virtual_stages micro_batch_size recompute sharding sequence_parallel "
        "step_time_s mfu mem_peak_bytes mem_limit_bytes goodput days gpu_hours cost_usd "
        "unspent_usd seed warnings ties smaller"
    )
    assert set(promised.split()) <= set(row)
    assert row["loss_low"] < row["loss"] < row["loss_high"]
    design = Design.from_row(row)
    assert design.plan.gpus == row["gpus"]
    for other in (*row["ties"], *row["smaller"]):
        assert Design.from_row(other)


def test_the_table_says_what_to_train_and_what_it_assumes(tmp_path: Path) -> None:
    """The table goes to stdout with its assumptions; stderr stays silent with -q."""
    done = run("--budget", "1e4usd", *QUICK, cwd=tmp_path)
    assert done.returncode == 0
    for part in ("What to train", "How to train it", "assumptions", "$10.0k", "besiroglu2024"):
        assert part in done.stdout
    assert done.stderr == ""


def test_a_run_folder_resumes_with_no_other_option(tmp_path: Path) -> None:
    """--resume alone repeats the question; the files it ends with are the same bytes."""
    first = run("--budget", "1e4usd", *QUICK, "--save-dir", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    before = {n: (tmp_path / "run" / n).read_bytes() for n in ("trials.csv", "best.toml")}
    again = run("--resume", "run", "--workers", "1", "-q", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert {n: (tmp_path / "run" / n).read_bytes() for n in before} == before
    other = run("--resume", "run", "--seed", "5", "--workers", "1", "-q", cwd=tmp_path)
    assert other.returncode == 2
    assert "different seed" in other.stderr


def test_every_other_cluster_gets_a_line() -> None:
    """What the cluster that was not chosen would reach is said, with its gap; asked once only."""
    words = ("--budget", "2e4usd", "--cluster", "a100", "--cluster", "h100", *QUICK)
    made = json.loads(run(*words, "--json").stdout)
    other = {"a100-sxm-80g", "h100-sxm-80g"} - {made["rows"][0]["cluster"]}
    (found,) = made["why_not"]["$20.0k"]
    assert {found["alternative"]} == other
    assert found["gap_nats"] > 0.0
    assert len(found["lines"]) == 1
    assert "of the budget" in found["lines"][0]


def test_a_dry_run_states_one_time() -> None:
    """The measured expectation is the only one: no guess of the choice of workers beside it."""
    done = run("--budget", "2e4usd", "--dry-run")
    assert done.returncode == 0
    assert "expected time" in done.stdout
    assert " s of work" not in done.stderr
