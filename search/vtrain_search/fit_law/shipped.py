"""Makes the parameter draws that ship with the laws: `python -m vtrain_search.fit_law.shipped`.

Most files hold deviations of bootstrap refits from the refit of the unresampled data, so that a
published point estimate can be their centre. Resampled are the units that are independent of each
other: points of a figure, whole models, (N, D) cells, shapes. Never single checkpoints of one run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vtrain_search.laws.quantiles import normal_sample

from .additive import Points, bootstrap_additive, fit_additive
from .robust import FloatArray
from .shipped_terms import (
    batch_deviations,
    gemstones_draws,
    head_strengths,
    repetition_scores,
    shape_deviations,
)
from .tables import CHINCHILLA_DROPPED, chinchilla_points, read_table

REPLICATES = 1000
SEED = 5


def chinchilla_deviations(
    table: Mapping[str, NDArray[np.generic]], *, replicates: int, seed: int
) -> dict[str, FloatArray]:
    """Return deviations of ln E, ln A, ln B, alpha, beta over resampled points [replicates]."""
    points: Points = chinchilla_points(table, dropped=CHINCHILLA_DROPPED)
    fitted = fit_additive(points)
    draws = bootstrap_additive(points, replicates=replicates, seed=seed, fitted=fitted)
    centre = {
        "ln_E": fitted.ln_e,
        "ln_A": fitted.ln_a,
        "ln_B": fitted.ln_b,
        "alpha": fitted.alpha,
        "beta": fitted.beta,
    }
    return {name: draws[name] - value for name, value in centre.items()}


def write_columns(path: Path, columns: Mapping[str, FloatArray], provenance: str) -> None:
    """Write a draws file: a provenance comment, a header, one row a draw."""
    names = list(columns)
    rows = np.column_stack([columns[name] for name in names])
    lines = [f"# {provenance}", ",".join(names)]
    lines += [",".join(f"{value:.7g}" for value in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_all(data: Path, out: Path, *, replicates: int = REPLICATES, seed: int = SEED) -> None:
    """Refit every source under `data` and write all draws files to `out`."""

    def made(offset: int) -> str:
        return (
            f"{replicates} bootstrap refits, seed {seed + offset}, "
            "deviations from the refit of all units"
        )

    chinchilla = read_table(data / "chinchilla_svg.csv")
    write_columns(
        out / "chinchilla_draws.csv",
        chinchilla_deviations(chinchilla, replicates=replicates, seed=seed),
        "240 points of Hoffmann et al. 2022, figure 4 (digitised, epoch-research/"
        "analyzing-chinchilla; the 5 lowest tokens/parameter left out), points resampled; "
        + made(0),
    )
    gemstones = read_table(data / "gemstones.csv")
    shape = shape_deviations(gemstones, replicates=replicates, seed=seed + 1)
    write_columns(
        out / "shape_draws.csv",
        {**shape, "z_far": normal_sample(replicates, stream=7)},
        "Gemstones (arXiv 2502.06857), constant learning rate, >= 20B tokens, whole models "
        f"resampled; z_kappa is the normal score of kappa; {made(1)}",
    )
    write_columns(
        out / "gemstones_draws.csv",
        gemstones_draws(gemstones, replicates=replicates, seed=seed + 2),
        "Gemstones (arXiv 2502.06857), four-term form, constant learning rate, >= 20B tokens, "
        f"whole models resampled; {replicates} bootstrap refits as they are, seed {seed + 2}",
    )
    write_columns(
        out / "batch_draws.csv",
        batch_deviations(
            read_table(data / "steplaw_batch_profiles.csv"), replicates=replicates, seed=seed + 3
        ),
        "Step Law sweeps (arXiv 2503.04715), best learning rate of each batch, (N, D) cells "
        f"resampled, q and ln B* refitted inside the law; {made(3)}",
    )
    write_columns(
        out / "head_draws.csv",
        head_strengths(
            read_table(data / "gadre_grid_width_depth_heads.csv"),
            replicates=replicates,
            seed=seed + 4,
        ),
        "Width/depth/heads grid of arXiv 2403.08540, width >= 512, shapes resampled; strength of "
        f"the head penalties relative to all shapes; {replicates} bootstraps, seed {seed + 4}",
    )
    write_columns(
        out / "repetition_draws.csv",
        repetition_scores(
            read_table(data / "datablations_repeats.csv"), replicates=replicates, seed=seed + 5
        ),
        "Repeated-data runs of arXiv 2305.16264, N >= 2e9, D/N >= 5, up to 16 epochs, (N, D) "
        "cells resampled; normal scores of R_D* and R_N* (joint ranks only); "
        f"{replicates} bootstrap refits, seed {seed + 5}",
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m vtrain_search.fit_law.shipped DATA_FOLDER OUT_FOLDER")
    make_all(Path(sys.argv[1]), Path(sys.argv[2]))
