"""Kaplan et al. 2020: no irreducible loss, large models on little data; for comparison."""

from __future__ import annotations

import numpy as np

from .base import Coefficients, Draws, LawFacts, LogInputs, LossLaw
from .designs import FloatArray

FACTS = LawFacts(
    name="kaplan2020",
    formula="L = [(Nc/N)^(alpha_N/alpha_D) + Dc/D]^alpha_D",
    coefficients={"Nc": 6.4e13, "Dc": 1.8e13, "alpha_N": 0.076, "alpha_D": 0.103},
    counts="non-embedding parameters",
    vocab_size=0,
    unit="nats/token",
    data_set="WebText2, GPT-2 tokenizer (50,257), context 1,024",
    parameters_range=(768.0, 1.5e9),
    tokens_range=(2.2e7, 2.3e10),
    compute_max_flop=2e21,
    citation="Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv 2001.08361, "
    "equation 1.5 and table 2",
    verification="coefficients confirmed on secondary pages; ranges recalled",
    caveat="no irreducible loss; head FLOPs left out, warm-up too long, batch not tuned (Porian "
    "et al. 2024): its growth of N with C^0.73 is not to be used",
)


class KaplanLaw(LossLaw):
    """The joint law of size and data, fitted with early stopping."""

    facts = FACTS

    def coefficients(self) -> Coefficients:
        """Return ln Nc, ln Dc and the two exponents."""
        c = FACTS.coefficients
        return {
            "ln_Nc": float(np.log(c["Nc"])),
            "ln_Dc": float(np.log(c["Dc"])),
            "alpha_N": c["alpha_N"],
            "alpha_D": c["alpha_D"],
        }

    def evaluate(self, coefficients: Coefficients, inputs: LogInputs) -> FloatArray:
        """Return [(Nc/N)^(alpha_N/alpha_D) + Dc/D]^alpha_D (equation 1.5)."""
        c = coefficients
        size = c["alpha_N"] / c["alpha_D"] * (c["ln_Nc"] - inputs.ln_parameters)
        data = c["ln_Dc"] - inputs.ln_tokens
        return np.asarray(np.exp(c["alpha_D"] * np.logaddexp(size, data)))

    def draws(self) -> Draws:
        """Return the point estimate as the only scatter anyone published: none."""
        columns = {name: np.full(1000, value) for name, value in self.coefficients().items()}
        return Draws(
            columns=columns,
            provenance="no scatter published: intervals hold the terms' uncertainty only",
            informative=False,
        )


LAW = KaplanLaw()
