"""What every allocation rule must do, and the published allocations it must give back."""

from __future__ import annotations

import numpy as np
import pytest
from vtrain_search.laws import load_rule, rule_names
from vtrain_search.laws.rules import AllocationRule, PowerOfCompute

from vtrain.errors import UserInputError


@pytest.mark.parametrize("name", rule_names())
def test_splits_compute(name: str) -> None:
    """N and D multiply to C/6, both grow with compute, and tokens/parameter is 5-100 at 1e23."""
    rule = load_rule(name)
    compute = np.geomspace(1e18, 1e27, 30)
    parameters, tokens = rule.allocate(compute)
    np.testing.assert_allclose(6.0 * parameters * tokens, compute, rtol=1e-12)
    assert (np.diff(parameters) > 0).all()
    assert (np.diff(tokens) > 0).all()
    n, d = rule.allocate(1e23)
    assert 5 < d / n < 100


@pytest.mark.parametrize("name", rule_names())
def test_states_its_facts(name: str) -> None:
    """A rule says formula, coefficients, what N counts, data, range, source and status."""
    rule = load_rule(name)
    for text in (rule.formula, rule.data_set, rule.citation, rule.verification, rule.n_convention):
        assert text.strip()
    assert rule.coefficients
    assert rule.compute_range_flop[0] < rule.compute_range_flop[1]


@pytest.mark.parametrize(
    ("name", "compute_flop", "parameters", "tokens", "tolerance"),
    [
        # Hoffmann et al. 2022, table 3 (approach 1) and table A3 (approach 2).
        ("hoffmann2022-1", 5.76e23, 67e9, 1.5e12, 0.08),
        ("hoffmann2022-1", 3.85e24, 175e9, 3.7e12, 0.03),
        ("hoffmann2022-1", 1.27e26, 1e12, 21.2e12, 0.03),
        ("hoffmann2022-2", 6.88e23, 67e9, 1.7e12, 0.05),
        ("hoffmann2022-2", 4.54e24, 175e9, 4.3e12, 0.03),
        ("hoffmann2022-2", 1.75e28, 1e13, 292e12, 0.01),
        # Llama 3: 402B and 16.55T at 3.8e25, with 5.7 FLOP a parameter and token.
        ("llama3-2024", 3.8e25, 402e9, 16.55e12, 0.05),
    ],
)
def test_published_allocations(
    name: str, compute_flop: float, parameters: float, tokens: float, tolerance: float
) -> None:
    """The rule gives back its paper's table."""
    n, d = load_rule(name).allocate(compute_flop)
    assert float(n) == pytest.approx(parameters, rel=tolerance)
    assert float(d) == pytest.approx(tokens, rel=tolerance)


def test_deepseek_is_self_consistent() -> None:
    """DeepSeek's M times D is the compute to 1e-3: prefactors 1.0001, exponents sum to 1."""
    c = load_rule("deepseek2024").coefficients
    assert c["M_base"] * c["D_base"] == pytest.approx(1.0, abs=1e-3)
    assert c["a"] + c["b"] == pytest.approx(1.0, abs=1e-12)


def test_refusals() -> None:
    """A wrong name gets the nearest ones; a rule without exactly one side is refused."""
    with pytest.raises(UserInputError, match="nearest: llama3-2024"):
        load_rule("llama3")
    with pytest.raises(UserInputError, match="not both or neither"):
        AllocationRule(
            name="x",
            formula="",
            coefficients={},
            counts="all parameters",
            vocab_size=1,
            data_set="",
            compute_range_flop=(1.0, 2.0),
            citation="",
            verification="",
            parameters_rule=PowerOfCompute(prefactor=1.0, exponent=0.5),
            tokens_rule=PowerOfCompute(prefactor=1.0, exponent=0.5),
        )
