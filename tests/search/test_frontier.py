"""What a scaling table says as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from vtrain_search.frontier import exponents, pareto
from vtrain_search.laws import LossModel, load_law

MODEL = LossModel(law=load_law("besiroglu2024"))


def row(compute: float, a: float) -> dict[str, float]:
    parameters = 0.1 * compute**a
    return {"parameters": parameters, "tokens": compute / (6.0 * parameters)}


def test_exponents_are_found_exactly() -> None:
    """A table that follows a power law gives back its exponents, beside the law's own."""
    found = exponents([row(c, 0.46) for c in np.geomspace(1e20, 1e25, 6)], MODEL)
    assert found is not None
    assert found["parameters"] == pytest.approx(0.46, abs=1e-9)
    assert found["tokens"] == pytest.approx(0.54, abs=1e-9)
    # Besiroglu et al. 2024 (arXiv 2404.10102): N grows as C^0.513.
    assert found["law_parameters"] == pytest.approx(0.513, abs=2e-3)


def test_short_tables_have_no_exponents() -> None:
    """Three budgets, or budgets close together, say nothing about growth."""
    assert exponents([row(c, 0.5) for c in (1e20, 1e22, 1e24)], MODEL) is None
    assert exponents([row(c, 0.5) for c in np.geomspace(1e20, 5e20, 8)], MODEL) is None


def test_the_pareto_set_holds_what_nothing_beats() -> None:
    """Rows that another beats in loss, cost and time at once are dropped; ties stay once."""
    keys = ("cluster", "parameters", "tokens", "layers", "hidden_size", "gpus", "tp", "pp", "dp")

    def design(loss: float, cost: float, wall: float) -> dict[str, float]:
        return {"loss": loss, "cost_usd": cost, "wall_s": wall, **dict.fromkeys(keys, 1)}

    rows = [
        design(2.0, 100.0, 10.0), design(2.0, 100.0, 10.0), design(2.1, 110.0, 10.0),
        design(2.1, 50.0, 20.0), design(1.9, 200.0, 5.0), design(2.0, 100.0, 11.0),
    ]  # fmt: skip
    found = [(r["loss"], r["cost_usd"]) for r in pareto(rows)]
    assert found == [(2.1, 50.0), (2.0, 100.0), (1.9, 200.0)]
    assert pareto([]) == []
