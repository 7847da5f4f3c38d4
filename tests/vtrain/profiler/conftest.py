"""A synthetic profile: rows of a made-up CPU whose constants are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vtrain.profiler.fit.profile import fit_profile
from vtrain.profiler.meta import Meta, write_meta
from vtrain.profiler.operators import plan_operators
from vtrain.profiler.rows import Row, write_rows

PEAK, BANDWIDTH, FLOOR_S = 5e10, 8e9, 2e-5
Make = Callable[..., Path]


def seconds(table: str, row: dict[str, str], flops: float, traffic: float) -> float:
    """Time of an operator on the made-up CPU."""
    if table == "elementwise":
        launch = {"layer_launch[torch]": 3.2e-3, "step_launch[torch]": 5e-4}
        if row["op"] in launch:
            return launch[row["op"]]
        if row["op"] == "autograd_call[torch]":
            return 1e-5
        return FLOOR_S + traffic / BANDWIDTH + (1e-5 if row["pass"] == "bwd" else 0.0)
    if table == "attention":
        return FLOOR_S + flops / (0.6 * PEAK) + (1e-5 if row["pass"] == "bwd" else 0.0)
    m, n, k = (float(row[name]) for name in "mnk")
    slow = 1.1 if row["layout"] == "NT" else 1.0
    return slow * (FLOOR_S + 2.0 * (m + 20) * (n + 15) * (k + 18) / PEAK)


@pytest.fixture
def make_profile(tmp_path: Path) -> Make:
    """Return a function that writes the measured rows of the made-up CPU into a folder."""
    return _maker(tmp_path)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One fitted profile for all tests that only read."""
    folder = _maker(tmp_path_factory.mktemp("fitted"))("made-up")
    fit_profile(folder)
    return folder


def _maker(parent: Path) -> Make:
    def make(name: str = "made-up", gemms: int = 30, **changes: object) -> Path:
        folder = parent / name
        folder.mkdir()
        tables: dict[str, list[Row]] = {"gemm": [], "attention": [], "elementwise": []}
        for operator in plan_operators("cpu", 4.0, gemms):
            columns = {key: str(value) for key, value in operator.columns.items()}
            row = {"gpu": "Made-up CPU", "dtype": "fp32", "batch": "1", **columns}
            time_s = seconds(operator.table, columns, operator.flops, operator.traffic_bytes)
            row["time_us"] = f"{time_s * 1e6:.6g}"
            row["bytes_est"] = f"{operator.traffic_bytes:.0f}"
            tables[operator.table].append(row)
        for table, rows in tables.items():
            write_rows(folder, table, rows)
        meta = Meta(
            name=name, gpu="Made-up CPU", kind="cpu", dtype="fp32", element_bytes=4.0,
            memory_bytes=16e9, cache_bytes=32e6, units=1, clock="thread CPU time",
            anchor_s=2e-3, torch="2.13.0", date="2026-11-30", command="made by a test",
        )  # fmt: skip
        write_meta(folder, Meta(**{**_values(meta), **changes}))  # type: ignore[arg-type]
        return folder

    return make


def _values(meta: Meta) -> dict[str, object]:
    return {name: getattr(meta, name) for name in Meta.__dataclass_fields__}
