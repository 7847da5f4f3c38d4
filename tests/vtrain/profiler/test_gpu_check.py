"""The script that profiles a GPU machine, as someone types it there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "vtrain" / "profiler" / "gpu_check.sh"
TOOLS = ("bash", "date", "uname", "tee", "mkdir", "cat")

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
pytestmark = needs_bash


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the system's tools, and nothing of vtrain or NVIDIA."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    stand_in(folder, "python3", f'exec {sys.executable} "$@"\n')
    return folder


def stand_in(tools: Path, name: str, text: str) -> None:
    """Put a program of our own on the PATH."""
    path = tools / name
    path.write_text(f"#!{shutil.which('bash')}\n{text}", encoding="utf-8")
    path.chmod(0o755)


def run(tools: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tools / "bash"), str(SCRIPT), *arguments], env={**os.environ, "PATH": str(tools)},
        capture_output=True, text=True, timeout=20, check=False, cwd=tools.parent,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "0 arguments; usage: gpu_check.sh OUT"),
        (["out", "tpu"], "device 'tpu' is neither cuda nor cpu"),
        (["out", "cpu", "20"], "MINUTES '20' is not from 1 to 6"),
        (["out", "cpu", "0"], "MINUTES '0' is not from 1 to 6"),
        (["out", "cpu", "four"], "MINUTES 'four'"),
        (["out", "cpu", "4", "0"], "CONFIGS '0' is no whole number above 0"),
        (["out", "cpu", "4", "12", "x"], "5 arguments"),
        (["out", "cpu"], "vtrain is not on the PATH"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_nothing(
    tools: Path, arguments: list[str], words: str
) -> None:
    """The line says what is wrong with which argument; no folder is made."""
    done = run(tools, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tools.parent / "out").exists()


def test_a_machine_without_a_driver_is_told_so(tools: Path) -> None:
    """No nvidia-smi: one line, with the way to try the script all the same."""
    stand_in(tools, "vtrain", "exit 9\n")
    done = run(tools, "out")
    assert done.returncode == 2
    assert "no NVIDIA driver; on a CPU: gpu_check.sh out cpu" in done.stderr


def test_an_error_of_vtrain_ends_the_script(tools: Path) -> None:
    """Without torch the first command fails; its line and exit code come through."""
    stand_in(tools, "vtrain", "echo 'error: measuring needs torch' >&2; exit 2\n")
    done = run(tools, "out", "cpu")
    assert done.returncode == 2
    assert done.stderr == "error: measuring needs torch\n"


@pytest.mark.parametrize("ran", [True, False])
def test_a_verdict_is_summed_up_and_an_empty_one_is_an_error(tools: Path, ran: bool) -> None:
    """Skipped configurations are named; where all were, that is no success."""
    row = {
        "configuration": "small", "measured_s": 1.0, "predicted_s": 1.1, "time_error": 0.1,
        "memory_error": 0.02,
    }  # fmt: skip
    found = {
        "profile": {"gpu": "X", "torch": "2"}, "rows": [row] if ran else [],
        "skipped": ["large: out of memory"], "warnings": [],
        "time_error_mape": 0.1, "time_error_worst": 0.1, "memory_error_mape": 0.02,
        "memory_error_worst": 0.02,
    }  # fmt: skip
    (tools.parent / "found.json").write_text(json.dumps(found), encoding="utf-8")
    stand_in(
        tools, "vtrain", 'if [ "$2" = verify ]; then cat found.json; echo "$@" >asked.txt; fi\n'
    )
    done = run(tools, "out", "cpu", "1", "3")
    assert done.returncode == (0 if ran else 1), done.stderr
    assert "skipped: large: out of memory" in (tools.parent / "out" / "verify.txt").read_text()
    asked = (tools.parent / "asked.txt").read_text().split()
    assert 5.0 < float(asked[asked.index("--minutes") + 1]) <= 7.5
    if ran:
        assert "step time MAPE 10.0 %, worst 10.0 %" in done.stdout
    else:
        assert "no configuration ran" in done.stderr
