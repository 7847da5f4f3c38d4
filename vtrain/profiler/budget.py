"""How many products to measure: held-out error against the size of a profile.

Reads published operator tables, fits on a few of their rows and predicts others: the analytic
models, and the learned residual on top of the tile model, as a profile would hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.fit import gemm as forms
from vtrain.latency.fit.robust import Error, fit
from vtrain.latency.fit.tables import MEASURED, gemm_rows, read_table, seconds
from vtrain.presets import load_device
from vtrain.profiler.fit.columns import Products
from vtrain.profiler.residual import boost
from vtrain.profiler.shapes import halton

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEVICES = ("a100-sxm-80g", "h100-sxm-80g", "h200-sxm-141g", "b200-sxm-180g")
HELD_OUT = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRow:
    """Errors on held-out shapes after a number of profiled products.

    Attributes:
        device: shipped name.
        shapes: products fitted.
        saturating: error of the search's model (b).
        tiles: of the tile model (c).
        residual: of the learned residual on the tile model (e).
    """

    device: str
    shapes: int
    saturating: Error
    tiles: Error
    residual: Error | None


def profiling_budget(tables: Path, device_name: str, counts: tuple[int, ...]) -> list[BudgetRow]:
    """Return the held-out errors for growing numbers of profiled products.

    Two thousand rows are held out at random; the profile is chosen among the others.

    Args:
        tables: folder with gemm.csv.
        device_name: one of DEVICES.
        counts: numbers of products.

    Raises:
        UserInputError: no such table.
    """
    device = load_device(device_name)
    frame = gemm_rows(
        read_table(tables, "gemm.csv"), MEASURED[device_name], "bf16", aligned=False, published=True
    )
    m, n, k = (frame[name].to_numpy(dtype=np.float64) for name in ("m", "n", "k"))
    measured = seconds(frame)
    order = np.random.default_rng(0).permutation(m.size)
    test, pool = order[:HELD_OUT], order[HELD_OUT:]
    everything = np.arange(m.size)
    rows = Products(m=m, n=n, k=k, seconds=measured, layout=np.full(m.size, "TN", dtype=np.str_))
    out = []
    for count in counts:
        train = spread_rows(rows, pool, count)
        base, errors = None, []
        for form in (
            forms.saturating_form(device, "bf16", m, n, k),
            forms.tile_form(device, "bf16", m, n, k),
        ):
            base = form.predict(fit(form, measured, train), everything)
            errors.append(Error.of(base[test], measured[test]))
        assert base is not None
        residual = None
        if count >= RESIDUAL_LEAST:
            trees = boost(rows.at(train), np.log(measured / base)[train], float(device.sm_count))
            corrected = base[test] * np.exp(trees.log_ratio(rows.at(test)))
            residual = Error.of(corrected, measured[test])
        out.append(
            BudgetRow(
                device=device_name, shapes=count, saturating=errors[0], tiles=errors[1],
                residual=residual,
            )
        )  # fmt: skip
    return out


RESIDUAL_LEAST = 60
"""Fewer products feed no trees."""


def spread_rows(rows: Products, pool: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Choose rows that fill the space of sizes evenly, as a profile's own design does.

    Each point of a Halton sequence over the logarithms takes the nearest row that is left; large
    numbers are drawn at random, which fills the space as well.
    """
    if count > pool.size // 4:
        return np.sort(np.random.default_rng(1).choice(pool, min(count, pool.size), replace=False))
    logs = np.log(np.stack([rows.m, rows.n, rows.k], axis=1))[pool]
    low, high = logs.min(axis=0), logs.max(axis=0)
    unit = (logs - low) / (high - low)
    taken = np.zeros(pool.size, dtype=bool)
    for point in halton(count, 3):
        distance = np.sum((unit - point) ** 2, axis=1)
        taken[int(np.argmin(np.where(taken, np.inf, distance)))] = True
    return np.sort(pool[taken])


def budget_lines(rows: list[BudgetRow]) -> list[str]:
    """Return the errors as a table, MAPE (median APE) in %."""
    head = f"{'device':16} {'shapes':>6} {'saturating':>12} {'tiles':>12} {'with residual':>14}"
    return [
        head,
        *(
            f"{row.device:16} {row.shapes:6d} {_cell(row.saturating):>12} {_cell(row.tiles):>12} "
            f"{_cell(row.residual):>14}"
            for row in rows
        ),
    ]


def _cell(error: Error | None) -> str:
    return "-" if error is None else f"{error.mape_pct:.1f} ({error.median_ape_pct:.1f})"
