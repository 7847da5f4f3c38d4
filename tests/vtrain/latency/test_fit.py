"""The fit command: recovers known constants, and reproduces the published comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from vtrain.errors import UserInputError
from vtrain.latency.fit import gemm
from vtrain.latency.fit.borrow import power_factor
from vtrain.latency.fit.collectives import intra_form
from vtrain.latency.fit.robust import cross_validate, fit
from vtrain.latency.fit.tables import MEASURED, gemm_rows, group_numbers, read_table, seconds
from vtrain.latency.fit_cli import fit_device
from vtrain.presets import load_device

if TYPE_CHECKING:
    from pathlib import Path


def test_known_constants_come_back_despite_outliers():
    """Five per cent of rows three times too slow do not move a fit of noisy synthetic times."""
    rng = np.random.default_rng(1)
    device = load_device("H100")
    m, n, k = (2.0 ** rng.uniform(8, 14, 600) for _ in range(3))
    form = gemm.saturating_form(device, "bf16", m, n, k)
    truth = np.array([0.78, 90.0, 60.0, 130.0, 0.65, 3e-6])
    times = form.predict(truth, np.arange(600)) * rng.lognormal(0.0, 0.02, 600)
    times[::20] *= 3.0
    found = fit(form, times, np.arange(600))
    np.testing.assert_allclose(found[[0, 4, 5]], truth[[0, 4, 5]], rtol=0.05)
    np.testing.assert_allclose(
        form.predict(found, np.arange(600)), form.predict(truth, np.arange(600)), rtol=0.05
    )


def test_collective_terms_come_back():
    """Latency, square-root term and one bandwidth a rank count are told apart."""
    sizes = np.tile(2.0 ** np.arange(9, 30), 3)
    ranks = np.repeat([2.0, 4.0, 8.0], 21)
    form = intra_form(ranks, sizes)
    truth = np.array([6e-6, 1.5e-6, 5e-9, 2.0e11, 2.5e11, 4e11])
    found = fit(form, form.predict(truth, np.arange(63)), np.arange(63))
    np.testing.assert_allclose(found, truth, rtol=0.02)


def test_board_power_sets_the_clock_by_a_square_root():
    """The donor's own power changes nothing; 500 of 700 W costs a fifth of the clock."""
    assert power_factor(700.0, 700.0) == 1.0
    assert power_factor(500.0, 700.0) == pytest.approx(0.787, abs=0.001)


def test_missing_tables_are_a_user_error(tmp_path: Path):
    """An empty folder is told in one line."""
    with pytest.raises(UserInputError, match=r"gemm\.csv"):
        read_table(tmp_path, "gemm.csv")


# Published five-fold errors, MAPE %: roofline, flat, saturating (b), tiles (c).
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("a100-sxm-80g", [36.5, 10.0, 8.8, 7.1]),
        ("h100-sxm-80g", [34.1, 7.4, 6.3, 6.0]),
        ("h200-sxm-141g", [35.2, 6.9, 6.0, 5.6]),
        ("b200-sxm-180g", [45.5, 8.2, 7.8, 7.1]),
    ],
)
def test_published_comparison_is_reproduced(shared_data: Path, name, published):
    """Each model's held-out error is within a point of the published one, or below it."""
    frame = read_table(shared_data / "profiles", "gemm.csv")
    rows = gemm_rows(frame, MEASURED[name], "bf16", aligned=False, published=True)
    device, groups = load_device(name), group_numbers(rows, ["n", "k"])
    m, n, k = (rows[column].to_numpy(dtype=np.float64) for column in ("m", "n", "k"))
    forms = [
        build(device, "bf16", m, n, k)
        for build in (gemm.roofline_form, gemm.flat_form, gemm.saturating_form, gemm.tile_form)
    ]
    got = [cross_validate(form, seconds(rows), groups).mape_pct for form in forms]
    np.testing.assert_allclose(got, published, atol=1.0)


def test_command_writes_whole_files_and_a_report(shared_data: Path, tmp_path: Path):
    """One device fitted into a folder gives what is shipped, and a table of errors."""
    runner = CliRunner()
    result = runner.invoke(
        fit_device,
        ["--profiles", str(shared_data / "profiles"), "--device", "gb300",
         "--out", str(tmp_path), "--report", str(tmp_path / "report")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    fitted = (tmp_path / "devices" / "gb300.toml").read_text()
    assert "gb200 gemm" in fitted
    assert load_device(tmp_path / "devices" / "gb300.toml").gemm == load_device("gb300").gemm
    assert (
        "| gb300 | all_reduce in a domain | 42 |" in (tmp_path / "report" / "README.md").read_text()
    )
