from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from vtrain.errors import UserInputError
from vtrain.presets import load_cluster, load_device, load_stack
from vtrain.profiler.configs import random_configs
from vtrain.profiler.fit.profile import fit_profile
from vtrain.profiler.prediction import load_profile, predict_step
from vtrain.profiler.rows import read_rows, write_rows
from vtrain.simulate_cli import simulate_command
from vtrain.site_file import load_site

Make = Callable[..., Path]


def test_known_constants_come_back(make_profile: Make) -> None:
    """Noiseless rows of a known machine give its constants and errors near zero."""
    found = fit_profile(make_profile())
    assert found.products is not None
    assert found.products.saturating.mape_pct < 2.0
    assert found.products.constants.weight_gradient == pytest.approx(1.1, abs=0.02)
    assert found.attention is not None
    assert found.attention.forward.mape_pct < 2.0
    assert found.memory is not None
    for name, share in found.memory.shares.items():
        # Bytes are planned bytes, half of those that move.
        rate = share * found.scale.device.hbm_bytes_per_s * 2.0
        assert rate == pytest.approx(8e9, rel=0.05), name


def test_every_command_takes_the_folder(fitted: Path) -> None:
    """--cluster DIR and --stack DIR load the device, links and software that were measured."""
    cluster, stack = load_cluster(str(fitted)), load_stack(str(fitted))
    assert cluster.device.name == "made-up"
    assert cluster.max_gpus == 1
    assert stack.state.total == 8.0
    arguments = [
        "--model", "gpt2", "--gpus", "1", "--global-batch", "2", "--seq", "256", "--sharding",
        "none", "--cluster", str(fitted), "--stack", str(fitted),
    ]  # fmt: skip
    result = CliRunner().invoke(simulate_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0


def test_wide_elements_halve_the_planned_memory(fitted: Path) -> None:
    """A CPU that trains in fp32 is described in bytes of half precision: plans fit when they do."""
    assert load_device(fitted).memory_bytes == 8e9


def test_every_value_names_its_source(fitted: Path) -> None:
    """Device and cluster files of a profile say where each table is from."""
    for name in ("device.toml", "cluster.toml"):
        table = tomllib.loads((fitted / name).read_text(encoding="utf-8"))
        sources = table["sources"]
        keys = set(table) - {"sources"}
        assert all(
            key in sources or any(path.startswith(f"{key}.") for path in sources) for key in keys
        )


def test_a_prediction_adds_up_what_was_measured(fitted: Path) -> None:
    """On the made-up machine a step takes at least its FLOPs at the peak, and little more."""
    profile = load_profile(fitted)
    for config in random_configs("cpu", 6, 3):
        found = predict_step(profile, config)
        causal = config.tokens * config.architecture.training_flops_per_token(
            config.seq_length, causal=True
        )
        assert causal / 5e10 < found.step_time_s < 4.0 * causal / 5e10 + 0.2
        assert found.low_s <= found.step_time_s <= found.high_s


def test_products_outside_the_measured_range_are_listed(make_profile: Make) -> None:
    """A configuration beyond the measured shapes names them, and its interval widens."""
    folder = make_profile()
    fit_profile(folder)
    rows = read_rows(folder / "gemm.csv", "gemm")
    small = [row for row in rows if max(float(row[name]) for name in "mnk") <= 1024]
    write_rows(folder, "gemm", small)
    fit_profile(folder)
    profile = load_profile(folder)
    biggest = random_configs("cpu", 12, 0)[-1]
    found = predict_step(profile, biggest)
    assert found.missed
    assert profile.measured.high == (1024.0, 1024.0, 1024.0) or max(profile.measured.high) <= 1024


def test_a_residual_is_used_only_where_it_wins(make_profile: Make) -> None:
    """A pattern the analytic model cannot hold is learned; without one nothing is."""
    plain = make_profile("plain", 60)
    assert not fit_profile(plain).residual["used"] or _mape(plain) < 1.0
    bumpy = make_profile("bumpy", 150)
    rows = read_rows(bumpy / "gemm.csv", "gemm")
    for row in rows:
        slow = 1.35 if float(row["k"]) > 600 else 1.0
        row["time_us"] = f"{float(row['time_us']) * slow:.6g}"
    write_rows(bumpy, "gemm", rows)
    verdict = fit_profile(bumpy).residual
    assert verdict["used"]
    assert verdict["residual_mape_pct"] < 0.7 * verdict["analytic_mape_pct"]
    profile = load_profile(bumpy)
    assert profile.residual is not None


def _mape(folder: Path) -> float:
    table = tomllib.loads((folder / "residual.toml").read_text(encoding="utf-8"))
    return float(table["residual_mape_pct"])


def test_a_residual_is_the_same_every_time(make_profile: Make) -> None:
    """Trees are refitted, seeded: two loads correct alike."""
    folder = make_profile("bumpy", 120)
    rows = read_rows(folder / "gemm.csv", "gemm")
    for index, row in enumerate(rows):
        row["time_us"] = f"{float(row['time_us']) * (1.3 if index % 5 else 1.0):.6g}"
    write_rows(folder, "gemm", rows)
    fit_profile(folder)
    config = random_configs("cpu", 4, 1)[-1]
    first, second = (predict_step(load_profile(folder), config) for _ in range(2))
    assert first == second
    assert np.isfinite(first.step_time_s)


def test_rows_of_another_device_are_refused(make_profile: Make) -> None:
    """A profile is of one device."""
    folder = make_profile()
    rows = read_rows(folder / "gemm.csv", "gemm")
    rows[3]["gpu"] = "H100"
    write_rows(folder, "gemm", rows)
    with pytest.raises(UserInputError, match="has rows of 'H100'"):
        fit_profile(folder)


def test_too_few_rows_say_how_to_go_on(make_profile: Make) -> None:
    """A profile cut off at its start cannot be fitted, and says what to do."""
    folder = make_profile()
    write_rows(folder, "gemm", read_rows(folder / "gemm.csv", "gemm")[:4])
    with pytest.raises(UserInputError, match=r"too few to fit; .* --resume"):
        fit_profile(folder)
    (folder / "gemm.csv").unlink()
    with pytest.raises(UserInputError, match="no measured products"):
        fit_profile(folder)


def test_collectives_make_a_cluster(make_profile: Make) -> None:
    """Measured links of two ranks give a cluster of two devices, and a site file of sharing."""
    folder = make_profile(world=2, shared_memory=1.25)
    rows = []
    for op, factor in (
        ("all_reduce", 1.0), ("all_gather", 0.5), ("reduce_scatter", 0.5), ("send_recv", 1.0),
    ):  # fmt: skip
        for power in range(8, 25, 2):
            size = 2**power
            time_s = 1e-4 + factor * size / 1e9
            rows.append({
                "gpu": "Made-up CPU", "system": "gloo", "nodes": "1", "gpus": "2", "op": op,
                "bytes": str(size), "time_us": f"{time_s * 1e6:.6g}", "source": "test",
            })  # fmt: skip
    write_rows(folder, "collectives", rows)
    found = fit_profile(folder)
    assert all(error.mape_pct < 3.0 for error in found.links.errors.values())
    assert load_site(folder / "site.toml").memory == 1.25
    cluster = load_cluster(folder)
    assert (cluster.max_gpus, cluster.nvlink_domain) == (2, 2)
    # A planned byte is two bytes on the wire.
    terms = cluster.intra.terms["all_reduce"]
    assert terms.bandwidth_bytes_per_s == pytest.approx(0.5e9, rel=0.1)
    assert terms.a0_s == pytest.approx(1e-4, rel=0.1)
