"""Width over depth: an effective parameter count that peaks at the best aspect ratio."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain_search.laws.base import Coefficients, Draws
from vtrain_search.laws.designs import FloatArray
from vtrain_search.laws.quantiles import Z95, log_sd90
from vtrain_search.laws.shipped import read_columns

# Fitted on the Gemstones models (arXiv 2502.06857; 22 shapes, width 256-3072, depth 3-80,
# constant learning rate, at least 20B tokens) by `python -m vtrain_search.fit_law.shipped`,
# rounded; the range over all refits is kappa 0.03-0.15, r0 16-40, rho 0-0.32.
KAPPA = 0.06
R0 = 24.0
RHO = 0.23
REFERENCE_PARAMETERS = 4e8
"""Non-embedding parameters at which the best width/depth is R0."""

ASPECT_RANGE = (3.0, 320.0)
"""Width/depth spanned by the Gemstones models (256x80 to 2560x8), rounded."""
PARAMETERS_RANGE = (3.5e7, 2e9)
"""Non-embedding parameters of the Gemstones models."""

# 90 % interval of kappa over all refits, wider than the bootstrap of one of them.
KAPPA_INTERVAL90 = (0.03, 0.12)
BEST_ASPECT_FACTOR90 = 2.0
"""Beyond the data the best width/depth is known to a factor 2 either way (90 %)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeTerm:
    """ln(N_eff/N) = -kappa * ln(r/r*)^2, r = width/depth, r* = r0 (N_ne/4e8)^rho.

    At the compute optimum a fraction of N costs the same fraction of compute, so
    kappa ln(r/r*)^2 is a tax on compute that does not depend on scale.
    """

    kappa: float = KAPPA
    r0: float = R0
    rho: float = RHO

    def point(self) -> Coefficients:
        """Return the point estimate in the names of the draws."""
        return {
            "kappa": self.kappa,
            "ln_r0": float(np.log(self.r0)),
            "rho": self.rho,
            "ln_far": 0.0,
        }

    def draws(self) -> Draws:
        """Return joint draws: ranks and joint shape from the bootstrap over whole models.

        kappa is log-normal with a 90 % interval of 0.03-0.12 (spread over all refits); ln r0 and
        rho are the bootstrap's deviations around the default; `ln_far` shifts r* beyond the data.
        """
        columns, provenance = read_columns("shape_draws.csv")
        sd = log_sd90(*KAPPA_INTERVAL90)
        return Draws(
            columns={
                "kappa": self.kappa * np.exp(sd * columns["z_kappa"]),
                "ln_r0": np.log(self.r0) + columns["ln_r0"],
                "rho": self.rho + columns["rho"],
                "ln_far": columns["z_far"] * float(np.log(BEST_ASPECT_FACTOR90)) / Z95,
            },
            provenance=provenance,
        )

    def ln_factor(
        self,
        coefficients: Coefficients,
        ln_parameters_non_embedding: FloatArray,
        ln_aspect: FloatArray,
    ) -> FloatArray:
        """Return ln(N_eff/N) <= 0; arguments broadcast.

        The uncertainty of r* beyond the data comes in over the first factor of ten above 2e9
        parameters, so that it has no jump.
        """
        c = coefficients
        far = np.clip(
            (ln_parameters_non_embedding - np.log(PARAMETERS_RANGE[1])) / np.log(10.0), 0.0, 1.0
        )
        scaled = ln_parameters_non_embedding - np.log(REFERENCE_PARAMETERS)
        off = ln_aspect - c["ln_r0"] - c["rho"] * scaled - c["ln_far"] * far
        return np.asarray(-c["kappa"] * off * off)

    def best_aspect(self, parameters_non_embedding: FloatArray) -> FloatArray:
        """Return the width/depth r* with no penalty at this size."""
        return np.asarray(self.r0 * (parameters_non_embedding / REFERENCE_PARAMETERS) ** self.rho)
