"""Attention head size: small heads cost effective parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain_search.laws.base import Coefficients, Draws
from vtrain_search.laws.designs import FloatArray
from vtrain_search.laws.shipped import read_columns

# Relative loss above the best head count of the same shape, Gadre et al. 2024 (arXiv 2403.08540)
# width/depth/heads grid, width 512-1024: 0.3 % at 51-72, 0.8 % at 40-48, 1.8 % at <= 36, nothing
# at 80-256; turned into a factor on N by the law's slope at that size (dL/dlnN = 0.22 at 2e8).
_BAND_EDGES = np.array([36.0, 40.0, 48.0, 51.0, 72.0, 80.0])
_BAND_FACTORS = np.array([0.75, 0.89, 0.89, 0.96, 0.96, 1.0])
HEAD_DIM_RANGE = (32.0, 256.0)
"""Head sizes in the grid that set the bands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadTerm:
    """ln(N_eff/N) = scale * ln(band factor of the head size), interpolated between bands."""

    def point(self) -> Coefficients:
        """Return the point estimate in the names of the draws."""
        return {"scale": 1.0}

    def draws(self) -> Draws:
        """Return draws of the strength, from a bootstrap over the grid's shapes."""
        columns, provenance = read_columns("head_draws.csv")
        return Draws(columns={"scale": columns["scale"]}, provenance=provenance)

    def ln_factor(self, coefficients: Coefficients, head_dim: FloatArray) -> FloatArray:
        """Return ln(N_eff/N) <= 0; constant below 36 and zero from 80 up."""
        table = np.interp(np.log(head_dim), np.log(_BAND_EDGES), np.log(_BAND_FACTORS))
        return np.asarray(coefficients["scale"] * table)
