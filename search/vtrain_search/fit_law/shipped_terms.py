"""Bootstrap refits of the terms: shape, four-term Gemstones form, batch, heads, repetition."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vtrain_search.laws import load_law
from vtrain_search.laws.terms import HeadTerm, RepetitionTerm
from vtrain_search.laws.terms.batch import CRITICAL_BATCH_EXPONENT, CRITICAL_BATCH_PREFACTOR
from vtrain_search.laws.terms.repetition import R_D_STAR, R_N_STAR

from .robust import FloatArray, fit
from .tables import Table, column
from .term_fits import (
    BatchData,
    ShapeData,
    batch_exponents,
    power_exponents,
    shape_exponents,
    shape_starts,
)

GEMSTONES_DELTA = 2e-3
"""Huber delta for Gemstones: checkpoints of one run scatter less than models among each other."""
STEP_LAW_DELTA = 5e-3
MIN_TOKENS = 20e9
"""Checkpoints before this are still in the transient of warm-up."""
NATS_PER_LN_N = 0.22
"""-dL/dlnN of the head grid's law at 2e8 parameters, which turns relative loss into size."""


def resample_groups(groups: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return row indices of a bootstrap over whole groups (labelled 0..g-1)."""
    drawn = rng.integers(0, groups.max() + 1, groups.max() + 1)
    return np.concatenate([np.flatnonzero(groups == g) for g in drawn])


def normal_scores(values: FloatArray) -> FloatArray:
    """Return standard normal quantiles in the order of the values (ties keep their order)."""
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((k + 0.5) / values.size) for k in range(values.size)])
    return np.asarray(quantiles[np.argsort(np.argsort(values, kind="stable"), kind="stable")])


def gemstones_rows(table: Table, schedule: str = "constant_lr") -> NDArray[np.bool_]:
    """Return which checkpoints enter a fit."""
    return np.asarray(
        (table["schedule"] == schedule) & (column(table, "tokens") >= MIN_TOKENS), dtype=np.bool_
    )


def group_ids(*keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a label 0..g-1 for every distinct row of the keys."""
    _, labels = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    return np.asarray(labels, dtype=np.int64).reshape(-1)


def shape_data(table: Table, rows: NDArray[np.bool_]) -> tuple[ShapeData, FloatArray]:
    """Return the shape fit's inputs and ln loss for chosen checkpoints."""
    data = ShapeData(
        ln_n=np.log(column(table, "params_non_embedding")[rows]),
        ln_d=np.log(column(table, "tokens")[rows]),
        ln_aspect=np.log(column(table, "width")[rows] / column(table, "depth")[rows]),
    )
    return data, np.log(column(table, "loss")[rows])


def shape_deviations(table: Table, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """Return z_kappa and deviations of ln r0 and rho over resampled models."""
    rows = gemstones_rows(table)
    data, ln_loss = shape_data(table, rows)
    mean_n, mean_d = float(data.ln_n.mean()), float(data.ln_d.mean())
    groups = group_ids(column(table, "width")[rows], column(table, "depth")[rows])

    def fitted(keep: NDArray[np.int64], starts: FloatArray, tolerance: float) -> FloatArray:
        part = ShapeData(ln_n=data.ln_n[keep], ln_d=data.ln_d[keep], ln_aspect=data.ln_aspect[keep])
        model = shape_exponents(part, mean_n=mean_n, mean_d=mean_d, with_rho=True)
        return fit(
            model, ln_loss[keep], starts, huber_delta=GEMSTONES_DELTA, tolerance=tolerance
        ).theta

    every = np.arange(ln_loss.size)
    point = fitted(every, shape_starts(ln_loss, with_rho=True), 1e-10)
    rng = np.random.default_rng(seed)
    draws = np.array([fitted(resample_groups(groups, rng), point, 1e-7) for _ in range(replicates)])
    return {
        "z_kappa": normal_scores(draws[:, 5]),
        "ln_r0": draws[:, 6] - point[6],
        "rho": draws[:, 7] - point[7],
    }


def gemstones_draws(table: Table, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """Return the nine coefficients of the four-term form refitted on resampled models.

    Refits start at the published coefficients, which fit these data as well as any (E and the
    powers of width and depth trade off along a curved ridge), and are kept as they are: moving
    them to another centre would leave the ridge.
    """
    rows = gemstones_rows(table)
    names = ("width", "depth", "params", "tokens")
    logs = np.stack([np.log(column(table, name)[rows]) for name in names])
    centre = logs.mean(axis=1)
    ln_loss = np.log(column(table, "loss")[rows])
    groups = group_ids(column(table, "width")[rows], column(table, "depth")[rows])
    published = load_law("gemstones2025").facts.coefficients
    powers = np.array([published[f"a_{name}"] for name in "WLND"])
    scales = np.array([published[f"c_{name}"] for name in "WLND"])
    start = np.concatenate([[published["ln_E"]], scales - powers * centre, powers])
    centred = logs - centre[:, None]
    rng = np.random.default_rng(seed)
    draws = np.empty((replicates, start.size))
    for k in range(replicates):
        keep = resample_groups(groups, rng)
        draws[k] = fit(
            power_exponents(centred[:, keep]),
            ln_loss[keep],
            start,
            huber_delta=GEMSTONES_DELTA,
            tolerance=1e-7,
        ).theta
    # Back from centred logarithms: c = scale + exponent * mean.
    found = {"ln_E": draws[:, 0]}
    for j, name in enumerate("WLND"):
        found[f"c_{name}"] = draws[:, 1 + j] + draws[:, 5 + j] * centre[j]
        found[f"a_{name}"] = draws[:, 5 + j]
    return found


def batch_data(table: Table) -> tuple[BatchData, FloatArray]:
    """Return the batch fit's inputs and ln loss."""
    ln_d = np.log(column(table, "tokens"))
    ln_critical = np.log(CRITICAL_BATCH_PREFACTOR) + CRITICAL_BATCH_EXPONENT * ln_d
    data = BatchData(
        ln_n=np.log(column(table, "params_non_embedding")),
        ln_d=ln_d,
        ln_ratio=np.log(column(table, "B")) - ln_critical,
    )
    return data, np.log(column(table, "loss"))


def batch_start(ln_loss: FloatArray) -> FloatArray:
    """Return where the batch fit starts: theta = ln E, a, b, alpha, beta, q."""
    mean = float(ln_loss.mean())
    return np.array([mean - 0.4, mean - 1.5, mean - 1.5, 0.35, 0.35, 0.15])


def batch_deviations(table: Table, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """Return ln(q/q0) and the shift of ln B* over resampled (N, D) cells.

    The shift is the mean of ln(cell optimum / law) over the resampled cells, less that of all.
    """
    data, ln_loss = batch_data(table)
    cells = group_ids(data.ln_n, data.ln_d)
    ln_optimum = np.log(column(table, "B_star")) - (np.log(column(table, "B")) - data.ln_ratio)

    def fitted(keep: NDArray[np.int64], start: FloatArray) -> FloatArray:
        part = BatchData(ln_n=data.ln_n[keep], ln_d=data.ln_d[keep], ln_ratio=data.ln_ratio[keep])
        return fit(
            batch_exponents(part), ln_loss[keep], start, huber_delta=STEP_LAW_DELTA, tolerance=1e-8
        ).theta

    first_rows = np.array([np.flatnonzero(cells == c)[0] for c in range(cells.max() + 1)])
    cell_shift = ln_optimum[first_rows]
    point = fitted(np.arange(ln_loss.size), batch_start(ln_loss))
    rng = np.random.default_rng(seed)
    draws = np.empty((replicates, 2))
    for k in range(replicates):
        drawn = rng.integers(0, cell_shift.size, cell_shift.size)
        keep = np.concatenate([np.flatnonzero(cells == c) for c in drawn])
        draws[k] = fitted(keep, point)[5], cell_shift[drawn].mean()
    return {
        "ln_q": np.log(draws[:, 0] / point[5]),
        "ln_shift": draws[:, 1] - cell_shift.mean(),
    }


def head_excess(table: Table) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Return head size, ln(loss / best head count) and shape label of the grid, width >= 512."""
    width, depth = column(table, "width"), column(table, "depth")
    head, loss = column(table, "head_dim"), column(table, "loss")
    wide = width >= 512
    runs = group_ids(width[wide], depth[wide], head[wide])
    best = np.array([loss[wide][runs == r].min() for r in range(runs.max() + 1)])
    first = np.array([np.flatnonzero(runs == r)[0] for r in range(runs.max() + 1)])
    shapes = group_ids(width[wide][first], depth[wide][first])
    floor = np.array([best[shapes == s].min() for s in range(shapes.max() + 1)])
    return head[wide][first], np.log(best / floor[shapes]), shapes


def head_strengths(table: Table, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """Return the head penalty's strength relative to all shapes (mean near 1)."""
    head, excess, shapes = head_excess(table)
    term = HeadTerm()
    shape_of_penalty = -term.ln_factor(term.point(), head)

    def strength(keep: NDArray[np.int64]) -> float:
        x = shape_of_penalty[keep]
        return float((x * excess[keep]).sum() / (x * x).sum())

    rng = np.random.default_rng(seed)
    every = strength(np.arange(head.size))
    drawn = [strength(resample_groups(shapes, rng)) / every for _ in range(replicates)]
    return {"scale": np.array(drawn)}


def repetition_penalties(
    table: Table, *, min_parameters: float, min_ratio: float, max_epochs: float
) -> dict[str, FloatArray]:
    """Return N, D, U, epochs and ln(loss / loss at one epoch) of runs with a one-epoch partner.

    Repeats of a run with other seeds are averaged; the best one-epoch run is the partner.
    """
    n, d, u = (column(table, name) for name in ("params", "tokens", "unique_tokens"))
    loss = column(table, "loss")
    runs = group_ids(n, d, u)
    first = np.array([np.flatnonzero(runs == r)[0] for r in range(runs.max() + 1)])
    mean = np.array([loss[runs == r].mean() for r in range(runs.max() + 1)])
    n, d, u = n[first], d[first], u[first]
    epochs = d / u
    cells = group_ids(n, d)
    once = np.full(cells.max() + 1, np.nan)
    for cell in range(once.size):
        fresh = mean[(cells == cell) & (epochs <= 1.01)]
        if fresh.size:
            once[cell] = fresh.min()
    penalty = np.log(mean / once[cells])
    keep = np.isfinite(penalty) & (epochs > 1.5) & (epochs <= max_epochs)
    keep &= (n >= min_parameters) & (d / n >= min_ratio)
    return {
        "parameters": n[keep],
        "tokens": d[keep],
        "unique": u[keep],
        "epochs": epochs[keep],
        "penalty": penalty[keep],
    }


def repetition_scores(table: Table, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """Return normal scores of R_D* and R_N*, fitted to penalties under the default law.

    Along the ridge where the two trade off a cell more or less moves either by a factor of ten;
    the scores keep how they move together, the shipped term sets how far.
    """
    from scipy.optimize import least_squares

    runs = repetition_penalties(table, min_parameters=2e9, min_ratio=5.0, max_epochs=16.0)
    ln_n, ln_d = np.log(runs["parameters"]), np.log(runs["tokens"])
    law = load_law().coefficients()
    cells = group_ids(ln_n, ln_d)

    def ln_loss(ln_size: FloatArray, ln_tokens: FloatArray) -> FloatArray:
        size = np.exp(law["ln_A"] - law["alpha"] * ln_size)
        data = np.exp(law["ln_B"] - law["beta"] * ln_tokens)
        return np.asarray(np.log(np.exp(law["ln_E"]) + size + data))

    def residual(theta: FloatArray, keep: NDArray[np.int64]) -> FloatArray:
        n, d = ln_n[keep], ln_d[keep]
        term = RepetitionTerm(unique_tokens=runs["unique"][keep])
        c = {"r_d": float(np.exp(theta[0])), "r_n": float(np.exp(theta[1]))}
        repeated = ln_loss(n + term.ln_parameter_factor(c, n, d), d + term.ln_token_factor(c, d))
        return repeated - ln_loss(n, d) - runs["penalty"][keep]

    def fitted(keep: NDArray[np.int64], start: FloatArray) -> FloatArray:
        # The data say little where saturation is slow: R within 1.2-150 covers all refits.
        bounds = (np.log([1.2, 1.2]), np.log([150.0, 150.0]))
        solution = least_squares(
            residual, start, args=(keep,), loss="huber", f_scale=2e-3, bounds=bounds
        )
        return np.asarray(solution.x, dtype=np.float64)

    point = fitted(np.arange(ln_n.size), np.log([R_D_STAR, R_N_STAR]))
    rng = np.random.default_rng(seed)
    draws = np.array([fitted(resample_groups(cells, rng), point) for _ in range(replicates)])
    return {"z_r_d": normal_scores(draws[:, 0]), "z_r_n": normal_scores(draws[:, 1])}
