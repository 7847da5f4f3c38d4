"""Designs for the loss-law tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from vtrain_search.laws import Designs, critical_batch_tokens

MakeDesigns = Callable[..., Designs]


@pytest.fixture(scope="session")
def make_designs() -> MakeDesigns:
    """Return a maker of well-shaped designs: best aspect ratio, head size 128, critical batch."""

    def make(parameters_non_embedding: Any = 7e9, tokens: Any = 1.4e11, **changes: Any) -> Designs:
        n = np.asarray(parameters_non_embedding, dtype=np.float64)
        d = np.asarray(tokens, dtype=np.float64)
        aspect = 24.0 * (n / 4e8) ** 0.23
        hidden = (n * aspect / 12.0) ** (1.0 / 3.0)
        values: dict[str, Any] = {
            "parameters_non_embedding": n,
            "tokens": d,
            "hidden_size": hidden,
            "num_layers": hidden / aspect,
            "head_dim": 128.0,
            "global_batch_tokens": critical_batch_tokens(d),
        }
        return Designs(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def vtrain_pair() -> tuple[Designs, Designs]:
    """The two designs of vTrain's case study (arXiv 2312.12391): naive 145.61B and final 76.04B.

    Sizes include embeddings there; the law adds its own 32,000-row embedding to what is left.
    """

    def one(parameters: float, tokens: float, hidden: float, layers: float) -> Designs:
        return Designs(
            parameters_non_embedding=parameters - 32_000 * hidden,
            tokens=tokens,
            hidden_size=hidden,
            num_layers=layers,
            head_dim=128.0,
            global_batch_tokens=critical_batch_tokens(np.asarray(tokens)),
        )

    return one(145.61e9, 2.912e12, 12_288, 80), one(76.04e9, 1.521e12, 10_240, 60)
