"""Constants of matrix multiplication from a profile's gemm.csv."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.hardware import GemmConstants
from vtrain.latency.fit import gemm as forms
from vtrain.latency.fit.robust import Error, Form, cross_validate, fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.profiler.fit.columns import Products
    from vtrain.profiler.fit.scale import Scale

    Array = NDArray[np.float64]

LEAST_ROWS = 8
"""Fewer rows than this cannot hold six constants."""

MOST_ROWS = 9000
"""More rows add nothing to six constants."""

TILE_DEVICES = ("cuda", "import")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductFit:
    """Fitted constants and how well they predict held-out shapes.

    Attributes:
        constants: for `latency.gemm`; its tile part for `latency.gemm_tiles` where fitted.
        saturating: held-out error of the saturating model.
        tiles: held-out error of the tile model, None where it does not apply.
        rows: rows fitted.
    """

    constants: GemmConstants
    saturating: Error
    tiles: Error | None
    rows: int

    @property
    def values(self) -> dict[str, Any]:
        """The constants as a TOML table."""
        out = asdict(self.constants)
        if out["tile"] is None:
            del out["tile"]
        return out


def saturating(scale: Scale, rows: Products, kind: str) -> Form:
    """Return the form of `latency.gemm` with bounds that suit the kind of device.

    A CPU core streams a few times slower than its caches, takes microseconds to be called from
    Python and saturates at sizes of tens.
    """
    form = forms.saturating_form(scale.device, scale.precision, rows.m, rows.n, rows.k)
    if kind != "cpu":
        return form
    return replace(
        form, start=(0.9, 20.0, 20.0, 20.0, 0.3, 1e-5), low=(0.2, 0.1, 0.1, 0.1, 0.01, 5e-7),
        high=(1.1, 600.0, 600.0, 600.0, 1.0, 1e-3),
    )  # fmt: skip


def tiles(scale: Scale, rows: Products) -> Form:
    """Return the form of `latency.gemm_tiles`."""
    return forms.tile_form(scale.device, scale.precision, rows.m, rows.n, rows.k)


def fit_products(
    scale: Scale, rows: Products, kind: str, sustained: float = 1.0
) -> ProductFit | None:
    """Fit matrix multiplication; None where there are too few rows.

    Forward and input-gradient rows share constants, as the operator formulas take them; the
    weight gradient is a factor on top.
    """
    used = rows.of("TN", "NN")
    if len(used) < LEAST_ROWS:
        return None
    if len(used) > MOST_ROWS:
        pick = np.random.default_rng(0).choice(len(used), MOST_ROWS, replace=False)
        used = used.at(np.sort(pick))
    constants = fit_constants(scale, used, kind)
    error = cross_validate(saturating(scale, used, kind), used.seconds, used.shape_groups)
    tile_error: Error | None = None
    if constants.tile is not None:
        tile_error = cross_validate(tiles(scale, used), used.seconds, used.shape_groups)
    factor = weight_gradient_factor(scale, rows.of("NT"), constants)
    return ProductFit(
        constants=replace(constants, weight_gradient=factor, sustained=sustained),
        saturating=error, tiles=tile_error, rows=len(used),
    )  # fmt: skip


def fit_constants(scale: Scale, rows: Products, kind: str) -> GemmConstants:
    """Fit the saturating model, and the tile model where the kind of device has tiles.

    Args:
        scale: datasheet values the times are measured against.
        rows: forward and input-gradient products.
        kind: of the profile, `Meta.kind`.
    """
    everything = np.arange(len(rows))
    form = saturating(scale, rows, kind)
    constants = forms.saturating_constants(fit(form, rows.seconds, everything))
    if kind not in TILE_DEVICES:
        return constants
    tile = forms.tile_constants(fit(tiles(scale, rows), rows.seconds, everything))
    return replace(constants, tile=tile)


def weight_gradient_factor(scale: Scale, rows: Products, constants: GemmConstants) -> float:
    """Return measured over predicted time of the weight gradient, weighted by time.

    A step adds times, so the sum counts, not the mean ratio. Without rows the default stays.
    """
    if len(rows) == 0:
        return constants.weight_gradient
    from vtrain.latency.gemm import gemm_seconds

    predicted = gemm_seconds(
        constants, scale.device.peak_flops[scale.precision], scale.device.hbm_bytes_per_s,
        rows.m, rows.n, rows.k,
    )  # fmt: skip
    return float(np.clip(np.median(rows.seconds / predicted), 0.5, 2.0))
