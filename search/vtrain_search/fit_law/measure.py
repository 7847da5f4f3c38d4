"""Prints the measured figures of results/laws: `python -m vtrain_search.fit_law.measure DATA`."""

from __future__ import annotations

import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np

from vtrain_search.laws import (
    Designs,
    LossModel,
    Terms,
    critical_batch_tokens,
    law_names,
    load_law,
    regret,
)

from .additive import AdditiveFit, Points, bootstrap_additive, fit_additive
from .evidence import (
    OLMO_DELTA,
    batch_errors,
    gemstones_errors,
    olmo_fit,
    olmo_points,
    olmo_split,
)
from .robust import FloatArray
from .shipped_terms import repetition_penalties
from .tables import Table, chinchilla_points, read_table

SEED = 0


def chinchilla(table: Table) -> list[str]:
    """Return the refit with and without the five lowest tokens/parameter."""
    lines = [
        "| rows | E | A | B | alpha | beta | rms | tokens/parameter at 5.8e23 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    intervals = []
    for dropped in (5, 0):
        points = chinchilla_points(table, dropped=dropped)
        fitted = fit_additive(points)
        c = fitted.coefficients()
        lines.append(
            f"| {len(points)} | {c['E']:.4f} | {c['A']:.1f} | {c['B']:.0f} | {c['alpha']:.4f} "
            f"| {c['beta']:.4f} | {100 * fitted.rms(points):.2f} % "
            f"| {optimal_ratio(fitted, 5.8e23):.1f} |"
        )
        if dropped:
            draws = bootstrap_additive(points, replicates=1000, seed=SEED, fitted=fitted)
            for name, values in (
                ("E", np.exp(draws["ln_E"])),
                ("A", np.exp(draws["ln_A"])),
                ("B", np.exp(draws["ln_B"])),
                ("alpha", draws["alpha"]),
                ("beta", draws["beta"]),
                ("a", draws["beta"] / (draws["alpha"] + draws["beta"])),
            ):
                low, high = np.quantile(values, [0.025, 0.975])
                intervals.append(f"{name} {low:.4g}-{high:.4g}")
    return [*lines, "", f"95 % over 1,000 bootstraps, 240 rows: {', '.join(intervals)}."]


def optimal_ratio(fitted: AdditiveFit, compute_flop: float) -> float:
    """Return compute-optimal tokens a parameter at C = 6ND."""
    ln_g = np.log(fitted.alpha / fitted.beta) + fitted.ln_a - fitted.ln_b
    total = fitted.alpha + fitted.beta
    ln_n = ln_g / total + fitted.beta / total * np.log(compute_flop / 6.0)
    return float(np.exp(np.log(compute_flop / 6.0) - 2.0 * ln_n))


def olmo(table: Table) -> list[str]:
    """Return the extrapolation of the OLMo ladder."""
    lines = []
    for loss in ("c4_en", "pile"):
        fitted, points = olmo_fit(table, loss)
        _, three, targets = olmo_split(table)
        draws = bootstrap_additive(
            points, replicates=500, seed=SEED, fitted=fitted, huber_delta=OLMO_DELTA
        )
        parts = [f"3B rms {100 * fitted.rms(olmo_points(table, loss, three)):.2f} %"]
        for name, row in targets.items():
            target = olmo_points(table, loss, np.arange(three.size) == row)
            error = 100 * float((fitted.predict_ln(target) - target.ln_loss)[0])
            low, high = np.quantile(_losses(draws, target), [0.05, 0.95])
            measured = float(np.exp(target.ln_loss[0]))
            parts.append(
                f"{name} {error:+.2f} % (90 % {low:.3f}-{high:.3f}, measured {measured:.3f})"
            )
        lines.append(f"- {loss}, {len(points)} runs up to 1.3B: {'; '.join(parts)}")
    return lines


def repetition(table: Table) -> list[str]:
    """Return measured and predicted repetition penalties."""
    runs = repetition_penalties(table, min_parameters=2.8e9, min_ratio=15.0, max_epochs=15.0)
    lines = ["| N | tokens | epochs | measured | predicted (90 %) |", "|---|---|---|---|---|"]
    terms = Terms(shape=False, head=False, batch=False)
    fresh = LossModel(law=load_law(), terms=terms)
    for k in np.lexsort((runs["epochs"], runs["parameters"])):
        design = _design(runs["parameters"][k], runs["tokens"][k], 4096.0, 32.0)
        model = LossModel(law=load_law(), terms=terms, unique_tokens=float(runs["unique"][k]))
        ratio = 100 * (model.loss_draws(design) / fresh.loss_draws(design) - 1)
        point = 100 * float(model.loss(design) / fresh.loss(design) - 1)
        low, high = np.quantile(ratio, [0.05, 0.95])
        measured = 100 * np.expm1(runs["penalty"][k])
        lines.append(
            f"| {runs['parameters'][k]:.3g} | {runs['tokens'][k]:.3g} | {runs['epochs'][k]:.1f} "
            f"| {measured:.2f} % | {point:.2f} % ({low:.2f}-{high:.2f}) |"
        )
    return lines


def case_study() -> list[str]:
    """Return the two designs of vTrain's case study, absolute and paired."""
    naive = _design(145.61e9 - 32_000 * 12_288, 2.912e12, 12_288, 80)
    final = _design(76.04e9 - 32_000 * 10_240, 1.521e12, 10_240, 60)
    lines = []
    for name, terms in (("bare law", Terms.none()), ("all terms", Terms())):
        model = LossModel(law=load_law(), terms=terms)
        words = []
        for design in (naive, final):
            low, median, high = (float(v) for v in model.interval(design))
            words.append(f"{median:.4f} ({low:.4f}-{high:.4f})")
        low, median, high = (float(v) for v in model.paired(final, naive))
        lines.append(
            f"- {name}, 90 %: {words[0]} and {words[1]}, paired {median:.4f} ({low:.4f}-{high:.4f})"
        )
    return lines


def regrets() -> list[str]:
    """Return the regret matrix over well-shaped designs of 2.7e24 FLOP."""
    compute = 2.7e24
    n = np.geomspace(1e10, 1.5e12, 600)
    aspect = 24.0 * (n / 4e8) ** 0.23
    hidden = (n * aspect / 12.0) ** (1.0 / 3.0)
    designs = _design(n, compute / (6.0 * n), hidden, hidden / aspect)
    models = [LossModel(law=load_law(name)) for name in law_names()]
    table = regret(models, designs)
    header = " | ".join(f"by {name}" for name in table.names)
    lines = [f"| picked by | N | {header} |", "|---|---|" + "---|" * len(table.names)]
    for i, name in enumerate(table.names):
        cells = " | ".join(
            f"{1e3 * table.nats[i, j]:.1f} mNat, {100 * table.budget_share[i, j]:.0f} %"
            for j in range(len(table.names))
        )
        lines.append(f"| {name} | {n[table.chosen[i]] / 1e9:.0f}B | {cells} |")
    return lines


def speeds() -> list[str]:
    """Return how long intervals and fits take here."""
    rng = np.random.default_rng(SEED)
    n, d = 10 ** rng.uniform(9, 12, 10_000), 10 ** rng.uniform(10, 13, 10_000)
    designs = _design(n, d, np.sqrt(n / 400.0), 32.0)
    model = LossModel(law=load_law())
    model.interval(_design(1e9, 2e10, 2048.0, 20.0))
    start = time.perf_counter()
    model.interval(designs)
    interval_s = time.perf_counter() - start
    start = time.perf_counter()
    model.loss(designs)
    loss_s = time.perf_counter() - start
    ratio = 10 ** rng.uniform(0.5, 2.2, 1000)
    size = 10 ** rng.uniform(8, 10, 1000)
    c = load_law().facts.coefficients
    loss = c["E"] + c["A"] / size ** c["alpha"] + c["B"] / (size * ratio) ** c["beta"]
    loss = loss * np.exp(0.005 * rng.standard_normal(1000))
    points = Points(ln_n=np.log(size), ln_d=np.log(size * ratio), ln_loss=np.log(loss))
    start = time.perf_counter()
    bootstrap_additive(points, replicates=1000, seed=SEED, fitted=fit_additive(points))
    fit_s = time.perf_counter() - start
    return [
        f"- interval of 10,000 designs x 1,000 draws, all terms but repetition: {interval_s:.2f} s",
        f"- point estimate of 10,000 designs: {1e3 * loss_s:.1f} ms",
        f"- fit of 1,000 runs with 1,000 bootstraps: {fit_s:.1f} s (one process)",
    ]


def _design(
    n: float | FloatArray, d: float | FloatArray, hidden: float | FloatArray, layers: object
) -> Designs:
    tokens = np.asarray(d, dtype=np.float64)
    return Designs(
        parameters_non_embedding=np.asarray(n, dtype=np.float64),
        tokens=tokens,
        hidden_size=np.asarray(hidden, dtype=np.float64),
        num_layers=np.asarray(layers, dtype=np.float64),
        head_dim=np.asarray(128.0),
        global_batch_tokens=critical_batch_tokens(tokens),
    )


def _losses(draws: dict[str, FloatArray], points: Points) -> FloatArray:
    size = np.exp(draws["ln_A"] - draws["alpha"] * points.ln_n)
    data = np.exp(draws["ln_B"] - draws["beta"] * points.ln_d)
    return np.asarray(np.exp(draws["ln_E"]) + size + data)


def main(folder: Path) -> None:
    """Print every section as Markdown."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "pandas"))
    click.echo(
        f"{datetime.now(UTC):%Y-%m-%d}, seed {SEED}, Python {platform.python_version()}, {versions}"
    )
    shape = gemstones_errors(read_table(folder / "gemstones.csv"))
    batch = batch_errors(read_table(folder / "steplaw_batch_profiles.csv"))
    sections = {
        "Chinchilla refit": chinchilla(read_table(folder / "chinchilla_svg.csv")),
        "Gemstones, constant learning rate": [f"- {k}: {v:.3f}" for k, v in shape.items()],
        "Batch term on Step Law": [f"- {k}: {v:.3f}" for k, v in batch.items()],
        "OLMo ladder": olmo(read_table(folder / "olmo_ladder.csv")),
        "Repeated data": repetition(read_table(folder / "datablations_repeats.csv")),
        "vTrain's two designs": case_study(),
        "Regret at 2.7e24 FLOP": regrets(),
        "Speed": speeds(),
    }
    for title, lines in sections.items():
        click.echo(f"\n## {title}\n")
        click.echo("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m vtrain_search.fit_law.measure DATA_FOLDER")
    main(Path(sys.argv[1]))
