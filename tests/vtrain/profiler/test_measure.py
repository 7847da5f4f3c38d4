"""Measuring for real, on the CPU, with a handful of small operators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vtrain.errors import UserInputError
from vtrain.profiler.cli import profile_group
from vtrain.profiler.configs import random_configs
from vtrain.profiler.meta import read_meta, write_meta
from vtrain.profiler.operators import Operator, plan_operators
from vtrain.profiler.rows import read_rows
from vtrain.profiler.runtime import Runtime, open_runtime, require_torch
from vtrain.profiler.session import Outcome, measure_operators

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return open_runtime("cpu")


def few(count: int) -> list[Operator]:
    """The cheapest operators of each table."""
    plan = plan_operators("cpu", 4.0, 30)
    return sorted(plan, key=lambda op: max(op.flops, 50.0 * op.traffic_bytes))[:count]


def measure(runtime: Runtime, folder: Path, operators: list[Operator], **more: Any) -> Outcome:
    options: dict[str, Any] = {"seconds_limit": 60.0, "resume": False, **more}
    return measure_operators(
        runtime, folder, name="test", gemms=30, progress=lambda *_: None, operators=operators,
        **options,
    )  # fmt: skip


def test_rows_are_measured_and_their_machine_is_named(runtime: Runtime, tmp_path: Path) -> None:
    """Times are positive, the head names device, versions, clock and date."""
    outcome = measure(runtime, tmp_path / "p", few(12))
    assert (outcome.measured, outcome.left, outcome.skipped) == (12, 0, ())
    meta = read_meta(tmp_path / "p")
    assert meta.torch == torch.__version__
    assert meta.clock == "thread CPU time"
    assert meta.anchor_s > 0
    rows = [
        row
        for table in ("gemm", "attention", "elementwise")
        for row in read_rows(tmp_path / "p" / f"{table}.csv", table)
    ]
    assert len(rows) == 12
    assert all(float(row["time_us"]) > 0 and int(row["repeats"]) >= 5 for row in rows)


def test_a_stopped_session_goes_on_where_it_was(runtime: Runtime, tmp_path: Path) -> None:
    """The time limit leaves rows over, --resume measures those and no others."""
    folder, operators = tmp_path / "p", few(8)
    first = measure(runtime, folder, operators, seconds_limit=0.0)
    assert first.left == 8
    measure(runtime, folder, operators[:3], resume=True)
    second = measure(runtime, folder, operators, resume=True)
    assert (second.kept, second.measured) == (3, 5)
    assert measure(runtime, folder, operators, resume=True).measured == 0
    with pytest.raises(UserInputError, match="--resume to go on"):
        measure(runtime, folder, operators)


def test_ctrl_c_keeps_what_is_done(runtime: Runtime, tmp_path: Path) -> None:
    """Rows measured before an interruption are in the tables."""

    def interrupted(_: Runtime) -> Any:
        raise KeyboardInterrupt

    operators = few(4)
    operators[3] = replace(operators[3], build=interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(runtime, tmp_path / "p", operators)
    operators[3] = few(4)[3]
    assert measure(runtime, tmp_path / "p", operators, resume=True).kept == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out of memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] can't allocate memory"),
            "out of memory",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"),
        (RuntimeError("no kernel for this\ndetail"), "no kernel for this"),
    ],
)
def test_a_shape_that_fails_is_skipped_and_named(
    runtime: Runtime, tmp_path: Path, error: Exception, reason: str
) -> None:
    """Memory that runs out in mid-profile costs one row; the rest is kept."""

    def fails(_: Runtime) -> Any:
        raise error

    operators = few(5)
    operators[2] = replace(operators[2], build=fails)
    outcome = measure(runtime, tmp_path / "p", operators)
    assert outcome.measured == 4
    (entry,) = outcome.skipped
    assert entry == f"{operators[2].label}: {reason}"
    assert read_meta(tmp_path / "p").skipped == outcome.skipped


def test_another_device_is_not_mixed_in(runtime: Runtime, tmp_path: Path) -> None:
    """A profile of one machine is not gone on with on another."""
    measure(runtime, tmp_path / "p", few(2))
    write_meta(tmp_path / "p", replace(read_meta(tmp_path / "p"), gpu="NVIDIA H100 80GB HBM3"))
    with pytest.raises(UserInputError, match="holds a profile of NVIDIA H100"):
        measure(runtime, tmp_path / "p", few(2), resume=True)


def test_a_folder_of_something_else_is_left_alone(runtime: Runtime, tmp_path: Path) -> None:
    """A folder with other files is no place for a profile."""
    (tmp_path / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(UserInputError, match="is not empty and holds no profile"):
        measure(runtime, tmp_path, few(1))


def test_clocks_that_drift_are_warned_of(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that falls by more than five percent over a session is in the profile."""
    clocks = iter((2000.0, 1800.0))
    monkeypatch.setattr("vtrain.profiler.session.clock_mhz", lambda _: next(clocks))
    outcome = measure(runtime, tmp_path / "p", few(3))
    assert any("the clock moved from 2000 to 1800 MHz" in text for text in outcome.meta.warnings)


def test_a_verdict_compares_time_and_memory(runtime: Runtime, fitted: Path, tmp_path: Path) -> None:
    """Real steps run, and predictions stand beside them, for the profile's own device only."""
    from vtrain.profiler.prediction import load_profile
    from vtrain.profiler.verify import verify_steps

    profile = load_profile(fitted)
    configs = random_configs("cpu", 40, 7)[:2]
    with pytest.raises(UserInputError, match="the profile is of Made-up CPU"):
        verify_steps(runtime, profile, configs, progress=lambda *_: None)
    here = replace(profile, meta=replace(profile.meta, gpu=runtime.facts.name))
    verdict = verify_steps(runtime, here, configs, repeats=2, progress=lambda *_: None)
    assert len(verdict.checks) == 2
    for check in verdict.checks:
        assert check.measured_s > 0
        # Peak memory is physics, not speed: it holds on any machine.
        assert abs(check.memory_error) < 0.10


def test_a_dry_run_measures_nothing(tmp_path: Path) -> None:
    """--dry-run prints the rows, one a line, and makes no folder."""
    out = tmp_path / "p"
    result = CliRunner().invoke(
        profile_group, ["run", "--device", "cpu", "--out", str(out), "--dry-run"]
    )
    lines = result.output.splitlines()
    assert "nothing was measured" in lines[0]
    assert len(lines) == 1 + int(lines[0].split()[0])
    assert not out.exists()


def test_without_torch_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing torch is one line with the install command."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserInputError, match=r"pip install 'vtrain\[profile\]'"):
        require_torch()


def test_a_device_that_is_not_there_is_named() -> None:
    """Asking for CUDA without CUDA, or for a TPU, says what there is."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(UserInputError, match="no CUDA device"):
        open_runtime("cuda")
    with pytest.raises(UserInputError, match="one of cuda, cpu"):
        open_runtime("tpu")


PARALLEL = """
import sys
from vtrain.profiler import collectives, parallel, sharing
from vtrain.architecture import Architecture
small = Architecture(num_layers=2, hidden_size=64, num_attention_heads=2, num_key_value_heads=2,
                     head_dim=32, ffn_hidden_size=64, gated_mlp=True, vocab_size=64)
def tiny(kind, ranks):
    return [parallel.ParallelConfig(mode=mode, architecture=small, seq_length=16,
                                    micro_batch_size=1, micro_batches=4 if mode == "pp" else 1)
            for mode in parallel.MODES]
parallel.parallel_configs = tiny
collectives.message_sizes = lambda space: [2**8, 2**12, 2**16, 2**20, 2**22]
sharing.PRODUCTS, sharing.REPEATS, sharing.BATCH_S = 1, 2, 1e-3
collectives.REPEATS, collectives.BATCH_S = 2, 1e-3
from vtrain.cli import main
sys.argv = ["vtrain", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_two_processes_measure_collectives_and_parallel_steps(
    runtime: Runtime, fitted: Path, tmp_path: Path
) -> None:
    """Under torchrun two ranks add gloo's collectives to a profile and run DP, TP and PP steps."""
    folder = tmp_path / "p"
    folder.mkdir()
    for path in fitted.iterdir():
        text = path.read_text(encoding="utf-8").replace("Made-up CPU", runtime.facts.name)
        (folder / path.name).write_text(text, encoding="utf-8")
    script = tmp_path / "tiny.py"
    script.write_text(PARALLEL, encoding="utf-8")
    head = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
        str(script), "profile",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    common = {"env": environment, "capture_output": True, "text": True, "timeout": 240}
    run = [*head, "run", "--device", "cpu", "--out", str(folder)]
    done = subprocess.run(run, check=False, **common)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-2000:]
    rows = read_rows(folder / "collectives.csv", "collectives")
    assert {row["op"] for row in rows} >= {"all_reduce", "all_gather", "send_recv"}
    assert read_meta(folder).world == 2
    assert 1.0 <= read_meta(folder).shared_memory < 4.0
    verify = [*head, "verify", "--profile", str(folder), "--repeats", "2", "--json"]
    done = subprocess.run(verify, check=False, **common)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads(done.stdout)
    assert [row["configuration"][:2] for row in document["rows"]] == ["dp", "tp", "pp"]
    assert all(row["measured_s"] > 0 for row in document["rows"])
