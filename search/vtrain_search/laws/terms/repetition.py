"""Repeated tokens: each further epoch is worth less, and large models gain least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain_search.laws.base import Coefficients, Draws
from vtrain_search.laws.designs import FloatArray
from vtrain_search.laws.quantiles import log_sd90
from vtrain_search.laws.shipped import read_columns

# Muennighoff et al. 2023, Scaling Data-Constrained Language Models (arXiv 2305.16264): R_D*, R_N*,
# and A = e^6.255414, B = e^7.3049974, alpha = beta = 0.3526596, whose optimum at one epoch is
# N = D (A/B)^(1/alpha), 0.051 parameters a token; all read in the authors' public code.
R_D_STAR = 15.387756
R_N_STAR = 5.309743
PARAMETERS_PER_TOKEN = float(np.exp((6.255414 - 7.3049974) / 0.3526596))
# 90 % spread of refits to the released runs with other sizes, epochs and Huber widths at equal
# error; one bootstrap's scatter is narrower and misses measured penalties.
R_D_INTERVAL90 = (8.0, 47.0)
R_N_INTERVAL90 = (2.0, 25.0)
EPOCHS_MAX = 44.0
"""Epochs of the released runs that are not yet in runaway over-fitting."""


def saturating(ln_multiple: FloatArray, r_star: float | FloatArray) -> FloatArray:
    """Return ln of the value of k units of which k - 1 are repeats, over k; 0 for k <= 1.

    ln((1 + R (1 - exp(-(k - 1)/R))) / k), equation 5 of arXiv 2305.16264 over its argument.
    """
    ln_k = np.maximum(ln_multiple, 0.0)
    if not np.any(ln_k):
        return np.zeros(np.shape(ln_k))
    return np.asarray(np.log1p(-r_star * np.expm1(-np.expm1(ln_k) / r_star)) - ln_k)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepetitionTerm:
    """Effective tokens D' and effective parameters N' once D exceeds the unique tokens U.

    D' is Muennighoff's. N' there also discounts a model that is large for its tokens at one epoch,
    which the base law has priced already; only the part that repetition adds is kept,
    N'(U)/N'(D), so both factors are exactly 1 while nothing is repeated.
    """

    unique_tokens: float | FloatArray
    r_d: float = R_D_STAR
    r_n: float = R_N_STAR

    def point(self) -> Coefficients:
        """Return the point estimate in the names of the draws."""
        return {"r_d": self.r_d, "r_n": self.r_n}

    def draws(self) -> Draws:
        """Return log-normal draws of R_D* and R_N*, joint ranks from a bootstrap over the runs."""
        columns, provenance = read_columns("repetition_draws.csv")
        sd_d = log_sd90(*R_D_INTERVAL90)
        sd_n = log_sd90(*R_N_INTERVAL90)
        return Draws(
            columns={
                "r_d": self.r_d * np.exp(sd_d * columns["z_r_d"]),
                "r_n": self.r_n * np.exp(sd_n * columns["z_r_n"]),
            },
            provenance=provenance,
        )

    def ln_token_factor(self, coefficients: Coefficients, ln_tokens: FloatArray) -> FloatArray:
        """Return ln(D'/D) <= 0."""
        return saturating(ln_tokens - np.log(self.unique_tokens), coefficients["r_d"])

    def ln_parameter_factor(
        self, coefficients: Coefficients, ln_parameters: FloatArray, ln_tokens: FloatArray
    ) -> FloatArray:
        """Return ln(N'(U)/N'(D)) <= 0, N' the effective size at so many distinct tokens."""
        ln_unique = np.minimum(ln_tokens, np.log(self.unique_tokens))
        ln_per_token = ln_parameters - np.log(PARAMETERS_PER_TOKEN)
        r = coefficients["r_n"]
        return np.asarray(
            saturating(ln_per_token - ln_unique, r) - saturating(ln_per_token - ln_tokens, r)
        )

    def epochs(self, tokens: FloatArray) -> FloatArray:
        """Return how often the unique tokens are passed."""
        return np.asarray(tokens / self.unique_tokens)
