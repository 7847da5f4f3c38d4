"""Killing, interrupting and resuming the real command."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-c", "from vtrain_search.cli import main; main()")
QUESTION = ("--budget", "1e4usd", "--budget", "3e4usd", "--fix", "recompute=none", "--fix",
            "micro_batch_size=2", "--trials", "40", "--workers", "1", "-q")  # fmt: skip


def finish(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("trials.csv", "best.toml")}


def wait_for_trials(folder: Path, lines: int, process: subprocess.Popen[str]) -> None:
    """Wait until the journal has some lines, or the process is done."""
    journal = folder / "trials.journal"
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_runs_resume_to_the_same_bytes(tmp_path: Path) -> None:
    """kill -9 at random moments, then --resume: the files of an unbroken run."""
    unbroken = finish(*QUESTION, "--save-dir", str(tmp_path / "unbroken"))
    assert unbroken.returncode == 0
    expected = files(tmp_path / "unbroken")
    moments = random.Random(7)
    for number in range(int(os.environ.get("VTRAIN_KILLS", "2"))):
        folder = tmp_path / f"killed{number}"
        process = start(*QUESTION, "--save-dir", str(folder))
        wait_for_trials(folder, moments.randint(3, 100), process)
        time.sleep(moments.random() * 0.05)
        process.kill()
        process.communicate()
        resumed = finish("--resume", str(folder), "--workers", "1", "-q")
        assert resumed.returncode == 0, resumed.stderr
        assert files(folder) == expected


def test_ctrl_c_prints_what_was_found(tmp_path: Path) -> None:
    """SIGINT in mid-search: a table, exit code 130, and the run folder can be resumed."""
    folder = tmp_path / "run"
    process = start(*QUESTION, "--save-dir", str(folder))
    wait_for_trials(folder, 20, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "What to train" in stdout
    assert "interrupted" in stderr
    assert (folder / "trials.csv").exists()
    resumed = finish("--resume", str(folder), "--workers", "1", "-q")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """With Ray workers too, everything is gone when the command returns."""
    words = [w for w in QUESTION if w not in ("--workers", "1")]
    folder = tmp_path / "run"
    process = start(*words, "--workers", "2", "--save-dir", str(folder))
    wait_for_trials(folder, 20, process)
    children = _descendants(process.pid)
    assert children
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(_alive, children)):
        time.sleep(0.2)
    assert not any(map(_alive, children))


def _descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *_descendants(int(entry.name))]
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
