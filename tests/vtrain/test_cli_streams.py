"""A command whose output cannot be written ends with one line, or quietly where nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = "from vtrain.cli import main; main()"


def run(words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    """Run `vtrain` with a given standard output."""
    return subprocess.run(
        [sys.executable, "-c", START, *words.split()], stdout=stdout, stderr=subprocess.PIPE,
        text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["--help", "mfu --help"])
def test_a_full_disk_is_one_line(words: str) -> None:
    """No traceback and no internal error: what failed, and exit code 1."""
    with Path("/dev/full").open("w") as full:
        done = run(words, full.fileno())
    assert done.returncode == 1
    assert done.stderr == "error: cannot write: No space left on device\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    """A closed pipe ends the command quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run("--help", writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_standard_output_is_one_line() -> None:
    """A closed standard output is named."""
    command = f'exec "{sys.executable}" -c "{START}" --help >&-'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write: standard output is closed\n"
