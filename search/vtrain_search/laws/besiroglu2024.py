"""Besiroglu et al. 2024: the corrected third approach of Hoffmann et al.; the default law."""

from __future__ import annotations

import numpy as np

from .additive import FORMULA, AdditiveLaw
from .base import Draws, LawFacts
from .shipped import recentred

FACTS = LawFacts(
    name="besiroglu2024",
    formula=FORMULA,
    coefficients={"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658},
    counts="all parameters",
    vocab_size=32_000,
    unit="nats/token",
    data_set="MassiveText, SentencePiece 32k: 240 points read from Hoffmann et al. 2022, figure 4",
    parameters_range=(5.7334e7, 1.6183e10),
    tokens_range=(8.1868e8, 3.1775e11),
    compute_max_flop=1.2956e22,
    citation="Besiroglu et al. 2024, Chinchilla Scaling: A replication attempt, arXiv 2404.10102",
    verification="verified: coefficients read in public code, and reproduced by our own refit",
    caveat="points carry digitisation noise; about 18 tokens a parameter at 1e24 FLOP",
)


def _draws() -> Draws:
    c = FACTS.coefficients
    return recentred(
        "chinchilla_draws.csv",
        {
            "ln_E": float(np.log(c["E"])),
            "ln_A": float(np.log(c["A"])),
            "ln_B": float(np.log(c["B"])),
            "alpha": c["alpha"],
            "beta": c["beta"],
        },
    )


LAW = AdditiveLaw(FACTS, _draws)
