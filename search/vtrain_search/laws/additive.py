"""The additive form L = E + A / N^alpha + B / D^beta."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Coefficients, Draws, LawFacts, LogInputs, LossLaw
from .designs import FloatArray

DRAW_NAMES = ("ln_E", "ln_A", "ln_B", "alpha", "beta")
FORMULA = "L = E + A/N^alpha + B/D^beta"


class AdditiveLaw(LossLaw):
    """Chinchilla's third approach: irreducible loss plus a power of size and one of data."""

    def __init__(self, facts: LawFacts, draws: Draws | Callable[[], Draws]) -> None:
        """Keep the facts, and the draws or the function that reads them when first asked for."""
        self.facts = facts
        self._draws = draws

    def coefficients(self) -> Coefficients:
        """Return ln E, ln A, ln B, alpha, beta of the point estimate."""
        values = self.facts.coefficients
        return {
            "ln_E": float(np.log(values["E"])),
            "ln_A": float(np.log(values["A"])),
            "ln_B": float(np.log(values["B"])),
            "alpha": values["alpha"],
            "beta": values["beta"],
        }

    def evaluate(self, coefficients: Coefficients, inputs: LogInputs) -> FloatArray:
        """Return E + A/N^alpha + B/D^beta (Hoffmann et al. 2022, equation 2)."""
        c = coefficients
        size = np.exp(c["ln_A"] - c["alpha"] * inputs.ln_parameters)
        data = np.exp(c["ln_B"] - c["beta"] * inputs.ln_tokens)
        return np.asarray(np.exp(c["ln_E"]) + size + data)

    def draws(self) -> Draws:
        """Return the joint draws of ln E, ln A, ln B, alpha, beta."""
        return self._draws if isinstance(self._draws, Draws) else self._draws()

    def optimal_allocation(self, compute_flop: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return compute-optimal N and D for C = 6ND (Hoffmann et al. 2022, equation 4)."""
        c = self.facts.coefficients
        alpha, beta = c["alpha"], c["beta"]
        g = (alpha * c["A"] / (beta * c["B"])) ** (1.0 / (alpha + beta))
        parameters = g * (np.asarray(compute_flop) / 6.0) ** (beta / (alpha + beta))
        return parameters, np.asarray(compute_flop) / (6.0 * parameters)
