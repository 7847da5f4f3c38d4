from __future__ import annotations

from pathlib import Path

import pytest

from vtrain.presets import load_cluster, load_device
from vtrain.profiler.budget import profiling_budget
from vtrain.profiler.fit.profile import fit_profile
from vtrain.profiler.importer import import_tables

THIRTY = {
    "a100-sxm-80g": 7.2, "h100-sxm-80g": 6.3, "h200-sxm-141g": 5.6, "b200-sxm-180g": 7.1,
}  # fmt: skip
"""Published: profiling budget, thirty products, model (c); H200 and B200 from the main table."""

FOUR_THOUSAND = {
    "a100-sxm-80g": 3.3, "h100-sxm-80g": 3.5, "h200-sxm-141g": 3.2, "b200-sxm-180g": 4.0,
}  # fmt: skip
"""Published: model (e) on four thousand products; H200 and B200 from the main table."""


@pytest.mark.parametrize("device", THIRTY)
def test_thirty_products_fix_the_tile_model(shared_data: Path, device: str) -> None:
    """From thirty products the held-out error is within a point of the published one."""
    (row,) = profiling_budget(shared_data / "profiles", device, (30,))
    assert row.tiles.rows == 2000
    assert row.tiles.mape_pct <= THIRTY[device] + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("device", FOUR_THOUSAND)
def test_four_thousand_products_feed_the_residual(shared_data: Path, device: str) -> None:
    """From four thousand products the residual is within a point of the published one."""
    (row,) = profiling_budget(shared_data / "profiles", device, (4000,))
    assert row.residual is not None
    assert row.residual.mape_pct <= FOUR_THOUSAND[device] + 1.0


def test_published_tables_import_as_a_profile(shared_data: Path, tmp_path: Path) -> None:
    """The published tables of one device become a profile that a command can load."""
    folder = tmp_path / "l40s"
    import_tables(shared_data / "profiles", folder, gpu="L40S", base=None)
    found = fit_profile(folder)
    assert found.products is not None
    # Measured 15.7 on all rows, narrow products included (2026-11-30).
    assert found.products.saturating.mape_pct < 17.0
    device = load_device(folder)
    # A datasheet of 362 TFLOPS dense; the fastest product measured stands in.
    assert 2e14 < device.peak_flops["bf16"] < 3.7e14
    assert load_cluster(folder).device.name == "l40s"
