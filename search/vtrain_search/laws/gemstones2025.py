"""McLeish et al. 2025 (Gemstones): width, depth, size and data, each with a power of its own."""

from __future__ import annotations

import numpy as np

from .base import Coefficients, Draws, LawFacts, LogInputs, LossLaw
from .designs import FloatArray
from .shipped import read_columns

FACTS = LawFacts(
    name="gemstones2025",
    formula="L = E + e^c_W/W^a_W + e^c_L/l^a_L + e^c_N/N^a_N + e^c_D/D^a_D",
    coefficients={
        "ln_E": 0.4282,
        "c_W": 1.0820,
        "a_W": 0.2196,
        "c_L": -0.2187,
        "a_L": 0.4759,
        "c_N": 6.0902,
        "a_N": 0.3636,
        "c_D": 10.4720,
        "a_D": 0.4935,
    },
    counts="all parameters",
    vocab_size=50_304,
    unit="nats/token",
    data_set="Dolma 1.7, GPT-NeoX tokenizer; width 256-3,072, depth 3-80",
    parameters_range=(4.8e7, 2.0e9),
    tokens_range=(1.0e10, 3.5e11),
    compute_max_flop=4.2e21,
    citation="McLeish et al. 2025, Gemstones: A Model Suite for Multi-Faceted Scaling Laws, "
    "arXiv 2502.06857, four-term law on all data",
    verification="verified: coefficients read in the authors' public code",
    contains=frozenset({"shape"}),
    caveat="the learning rate follows a rule and is not tuned for each shape; width's and depth's "
    "own powers are poorly separated from E",
)


class GemstonesLaw(LossLaw):
    """The four-term law; it knows the shape, so the shape term is switched off beside it."""

    facts = FACTS

    def coefficients(self) -> Coefficients:
        """Return ln E, the four ln scales and the four exponents."""
        return dict(FACTS.coefficients)

    def evaluate(self, coefficients: Coefficients, inputs: LogInputs) -> FloatArray:
        """Return E + the sum of the four powers."""
        c = coefficients
        return np.asarray(
            np.exp(c["ln_E"])
            + np.exp(c["c_W"] - c["a_W"] * inputs.ln_hidden_size)
            + np.exp(c["c_L"] - c["a_L"] * inputs.ln_num_layers)
            + np.exp(c["c_N"] - c["a_N"] * inputs.ln_parameters)
            + np.exp(c["c_D"] - c["a_D"] * inputs.ln_tokens)
        )

    def draws(self) -> Draws:
        """Return our bootstrap refits over whole models, started at the published point."""
        columns, provenance = read_columns("gemstones_draws.csv")
        return Draws(columns=columns, provenance=provenance)


LAW = GemstonesLaw()
