"""What trusting the wrong law costs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from vtrain_search.laws import (
    Designs,
    LossModel,
    compare_laws,
    law_names,
    load_law,
    regret,
    rule_names,
)

from vtrain.errors import InfeasibleError, UserInputError


def _one_budget(make_designs, compute: float) -> Designs:
    n = np.geomspace(compute**0.5 / 40, compute**0.5, 400)
    return make_designs(n, compute / (6 * n))


def test_matrix(make_designs) -> None:
    """Nobody regrets their own pick, nothing is negative, and shares of compute match nats."""
    models = [LossModel(law=load_law(name)) for name in law_names()]
    table = regret(models, _one_budget(make_designs, 2.7e24))
    size = len(models)
    assert table.nats.shape == table.budget_share.shape == (size, size)
    np.testing.assert_array_equal(np.diag(table.nats), 0)
    assert (table.nats >= 0).all()
    assert ((table.budget_share >= 0) & (table.budget_share < 1)).all()
    assert ((table.nats > 0) == (table.budget_share > 0)).all()
    assert len(table.rows()) == size * size
    worst_nats, worst_share = table.worst()
    assert worst_nats.shape == worst_share.shape == (size,)


def test_published_picks(make_designs) -> None:
    """At 2.7e24 FLOP Besiroglu picks about 160B, Hoffmann 3 about 82B, for 0.004 nats or so."""
    designs = _one_budget(make_designs, 2.7e24)
    models = [LossModel(law=load_law(name)) for name in ("besiroglu2024", "hoffmann2022-3")]
    table = regret(models, designs)
    picked = designs.parameters_non_embedding[table.chosen]
    np.testing.assert_allclose(picked, [160e9, 82e9], rtol=0.06)
    assert 0.002 < table.nats[1, 0] < 0.008


def test_comparison_for_the_command_line(make_designs) -> None:
    """Every law has a pick, every rule an allocation, JSON and text hold the same figures."""
    found = compare_laws(_one_budget(make_designs, 1e24))
    assert [pick["law"] for pick in found.picks] == list(law_names())
    assert [rule["rule"] for rule in found.rules] == list(rule_names())
    for rule in found.rules:
        assert 6 * rule["parameters"] * rule["tokens"] == pytest.approx(1e24, rel=1e-9)
    document = json.loads(json.dumps(found.as_json()))
    assert len(document["regret"]) == len(law_names()) ** 2
    text = found.text()
    for name in (*law_names(), *rule_names()):
        assert name in text
    alone = compare_laws(_one_budget(make_designs, 1e24), laws=["besiroglu2024"])
    assert alone.picks[0]["worst_regret_nats"] == 0.0


def test_refusals(make_designs) -> None:
    """No law, or no design with an allowed batch, is refused in one line."""
    with pytest.raises(UserInputError, match="at least one law"):
        regret([], make_designs())
    with pytest.raises(InfeasibleError, match="8 times the critical"):
        regret([LossModel(law=load_law())], make_designs(7e9, 1e11, global_batch_tokens=1e9))
