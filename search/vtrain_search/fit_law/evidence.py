"""Measures the shipped laws and terms against published runs: held-out and extrapolated error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .additive import AdditiveFit, Points, fit_additive
from .robust import FloatArray, fit, predict_ln
from .shipped_terms import (
    GEMSTONES_DELTA,
    STEP_LAW_DELTA,
    batch_data,
    batch_start,
    gemstones_rows,
    group_ids,
    shape_data,
)
from .tables import Table, column
from .term_fits import ShapeData, batch_exponents, shape_exponents, shape_starts

OLMO_VOCABULARY = 100_278
"""Rows of the OLMo 2 embedding (dolma2 tokenizer)."""
OLMO_DELTA = 5e-3


def rms_pct(ln_residual: FloatArray) -> float:
    """Return the root mean square of log residuals in %."""
    return 100.0 * float(np.sqrt(np.mean(ln_residual**2)))


def shape_residual(
    data: ShapeData,
    ln_loss: FloatArray,
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    starts: FloatArray | None = None,
) -> FloatArray:
    """Return ln(predicted/measured) of the test rows; shape constants fitted on the train rows."""
    theta = shape_theta(data, ln_loss, train, starts)
    means = {"mean_n": float(data.ln_n.mean()), "mean_d": float(data.ln_d.mean())}
    model = shape_exponents(_part(data, test), **means, with_rho=True)
    return predict_ln(model, theta) - ln_loss[test]


def shape_theta(
    data: ShapeData,
    ln_loss: FloatArray,
    rows: NDArray[np.bool_],
    starts: FloatArray | None = None,
) -> FloatArray:
    """Return ln E, a, b, alpha, beta, kappa, ln r0, rho fitted on chosen rows."""
    means = {"mean_n": float(data.ln_n.mean()), "mean_d": float(data.ln_d.mean())}
    model = shape_exponents(_part(data, rows), **means, with_rho=True)
    begin = shape_starts(ln_loss, with_rho=True) if starts is None else starts
    return fit(model, ln_loss[rows], begin, huber_delta=GEMSTONES_DELTA, tolerance=1e-8).theta


def gemstones_errors(table: Table) -> dict[str, float]:
    """Return errors in % of plain N-D and of the shape law on Gemstones, constant LR.

    Leave-one-model-out over the 22 shapes, and fitted below 0.8e9 non-embedding parameters to
    predict the rest.
    """
    rows = gemstones_rows(table)
    data, ln_loss = shape_data(table, rows)
    plain = Points(ln_n=data.ln_n, ln_d=data.ln_d, ln_loss=ln_loss)
    models = group_ids(column(table, "width")[rows], column(table, "depth")[rows])
    every = np.ones(ln_loss.size, dtype=np.bool_)
    theta = shape_theta(data, ln_loss, every)
    found: dict[str, list[FloatArray]] = {"plain": [], "shape": []}
    for model in range(models.max() + 1):
        test = models == model
        fitted = fit_additive(plain.take(~test), huber_delta=GEMSTONES_DELTA)
        found["plain"].append(fitted.predict_ln(plain.take(test)) - ln_loss[test])
        found["shape"].append(shape_residual(data, ln_loss, ~test, test, theta))
    small = data.ln_n < np.log(0.8e9)
    fitted = fit_additive(plain.take(small), huber_delta=GEMSTONES_DELTA)
    return {
        "plain_leave_one_out_pct": rms_pct(np.concatenate(found["plain"])),
        "shape_leave_one_out_pct": rms_pct(np.concatenate(found["shape"])),
        "plain_extrapolation_pct": rms_pct(fitted.predict_ln(plain.take(~small)) - ln_loss[~small]),
        "shape_extrapolation_pct": rms_pct(shape_residual(data, ln_loss, small, ~small)),
        "kappa": float(theta[5]),
        "r0": float(np.exp(theta[6])),
        "rho": float(theta[7]),
    }


def batch_errors(table: Table) -> dict[str, float]:
    """Return q and the error in % of the batch term inside the law on the Step Law profiles."""
    data, ln_loss = batch_data(table)
    start = batch_start(ln_loss)
    one = fit(batch_exponents(data), ln_loss, start, huber_delta=STEP_LAW_DELTA)
    both = batch_exponents(data, two_sided=True)
    two = fit(both, ln_loss, np.append(start, start[-1]), huber_delta=STEP_LAW_DELTA)
    return {
        "points": float(ln_loss.size),
        "q": float(one.theta[5]),
        "rms_pct": rms_pct(predict_ln(batch_exponents(data), one.theta) - ln_loss),
        "q_above": float(two.theta[5]),
        "q_below": float(two.theta[6]),
        "two_sided_rms_pct": rms_pct(predict_ln(both, two.theta) - ln_loss),
    }


def olmo_points(table: Table, loss: str, rows: NDArray[np.bool_]) -> Points:
    """Return OLMo runs as points, N with one embedding of the OLMo vocabulary."""
    parameters = column(table, "params_non_embedding") + OLMO_VOCABULARY * column(table, "width")
    return Points(
        ln_n=np.log(parameters[rows]),
        ln_d=np.log(column(table, "tokens")[rows]),
        ln_loss=np.log(column(table, loss)[rows]),
    )


def olmo_split(table: Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_], dict[str, int]]:
    """Return the ladder rows up to 1.3e9 parameters, those of 3e9, and the 7B and 13B rows.

    The ladder is 1x-10x Chinchilla, last checkpoints, without the repeats; the targets are the
    annealed 7B run (3.9e12 tokens) and the final 13B checkpoint (5.0e12).
    """
    run = np.asarray(table["run"], dtype=np.str_)
    last = np.asarray(table["is_last"], dtype=np.bool_)
    ladder = last & np.isin(table["size"], ["190M", "370M", "760M", "1B", "3B"])
    ladder &= (np.char.find(run, "rerun") < 0) & (np.char.find(run, "0.5xC") < 0)
    large = column(table, "params_non_embedding") > 2e9
    targets = {
        "7B": int(np.flatnonzero(last & (run == "peteish7_eval_anneal"))[0]),
        "13B": int(np.flatnonzero(last & (run == "peteish13_eval_final"))[0]),
    }
    return ladder & ~large, ladder & large, targets


def olmo_fit(table: Table, loss: str = "c4_en") -> tuple[AdditiveFit, Points]:
    """Return the fit to the ladder up to 1.3e9 parameters, and its points."""
    small, _, _ = olmo_split(table)
    points = olmo_points(table, loss, small)
    return fit_additive(points, huber_delta=OLMO_DELTA), points


def _part(data: ShapeData, rows: NDArray[np.bool_]) -> ShapeData:
    return ShapeData(ln_n=data.ln_n[rows], ln_d=data.ln_d[rows], ln_aspect=data.ln_aspect[rows])
