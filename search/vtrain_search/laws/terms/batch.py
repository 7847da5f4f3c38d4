"""Global batch against the critical batch: effective tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain_search.laws.base import Coefficients, Draws
from vtrain_search.laws.designs import FloatArray
from vtrain_search.laws.shipped import read_columns

# Step Law (arXiv 2503.04715): B* = 0.58 D^0.571 published, 0.554 D^0.571 from the optima of the
# 17 (N, D) cells in its released sweeps (scatter 14 %); the default lies between the two.
CRITICAL_BATCH_PREFACTOR = 0.567
CRITICAL_BATCH_EXPONENT = 0.571
# Refit inside a loss law on the 160 best-learning-rate points of those sweeps by
# `python -m vtrain_search.fit_law.shipped` (0.147, rms 0.38 %; with the sides free 0.152 above
# and 0.142 below B*), rounded.
Q = 0.147

REFUSED_ABOVE = 8.0
"""Batch over B* beyond which no loss is given; only 12 of the 160 points lie there."""
RATIO_RANGE = (0.06, 24.0)
"""Batch over B* in the sweeps; below it the tangent keeps loss falling in D at a fixed batch."""
TOKENS_MAX = 1e11
"""Most training tokens in the sweeps."""


def critical_batch_tokens(tokens: FloatArray) -> FloatArray:
    """Return the batch B* (tokens) with the lowest loss after `tokens` training tokens.

    B* = 0.567 D^0.571, Step Law (Li et al. 2025, arXiv 2503.04715) re-estimated on its data.
    """
    return np.asarray(CRITICAL_BATCH_PREFACTOR * np.asarray(tokens) ** CRITICAL_BATCH_EXPONENT)


def batch_ratio(global_batch_tokens: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the batch over the critical batch of the same run."""
    return np.asarray(global_batch_tokens / critical_batch_tokens(tokens))


def ln_batch_ratio(ln_batch: FloatArray, ln_tokens: FloatArray) -> FloatArray:
    """Return ln(B/B*) for a batch and the run's tokens, both as logarithms."""
    ln_critical = np.log(CRITICAL_BATCH_PREFACTOR) + CRITICAL_BATCH_EXPONENT * ln_tokens
    return np.asarray(ln_batch - ln_critical)


def tax_curve(ln_ratio: FloatArray) -> FloatArray:
    """Return x^2 for x = ln(B/B*), below the data's end its tangent there.

    Above B* the square holds to the end of the sweeps: up to 8 B* it fits them as well as a
    tangent from 4 B* on (rms 0.350 and 0.353 %), and beyond far better (all 160 points 0.38 and
    0.56 %).
    """
    inside = np.maximum(ln_ratio, np.log(RATIO_RANGE[0]))
    return np.asarray(inside * (2.0 * ln_ratio - inside))


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTerm:
    """ln(D_eff/D) = -q * ln(B/B*)^2, continued by the tangent below the data.

    With q < 0.31 loss falls in D at a fixed batch everywhere: the slope of ln D_eff in ln D is
    1 + 2 q 0.571 x, and x counts as ln 0.06 at the least.
    """

    q: float = Q

    def point(self) -> Coefficients:
        """Return the point estimate in the names of the draws."""
        return {"q": self.q, "ln_shift": 0.0}

    def draws(self) -> Draws:
        """Return draws of q and of ln B*, from a bootstrap over the (N, D) cells."""
        columns, provenance = read_columns("batch_draws.csv")
        return Draws(
            columns={
                "q": self.q * np.exp(columns["ln_q"]),
                "ln_shift": columns["ln_shift"],
            },
            provenance=provenance,
        )

    def ln_factor(self, coefficients: Coefficients, ln_ratio: FloatArray) -> FloatArray:
        """Return ln(D_eff/D) <= 0 for ln(B/B*); arguments broadcast."""
        c = coefficients
        return np.asarray(-c["q"] * tax_curve(np.asarray(ln_ratio - c["ln_shift"])))
