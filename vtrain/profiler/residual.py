"""A learned correction of product times: gradient boosting on log(measured / model).

Used only where it beats the analytic model on held-out shapes of the profile, and only inside
the measured range. Nothing of it is stored: it is refitted from the profile's own rows, seeded.
Form and finding: between laboratories the analytic model is the better one, on the machine that
was measured the residual wins from about a hundred shapes on (published operator tables,
`results/profiles`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError
from vtrain.latency.fit.robust import Error
from vtrain.profiler.fit.columns import Products, products
from vtrain.profiler.rows import path_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vtrain.profiler.meta import Meta
    from vtrain.profiler.steps import Config

    Array = NDArray[np.float64]

LEAST_SHAPES = 40
"""Fewer shapes cannot fill five folds of a tree."""

FOLDS = 5
MANY = 2000
EDGE = 1.25
"""Sizes up to this factor beyond the measured range still count as inside."""

_TILES = ((64, 64), (128, 128), (128, 256), (256, 128))
_LAYOUT_CODE = {"TN": 0.0, "NN": 1.0, "NT": 2.0}

FILE = "residual.toml"


def features(m: Array, n: Array, k: Array, layout: Array, units: float) -> Array:
    """Return what the trees see, [rows, features]: log sizes, wave fill, alignment, layout."""
    columns = [
        np.log(m), np.log(n), np.log(k), np.log(m * n * k), np.log(m * n),
        np.log(m * k + k * n + m * n),
    ]  # fmt: skip
    for rows, wide in _TILES:
        waves = np.ceil(m / rows) * np.ceil(n / wide) / units
        columns += [waves / np.ceil(waves), np.log(waves), m / (np.ceil(m / rows) * rows)]
    columns += [m % 16, m % 256, n % 256, layout]
    return np.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Boosted:
    """Trees fitted to log(measured / model)."""

    trees: Any
    units: float

    def log_ratio(self, rows: Products) -> Array:
        """Return the learned log(measured / model)."""
        out: Array = self.trees.predict(_features(rows, self.units))
        return out


def boost(rows: Products, log_ratio: Array, units: float) -> Boosted:
    """Fit the trees, seeded; under a second for a profile's own rows."""
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    # A few hundred rows: exact splits, shallow trees, one thread. Thousands: binned and deep.
    trees = (
        GradientBoostingRegressor(
            n_estimators=120, learning_rate=0.06, max_depth=3, min_samples_leaf=6,
            subsample=0.7, random_state=0,
        )
        if len(rows) < MANY
        else HistGradientBoostingRegressor(
            max_iter=300, learning_rate=0.08, max_leaf_nodes=31, min_samples_leaf=10,
            random_state=0,
        )
    )  # fmt: skip
    trees.fit(_features(rows, units), log_ratio)
    return Boosted(trees=trees, units=units)


def _features(rows: Products, units: float) -> Array:
    code = np.array([_LAYOUT_CODE.get(str(name), 0.0) for name in rows.layout])
    return features(rows.m, rows.n, rows.k, code, units)


def held_out(
    rows: Products, model: Callable[[Products], Array], units: float
) -> tuple[Error, Error]:
    """Return the error of the model alone and with the residual, on held-out shapes.

    The model is taken as given (its handful of constants cannot remember rows); the trees of each
    fold have not seen its shapes, in any layout.
    """
    base = model(rows)
    log_ratio = np.log(rows.seconds / base)
    groups = rows.shape_groups
    order = np.random.default_rng(0).permutation(np.unique(groups))
    fold_of = np.empty(order.size, dtype=np.intp)
    fold_of[order] = np.arange(order.size) % FOLDS
    fold = fold_of[groups]
    corrected = np.empty_like(base)
    for held in range(FOLDS):
        test, train = np.flatnonzero(fold == held), np.flatnonzero(fold != held)
        trees = boost(rows.at(train), log_ratio[train], units)
        corrected[test] = base[test] * np.exp(trees.log_ratio(rows.at(test)))
    return Error.of(base, rows.seconds), Error.of(corrected, rows.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """A residual in use.

    Attributes:
        boosted: the trees.
        model: seconds by the analytic model.
        low: smallest measured (m, n, k).
        high: largest.
        most_flops: of the largest measured product.
    """

    boosted: Boosted
    model: Any
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    most_flops: float

    def inside(self, rows: Products) -> NDArray[np.bool_]:
        """Return which products lie in the measured range."""
        good = rows.flops <= self.most_flops * EDGE
        for values, low, high in zip((rows.m, rows.n, rows.k), self.low, self.high, strict=True):
            good &= (values >= low / EDGE) & (values <= high * EDGE)
        return good

    def step_correction_s(self, config: Config) -> tuple[float, tuple[str, ...]]:
        """Return what the residual adds to a step, and the products it leaves alone."""
        rows, counts = step_products(config)
        inside = self.inside(rows)
        base = self.model(rows)
        extra = base * np.expm1(self.boosted.log_ratio(rows))
        missed = tuple(
            f"{int(m)}x{int(n)}x{int(k)} {layout}"
            for m, n, k, layout, good in zip(
                rows.m, rows.n, rows.k, rows.layout, inside, strict=True
            )
            if not good
        )
        return float(np.sum(np.where(inside, extra, 0.0) * counts)), missed


def step_products(config: Config) -> tuple[Products, Array]:
    """Return the products of one step of the reference decoder, and how often each runs."""
    a, tokens = config.architecture, config.seq_length * config.micro_batch_size
    inner, ffn, h = a.query_size, a.ffn_hidden_size, a.hidden_size
    weights = [
        (3 * inner, h, a.num_layers), (h, inner, a.num_layers), (2 * ffn, h, a.num_layers),
        (h, ffn, a.num_layers), (a.vocab_size, h, 1),
    ]  # fmt: skip
    shapes: list[tuple[int, int, int, str, int]] = []
    for out, inside, count in weights:
        times = count * config.micro_batches
        shapes += [
            (tokens, out, inside, "TN", times), (tokens, inside, out, "NN", times),
            (out, inside, tokens, "NT", times),
        ]  # fmt: skip
    m, n, k = (np.array([shape[at] for shape in shapes], dtype=np.float64) for at in range(3))
    rows = Products(
        m=m, n=n, k=k, seconds=np.ones_like(m), layout=np.array([shape[3] for shape in shapes])
    )
    return rows, np.array([float(shape[4]) for shape in shapes])


def analytic_model(folder: Path, meta: Meta, floor_s: float) -> Callable[[Products], Array]:
    """Return the fitted analytic model of a profile: products to seconds.

    Args:
        folder: the profile, fitted.
        meta: its head.
        floor_s: of a product measured alone; that of the device file holds launch costs too.
    """
    from vtrain.latency.gemm import gemm_seconds
    from vtrain.presets import load_device

    device = load_device(folder / "device.toml")
    precision = meta.dtype if meta.dtype in device.gemm else next(iter(device.gemm))
    constants = replace(device.gemm[precision], floor_s=floor_s)

    def model(some: Products) -> Array:
        seconds = gemm_seconds(
            constants, device.peak_flops[precision], device.hbm_bytes_per_s, some.m, some.n, some.k
        )
        return seconds * np.where(some.layout == "NT", constants.weight_gradient, 1.0)

    return model


def judge_residual(folder: Path, meta: Meta, rows: Products, floor_s: float) -> dict[str, Any]:
    """Compare analytic model and residual on held-out shapes; the decision, as a TOML table."""
    shapes = int(np.unique(rows.shape_groups).size)
    if shapes < LEAST_SHAPES:
        return {"used": False, "why": f"{shapes} shapes, at least {LEAST_SHAPES} are needed"}
    analytic, error = held_out(rows, analytic_model(folder, meta, floor_s), float(meta.units))
    used = error.mape_pct < analytic.mape_pct
    return {
        "used": used,
        "why": "held-out error" + (" falls" if used else " does not fall"),
        "analytic_mape_pct": round(analytic.mape_pct, 2),
        "residual_mape_pct": round(error.mape_pct, 2),
        "rows": len(rows),
        "shapes": shapes,
        "floor_s": floor_s,
    }


def load_residual(folder: Path, meta: Meta) -> Residual | None:
    """Refit the residual of a profile; None where `judge_residual` found it no better."""
    path = folder / FILE
    try:
        verdict = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(
            f"{path} is damaged: {error}", hint=f"`vtrain profile fit --profile {folder}`"
        ) from None
    if not verdict.get("used", False):
        return None
    rows = products(read_rows(path_of(folder, "gemm"), "gemm"))
    model = analytic_model(folder, meta, float(verdict["floor_s"]))
    boosted = boost(rows, np.log(rows.seconds / model(rows)), float(meta.units))
    sizes = (rows.m, rows.n, rows.k)
    return Residual(
        boosted=boosted, model=model, low=_three([float(x.min()) for x in sizes]),
        high=_three([float(x.max()) for x in sizes]), most_flops=float(rows.flops.max()),
    )  # fmt: skip


def _three(values: list[float]) -> tuple[float, float, float]:
    return values[0], values[1], values[2]
