"""The wheel alone is enough: no checkout beside it, a decoy `search.py` in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built by its own build backend."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_wheel_carries_data_and_no_tests(wheel: Path) -> None:
    """Devices, clusters, stacks, models, prices and budgets travel; tests and results do not."""
    names = zipfile.ZipFile(wheel).namelist()
    for part in (
        "vtrain/data/devices/",
        "vtrain/data/clusters/",
        "vtrain/data/stacks/",
        "vtrain/data/models/",
        "vtrain/budgets/prices/",
        "vtrain_search/",
    ):
        assert any(name.startswith(part) for name in names), part
    assert not [name for name in names if name.startswith(("tests/", "results/", "search/"))]


@pytest.mark.ray
@pytest.mark.slow
def test_main_job_runs_from_the_wheel_with_a_decoy(wheel: Path, tmp_path: Path) -> None:
    """Unpacked outside the checkout, two workers find vtrain_search past a user's search.py."""
    site = tmp_path / "site"
    work = tmp_path / "work"
    work.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    (work / "search.py").write_text("raise RuntimeError('the decoy was imported')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import vtrain_search.cli as cli\n"
        f"assert cli.__file__.startswith({str(site)!r}), cli.__file__\n"
        "cli.main()\n"
    )
    (tmp_path / "run.py").write_text(code)
    # Editable installs put the checkout on the path of child processes; the wheel comes first.
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), "--budget", "1e6usd", "--trials", "8",
         "--workers", "2", "--json"],
        cwd=work, env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert row["cost_usd"] <= 1e6
