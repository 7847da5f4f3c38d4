"""How many products a profile needs: held-out errors of the fit; the table of `fit-budget.md`.

VTRAIN_DATA=FOLDER python results/profiles/fit_budget.py > table.md

FOLDER holds `profiles/gemm.csv`, the published operator tables. Every number comes out of the code
that fits a profile: `vtrain.profiler.fit.products.fit_constants` and `vtrain.profiler.residual`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.fit.tables import MEASURED, gemm_rows, read_table, seconds
from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.gemm_tiles import tile_gemm_seconds
from vtrain.presets import load_device
from vtrain.profiler.budget import HELD_OUT, spread_rows
from vtrain.profiler.fit.columns import Products
from vtrain.profiler.fit.products import fit_constants
from vtrain.profiler.fit.scale import Scale
from vtrain.profiler.residual import LEAST_SHAPES, boost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.hardware import Device

DEVICES = {"a100-sxm-80g": "A100", "h100-sxm-80g": "H100", "h200-sxm-141g": "H200",
           "b200-sxm-180g": "B200"}  # fmt: skip
PUBLISHED = {
    ("A100", 30): (9.9, 7.2, 7.6), ("A100", 120): (8.8, 7.1, 5.7),
    ("A100", 1000): (8.4, 6.8, 3.9), ("A100", 4000): (8.7, 6.9, 3.3),
    ("H100", 30): (6.5, 6.3, 7.0), ("H100", 120): (6.7, 6.1, 5.5),
    ("H100", 1000): (6.3, 6.0, 4.5), ("H100", 4000): (6.3, 6.0, 3.5),
}  # fmt: skip
"""MAPE % of models b, c, e by profiled products: the published "profiling budget" table."""
CROSS_VALIDATED = {
    "A100": (8.8, 7.1, 3.2), "H100": (6.3, 6.0, 3.3), "H200": (6.0, 5.6, 3.2),
    "B200": (7.8, 7.1, 4.0),
}  # fmt: skip
"""MAPE % of rows b, c, e of the published cross-validation on 9,000 products."""
COUNTS = (30, 120, 1000, 4000)
MODELS = ("b", "c", "e")
WITHIN = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Held-out MAPE % of one device, count and way of choosing, by seed, [seeds, models]."""

    gpu: str
    count: int
    choice: str
    mape_pct: NDArray[np.float64]

    def said(self, model: str) -> str:
        """Mean over the seeds, and the range."""
        values = self.mape_pct[:, MODELS.index(model)]
        if not np.isfinite(values).all():
            return "-"
        return f"{values.mean():.1f} ({values.min():.1f} to {values.max():.1f})"

    def target(self, model: str) -> float:
        """The published figure: of this budget, else cross-validated."""
        place = MODELS.index(model)
        return PUBLISHED.get((self.gpu, self.count), CROSS_VALIDATED[self.gpu])[place]

    def reaches(self, model: str) -> bool:
        """Whether the mean lies within a point of the published figure."""
        return float(self.mape_pct[:, MODELS.index(model)].mean()) <= self.target(model) + WITHIN


def products_of(tables: Path, name: str) -> Products:
    """Return the 9,000 rows behind the published comparison, forward bf16."""
    frame = gemm_rows(
        read_table(tables, "gemm.csv"), MEASURED[name], "bf16", aligned=False, published=True
    )
    m, n, k = (frame[column].to_numpy(dtype=np.float64) for column in "mnk")
    layout = np.full(m.size, "TN", dtype=np.str_)
    return Products(m=m, n=n, k=k, seconds=seconds(frame), layout=layout)


def errors(device: Device, train: Products, test: Products) -> tuple[float, float, float]:
    """Return the MAPE % of models b, c, e on `test`, fitted on `train` as a profile is."""
    scale = Scale(
        device=device, precision="bf16", planned=1.0, peak_source="datasheet",
        bandwidth_source="datasheet",
    )  # fmt: skip
    constants = fit_constants(scale, train, "import")
    peak, hbm, units = device.peak_flops["bf16"], device.hbm_bytes_per_s, float(device.sm_count)
    tile = constants.tile
    assert tile is not None

    def base(rows: Products) -> NDArray[np.float64]:
        return tile_gemm_seconds(tile, peak, hbm, units, rows.m, rows.n, rows.k)

    predicted = [gemm_seconds(constants, peak, hbm, test.m, test.n, test.k), base(test)]
    if len(train) >= LEAST_SHAPES:
        trees = boost(train, np.log(train.seconds / base(train)), units)
        predicted.append(predicted[1] * np.exp(trees.log_ratio(test)))
    off = [float(100.0 * np.mean(np.abs(p / test.seconds - 1.0))) for p in predicted]
    return off[0], off[1], off[2] if len(off) > 2 else float("nan")


def measure(tables: Path, name: str, count: int, choice: str, seeds: int) -> Cell:
    """Fit `count` products and judge 2,000 others, once a seed."""
    rows, device = products_of(tables, name), load_device(name)
    found = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(rows))
        test, pool = order[:HELD_OUT], order[HELD_OUT:]
        train = np.sort(pool[:count]) if choice == "random" else spread_rows(rows, pool, count)
        found.append(errors(device, rows.at(train), rows.at(test)))
    return Cell(gpu=DEVICES[name], count=count, choice=choice, mape_pct=np.array(found))


def table(cells: list[Cell]) -> list[str]:
    """Return the cells as Markdown."""
    lines = [
        "| GPU | products | chosen | b | c | e | published b / c / e | within 1 point |",
        "|---|---:|---|---:|---:|---:|---:|---|",
    ]
    for cell in cells:
        own = (cell.gpu, cell.count) in PUBLISHED
        published = " / ".join(f"{cell.target(model):.1f}" for model in MODELS)
        asked = {30: "c", 4000: "e"}.get(cell.count)
        verdict = "" if asked is None else f"{asked}: {'yes' if cell.reaches(asked) else '**no**'}"
        lines.append(
            f"| {cell.gpu} | {cell.count:,} | {cell.choice} | "
            + " | ".join(cell.said(model) for model in MODELS)
            + f" | {published}{'' if own else ' (cross-validated)'} | {verdict} |"
        )
    return lines


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder of gemm.csv; $VTRAIN_DATA/profiles")
    parser.add_argument("--device", action="append", choices=DEVICES, help="repeatable; all four")
    parser.add_argument("--count", action="append", type=int, help="repeatable; 30 to 4,000")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.tables is None and "VTRAIN_DATA" not in os.environ:
        sys.exit("error: where are the tables? set VTRAIN_DATA or give --tables FOLDER")
    tables = options.tables or Path(os.environ["VTRAIN_DATA"]) / "profiles"
    cells = []
    for name in options.device or DEVICES:
        for count in options.count or COUNTS:
            for choice in ("random", "spread") if count <= 120 else ("random",):
                start = time.monotonic()
                cells.append(measure(tables, name, count, choice, options.seeds))
                took = time.monotonic() - start
                sys.stderr.write(f"{cells[-1].gpu} {count} {choice}: {took:.0f} s\n")
    sys.stdout.write("\n".join(table(cells)) + "\n")


if __name__ == "__main__":
    main()
