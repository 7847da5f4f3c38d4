"""What every loss law must do; a new law joins by joining the registry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vtrain_search.laws import DEFAULT_LAW, LossLaw, LossModel, Terms, law_names, load_law
from vtrain_search.laws.lawfile import dump_law

from vtrain.errors import UserInputError

NAMES = [*law_names(), "a law file"]


@pytest.fixture(params=NAMES)
def law(request: pytest.FixtureRequest, tmp_path: Path) -> LossLaw:
    """Return each shipped law, and one read back from a file."""
    if request.param != "a law file":
        return load_law(request.param)
    path = tmp_path / "own.law.toml"
    path.write_text(dump_law(load_law("besiroglu2024")))
    return load_law(path)


def test_states_its_facts(law: LossLaw) -> None:
    """A law says formula, coefficients, what N counts, unit, data, range, source and status."""
    facts = law.facts
    for text in (facts.name, facts.formula, facts.data_set, facts.citation, facts.verification):
        assert text.strip()
    assert law.unit == "nats/token"
    assert law.n_convention
    assert facts.coefficients
    assert facts.parameters_range[0] < facts.parameters_range[1]
    assert facts.tokens_range[0] < facts.tokens_range[1]
    assert facts.compute_max_flop > 0
    assert (law.vocab_size > 0) == (facts.counts == "all parameters")


def test_falls_in_size_and_data(law: LossLaw, make_designs) -> None:
    """The bare law falls in N and in D and stays finite over twelve orders of magnitude."""
    n = np.geomspace(1e7, 1e14, 60)
    in_size = law.loss(make_designs(n, 1e12, hidden_size=4096.0, num_layers=32.0))
    in_data = law.loss(make_designs(1e10, np.geomspace(1e7, 1e15, 60)))
    assert np.isfinite(in_size).all()
    assert (np.diff(in_size) < 0).all()
    assert (np.diff(in_data) < 0).all()


def test_plausible_inside_its_range(law: LossLaw, make_designs) -> None:
    """At a size and token count that all laws have seen, loss is 2-3.5 nats a token."""
    assert 2.0 < float(law.loss(make_designs(1e9, 2e10))) < 3.5


def test_draws_surround_the_point_estimate(law: LossLaw, make_designs) -> None:
    """Draws have one column a coefficient, and their median is the point estimate to 0.5 %."""
    draws = law.draws()
    assert set(draws.columns) == set(law.coefficients())
    assert len(draws) == 1000
    assert all(np.isfinite(values).all() for values in draws.columns.values())
    designs = make_designs(np.array([1e9, 7e9]), np.array([2e10, 1.4e11]))
    losses = law.loss_draws(designs, draws)
    assert losses.shape == (1000, 2)
    np.testing.assert_allclose(np.median(losses, axis=0), law.loss(designs), rtol=5e-3)
    spread = np.ptp(losses, axis=0)
    assert (spread > 0).all() if draws.informative else (spread == 0).all()


def test_draws_are_the_same_twice(law: LossLaw) -> None:
    """Draws are data, not chance: two readings are equal."""
    first, second = law.draws(), law.draws()
    for name in first.columns:
        np.testing.assert_array_equal(first.columns[name], second.columns[name])


def test_user_vocabulary_plays_no_role(law: LossLaw, make_designs) -> None:
    """N is non-embedding parameters plus the law's own embedding at the design's width."""
    designs = make_designs(7e9, 1.4e11)
    expected = designs.parameters_non_embedding + law.vocab_size * designs.hidden_size
    np.testing.assert_allclose(law.parameters(designs), expected)


def test_contained_terms_switch_off(law: LossLaw, make_designs) -> None:
    """A term inside the law is off whatever the switches say; all other terms can be on."""
    model = LossModel(law=law, unique_tokens=1e10)
    expected = {"shape", "head", "batch", "repetition"} - law.facts.contains
    assert set(model.active_terms) == expected
    assert not LossModel(law=law, terms=Terms.none(), unique_tokens=1e10).active_terms


def test_default_comes_first_and_unknown_names_are_refused() -> None:
    """The default law is Besiroglu 2024; a wrong name gets the nearest ones."""
    assert law_names()[0] == DEFAULT_LAW == "besiroglu2024"
    assert set(law_names()) == {"besiroglu2024", "hoffmann2022-3", "kaplan2020", "gemstones2025"}
    with pytest.raises(UserInputError, match="nearest: hoffmann2022-3"):
        load_law("hofman2022")
    with pytest.raises(UserInputError, match="cannot read law file"):
        load_law("missing.toml")
