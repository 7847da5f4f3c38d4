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
from vtrain.latency.gemm import gemm_seconds
from vtrain.latency.gemm_tiles import tile_gemm_seconds
from vtrain.presets import load_device
from vtrain.profiler.fit.columns import Products

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


def held_out(rows: Products, model: Callable[[Products], Array], units: float) -> Error:
    """Return the error of a model with the residual on top, on held-out shapes.

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
    return Error.of(corrected, rows.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The two analytic models of a profile: products to seconds.

    Attributes:
        planner: what step times are estimated with (`latency.gemm`).
        base: what the residual is learned on, the tile model where it was fitted.
    """

    planner: Callable[[Products], Array]
    base: Callable[[Products], Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The range that a profile's products cover.

    Attributes:
        low: smallest (m, n, k).
        high: largest.
        most_flops: of the largest product.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    most_flops: float

    def holds(self, rows: Products) -> NDArray[np.bool_]:
        """Return which products lie inside."""
        good = rows.flops <= self.most_flops * EDGE
        for values, low, high in zip((rows.m, rows.n, rows.k), self.low, self.high, strict=True):
            good &= (values >= low / EDGE) & (values <= high * EDGE)
        return good


def measured_range(rows: Products) -> Measured:
    """Return the range that some products cover."""
    sizes = (rows.m, rows.n, rows.k)
    return Measured(
        low=tuple(float(x.min()) for x in sizes),
        high=tuple(float(x.max()) for x in sizes),
        most_flops=float(rows.flops.max()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """A residual in use: what it was learned on, and the trees."""

    models: Models
    boosted: Boosted

    def extra_s(self, rows: Products) -> Array:
        """Return seconds to add to what the planner's model says of each product, [rows]."""
        found = self.models.base(rows) * np.exp(self.boosted.log_ratio(rows))
        extra: Array = found - self.models.planner(rows)
        return extra


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


def models_of(folder: Path, meta: Meta, floor_s: float) -> Models:
    """Return the fitted analytic models of a profile.

    Args:
        folder: the profile, fitted.
        meta: its head.
        floor_s: of a product measured alone; that of the device file may hold launch costs too.
    """
    device = load_device(folder / "device.toml")
    precision = meta.dtype if meta.dtype in device.gemm else next(iter(device.gemm))
    constants = replace(device.gemm[precision], floor_s=floor_s)
    peak, bandwidth = device.peak_flops[precision], device.hbm_bytes_per_s
    tile = constants.tile

    def slowed(seconds: Array, some: Products) -> Array:
        return seconds * np.where(some.layout == "NT", constants.weight_gradient, 1.0)

    def planner(some: Products) -> Array:
        return slowed(gemm_seconds(constants, peak, bandwidth, some.m, some.n, some.k), some)

    def tiles(some: Products) -> Array:
        assert tile is not None
        sizes = (some.m, some.n, some.k)
        found = tile_gemm_seconds(tile, peak, bandwidth, float(device.sm_count), *sizes)
        return slowed(found, some)

    return Models(planner=planner, base=planner if tile is None else tiles)


def judge_residual(folder: Path, meta: Meta, rows: Products, floor_s: float) -> dict[str, Any]:
    """Compare analytic model and residual on held-out shapes; the decision, as a TOML table."""
    shapes = int(np.unique(rows.shape_groups).size)
    out: dict[str, Any] = {"used": False, "rows": len(rows), "shapes": shapes, "floor_s": floor_s}
    models = models_of(folder, meta, floor_s)
    analytic = Error.of(models.planner(rows), rows.seconds)
    out["analytic_mape_pct"] = round(analytic.mape_pct, 2)
    if shapes < LEAST_SHAPES:
        return {**out, "why": f"{shapes} shapes, at least {LEAST_SHAPES} are needed"}
    error = held_out(rows, models.base, float(meta.units))
    used = error.mape_pct < analytic.mape_pct
    out["residual_mape_pct"] = round(error.mape_pct, 2)
    return {**out, "used": used, "why": f"held-out error {'falls' if used else 'does not fall'}"}


def load_verdict(folder: Path) -> dict[str, Any]:
    """Read what `judge_residual` decided when the profile was fitted.

    Raises:
        UserInputError: the file is not there or damaged.
    """
    path = folder / FILE
    hint = f"`vtrain profile fit --profile {folder}` writes it"
    try:
        verdict = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"{path} is damaged: {error}", hint=hint) from None
    if not {"used", "floor_s", "analytic_mape_pct"} <= set(verdict):
        raise UserInputError(f"{path} is damaged: keys are missing", hint=hint)
    return verdict


def refit_residual(folder: Path, meta: Meta, rows: Products, floor_s: float) -> Residual:
    """Refit the residual of a profile from its own rows, seeded."""
    models = models_of(folder, meta, floor_s)
    boosted = boost(rows, np.log(rows.seconds / models.base(rows)), float(meta.units))
    return Residual(models=models, boosted=boosted)
