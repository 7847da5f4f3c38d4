"""Plays the workload grid of `grid.toml` and writes `grid.csv` and `README.md` beside it.

    python results/tenancy/run_grid.py [--workers N]

Every cell is played on the same workloads under every arm, so arms are compared seed by seed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vtrain import __version__
from vtrain.files import write_text
from vtrain.formats import load_architecture
from vtrain.presets import load_cluster, load_stack
from vtrain.prices import default_price
from vtrain.site import SHIPPED
from vtrain.tenancy.generate import WorkloadSpec
from vtrain.tenancy.outcome import summarise, to_csv
from vtrain.tenancy.speed_book import SpeedBook
from vtrain.tenancy.state import DONE
from vtrain.tenancy.sweep import student_t
from vtrain.tenancy.upkeep import Upkeep
from vtrain.tenancy.workload import generated, play

HERE = Path(__file__).parent
FIGURES = (
    "deadline_ratio", "completion_mean_s", "completion_p95_s", "makespan_s", "utilisation",
    "cost_usd", "rejected", "moves",
)  # fmt: skip
PAPER = {"deadline_ratio": (1.09, 1.23), "completion": 1.0 - 0.1521, "makespan": 1.0 - 0.2303}
"""vTrain (arXiv 2312.12391), scheduling case study: against ElasticFlow, 64 and 128 jobs."""


class Cell(NamedTuple):
    """One point of the grid under one condition."""

    condition: str
    mix: str
    jobs: int
    load: float
    tightness: float


def open_book(grid: dict[str, Any], condition: str) -> SpeedBook:
    """Return the speeds under a condition."""
    given = grid["conditions"][condition]
    return SpeedBook(
        load_cluster(grid["cluster"]), load_stack(given["stack"]), SHIPPED, gpus=grid["gpus"],
        read_model=load_architecture, recompute=tuple(given["recompute"]),
    )  # fmt: skip


def play_cell(grid: dict[str, Any], cell: Cell, book: SpeedBook) -> dict[str, np.ndarray]:
    """Return, for every figure, an array [arms, seeds].

    `paired_s` is the mean completion over the jobs that this arm and the first both completed,
    `reference_s` the first arm's over the same jobs.
    """
    spec = WorkloadSpec(
        jobs=cell.jobs, load=cell.load, tightness=cell.tightness,
        models=tuple(grid["mixes"][cell.mix]), share=grid["share"], stretch=grid["stretch"],
        hours_low=grid["hours"][0], hours_high=grid["hours"][1],
    )  # fmt: skip
    upkeep = Upkeep(failures=grid["failures"])
    price = default_price(grid["cluster"]).usd_per_gpu_hour
    names = (*FIGURES, "paired_s", "reference_s")
    found = {name: np.full((len(grid["arms"]), grid["seeds"]), np.nan) for name in names}
    for at in range(grid["seeds"]):
        seed = grid["first_seed"] + at
        reference = None
        for i, arm in enumerate(grid["arms"]):
            workload = generated(spec, book, upkeep, speed=arm["speed"], seed=seed)
            outcome = play(
                workload, book, upkeep, policy=arm["policy"], seed=seed, record=False
            )  # fmt: skip
            reference = reference or outcome
            figures = summarise(
                outcome, gpus_per_node=book.gpus_per_node, price_usd_per_gpu_hour=price
            )  # fmt: skip
            for name in FIGURES:
                found[name][i, at] = np.nan if figures[name] is None else figures[name]
            both = [
                (a.finished - a.job.arrival_s, b.finished - b.job.arrival_s)
                for a, b in zip(reference.states, outcome.states, strict=True)
                if a.status == b.status == DONE
            ]
            means = np.mean(both, axis=0) if both else (np.nan, np.nan)
            found["reference_s"][i, at], found["paired_s"][i, at] = means
    return found


def ratio(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float]:
    """Return the ratio of two paired means and the half-width of its 95 % interval.

    The interval follows from the residuals top - ratio x bottom (delta method, Student's t).
    """
    known = ~(np.isnan(top) | np.isnan(bottom))
    top, bottom = top[known], bottom[known]
    if not len(top):
        return np.nan, np.nan
    value = top.mean() / bottom.mean()
    rest = top - value * bottom
    error = rest.std(ddof=1) / (np.sqrt(len(rest)) * bottom.mean())
    return float(value), student_t(len(rest) - 1) * float(error)


def rows_of(grid: dict[str, Any], results: dict[Cell, dict[str, np.ndarray]]) -> list[dict]:
    """Return one row for every cell and arm: means, and ratios to the first arm."""
    rows = []
    for cell, found in results.items():
        for i, arm in enumerate(grid["arms"]):
            row: dict[str, Any] = {**cell._asdict(), "arm": arm["name"]}
            for name in FIGURES:
                values = found[name][i]
                row[name] = None if np.isnan(values).any() else round(float(values.mean()), 6)
            if i:
                for label, top, bottom in pairs(found, i):
                    value, half = ratio(top, bottom)
                    row[f"{label}_ratio"] = None if np.isnan(value) else round(value, 5)
                    row[f"{label}_ratio_half_width_95"] = (
                        None if np.isnan(value) else round(half, 5)
                    )  # fmt: skip
            else:
                for label, _, _ in pairs(found, i):
                    row[f"{label}_ratio"] = row[f"{label}_ratio_half_width_95"] = None
            rows.append(row)
    return rows


def pairs(found: dict[str, np.ndarray], i: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return what is compared with the first arm: label, values of the arm, of the first."""
    same = [
        (label, found[name][i], found[name][0])
        for label, name in (
            ("deadline", "deadline_ratio"), ("p95", "completion_p95_s"), ("makespan", "makespan_s"),
            ("utilisation", "utilisation"), ("cost", "cost_usd"),
        )
    ]  # fmt: skip
    return [*same, ("completion", found["paired_s"][i], found["reference_s"][i])]


def run(grid: dict[str, Any], cells: list[Cell], workers: int) -> dict[Cell, dict]:
    """Play every cell, on one process or on Ray."""
    books = {name: open_book(grid, name) for name in grid["conditions"]}
    if workers <= 1:
        return {cell: play_cell(grid, cell, books[cell.condition]) for cell in cells}
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init(
        address="local", num_cpus=workers, num_gpus=0, include_dashboard=False,
        object_store_memory=100 * 2**20, log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    try:
        task = ray.remote(num_cpus=1)(play_cell)
        sent = {name: ray.put(book) for name, book in books.items()}
        return dict(
            zip(
                cells,
                ray.get([task.remote(grid, cell, sent[cell.condition]) for cell in cells]),
                strict=True,
            )
        )
    finally:
        ray.shutdown()


def main() -> None:
    """Play the grid and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="fewer seeds, for a first look")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    grid = tomllib.loads((HERE / "grid.toml").read_text(encoding="utf-8"))
    if given.seeds:
        grid["seeds"] = given.seeds
    cells = [
        Cell(*values)
        for values in itertools.product(
            grid["conditions"], grid["mixes"], grid["jobs"], grid["load"], grid["tightness"]
        )
    ]  # fmt: skip
    results = run(grid, cells, given.workers)
    write_text(given.out / "grid.csv", to_csv(rows_of(grid, results)))
    from report_grid import report

    write_text(given.out / "README.md", report(grid, results, version=__version__))


if __name__ == "__main__":
    main()
