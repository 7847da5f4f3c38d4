"""Loss models: intervals, paired comparisons, ties, shares of the budget, distance from data."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from vtrain_search.laws import (
    WARN_BEYOND,
    Designs,
    LossModel,
    Terms,
    critical_batch_tokens,
    load_law,
)

from vtrain.errors import UserInputError

BARE = LossModel(law=load_law(), terms=Terms.none())
FULL = LossModel(law=load_law())


def test_default_law_at_published_compute() -> None:
    """Besiroglu asks for 17.9 tokens a parameter at 5.76e23 and about 17.2 at 2.54e24 FLOP."""
    law = load_law()
    n, d = law.optimal_allocation(np.array([5.76e23, 2.54e24]))
    np.testing.assert_allclose(d / n, [18.5, 17.8], rtol=0.05)
    hoffmann = load_law("hoffmann2022-3")
    n, d = hoffmann.optimal_allocation(np.array([7e23, 3e24]))
    assert ((d / n > 55) & (d / n < 80)).all()


def test_vtrain_designs(vtrain_pair: tuple[Designs, Designs]) -> None:
    """Intervals of the case study's designs overlap; their paired difference is 0.031.

    Published by the shared refit: 1.9375 (1.912-1.969) and 1.9688 (1.947-1.997) at 95 %, paired
    0.0314 (0.0277-0.0345).
    """
    naive, final = vtrain_pair
    low_a, mid_a, high_a = BARE.interval(naive, level=0.95)
    low_b, mid_b, high_b = BARE.interval(final, level=0.95)
    np.testing.assert_allclose([low_a, mid_a, high_a], [1.912, 1.9375, 1.969], atol=0.003)
    np.testing.assert_allclose([low_b, mid_b, high_b], [1.947, 1.9688, 1.997], atol=0.003)
    assert low_b < high_a
    low, median, high = BARE.paired(final, naive)
    assert float(median) == pytest.approx(0.031, abs=1e-3)
    assert float(low) == pytest.approx(0.028, abs=7e-4)
    assert float(high) == pytest.approx(0.035, abs=1e-3)
    assert (high - low) < (high_a - low_a) / 7


def test_paired_of_a_design_with_itself_is_zero(make_designs) -> None:
    """The same draw serves both sides, terms and shared simulator error included."""
    designs = make_designs(np.array([1e9, 7e10]), np.array([2e10, 1.4e12]))
    low, median, high = FULL.paired(designs, designs, time_log_sd=0.1)
    for side in (low, median, high):
        np.testing.assert_array_equal(side, [0.0, 0.0])
    low, _, high = FULL.paired(designs, designs, time_log_sd=0.1, time_correlation=0.0)
    assert (low < 0).all()
    assert (high > 0).all()


def test_simulator_error_widens_the_interval(make_designs) -> None:
    """A slower machine buys fewer tokens: a time error of sd s moves the loss by s |dL/dlnD|."""
    design = make_designs(7e10, 1.4e12)
    _, _, sharp = FULL.interval(design)
    _, _, wide = FULL.interval(design, time_log_sd=0.5)
    assert float(wide) > float(sharp)
    slope = float(-FULL.dloss_dlntokens(design))
    added = FULL.loss_draws(design, time_log_sd=0.05) - FULL.loss_draws(design)
    assert added.std() == pytest.approx(0.05 * slope, rel=0.1)
    assert abs(added.mean()) < 0.1 * added.std()


def test_slope_matches_the_closed_form(make_designs) -> None:
    """Without terms dL/dlnD = -beta B / D^beta; at the optimum it equals -dL/dlnN."""
    c = BARE.law.facts.coefficients
    designs = make_designs(np.array([1e9, 7e10]), np.array([2e10, 1.4e12]))
    expected = -c["beta"] * c["B"] * designs.tokens ** -c["beta"]
    np.testing.assert_allclose(BARE.dloss_dlntokens(designs), expected, rtol=1e-6)


def test_budget_share_of_a_loss_gap(make_designs) -> None:
    """The share that a gap is worth is what must be taken off the tokens to lose as much."""
    design = make_designs(7e9, 1.4e11)
    fewer = design.with_tokens(1.4e11 * 0.99)
    gap = BARE.loss(fewer) - BARE.loss(design)
    np.testing.assert_allclose(BARE.budget_share(gap, design), 0.01, rtol=5e-3)
    assert float(BARE.budget_share(np.zeros(()), design)) == 0.0


def test_ties(make_designs) -> None:
    """A near copy ties, a clearly worse design does not, a refused batch never does."""
    best = make_designs(7e10, 1.4e12)
    critical = critical_batch_tokens(np.asarray(1.4e12))
    others = make_designs(
        np.array([7e10, 7e10, 1e10, 7e10]),
        1.4e12,
        hidden_size=best.hidden_size * np.array([1.0, 1.01, 1.0, 1.0]),
        num_layers=best.num_layers,
        global_batch_tokens=critical * np.array([1.0, 1.0, 1.0, 9.0]),
    )
    np.testing.assert_array_equal(FULL.ties_with(others, best), [True, True, False, False])


def test_probability_best_sums_to_one(make_designs) -> None:
    """Over the draws some design is always best, the better one more often."""
    designs = make_designs(np.array([7e10, 7e10, 3e10]), np.array([1.4e12, 1.3e12, 1.0e12]))
    shares = FULL.probability_best(designs)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] > 0.99


def test_no_change_with_the_users_vocabulary(make_designs) -> None:
    """Designs have no field for a vocabulary, so it cannot buy loss at fixed layers and width."""
    names = set(Designs.__dataclass_fields__)
    assert not any("vocab" in name for name in names)
    assert "parameters" not in names


def test_terms_switch_one_by_one(make_designs) -> None:
    """Each term raises the loss of a design that it penalises, and off it changes nothing."""
    design = make_designs(
        1e9,
        2e11,
        hidden_size=8192.0,
        num_layers=2.0,
        head_dim=32.0,
        global_batch_tokens=4.0 * critical_batch_tokens(np.asarray(2e11)),
    )
    model = LossModel(law=load_law(), unique_tokens=2e10)
    costs = model.term_costs(design)
    assert set(costs) == {"shape", "head", "batch", "repetition"}
    assert all(float(cost) > 1e-3 for cost in costs.values())
    off = LossModel(law=load_law(), terms=Terms.none(), unique_tokens=2e10)
    assert float(off.loss(design)) == pytest.approx(float(off.law.loss(design)))
    assert not off.term_costs(design)


def test_effective_sizes_give_back_the_loss(make_designs) -> None:
    """The law at effective parameters and tokens is the model's loss."""
    design = make_designs(3e9, 2e11, head_dim=64.0, num_layers=10.0)
    model = LossModel(law=load_law(), unique_tokens=5e10)
    c = model.law.facts.coefficients
    n, d = model.effective_parameters(design), model.effective_tokens(design)
    loss = c["E"] + c["A"] / n ** c["alpha"] + c["B"] / d ** c["beta"]
    np.testing.assert_allclose(model.loss(design), loss, rtol=1e-12)
    on_parameters, on_tokens = model.factors(design)
    assert set(on_parameters) == {"shape", "head", "repetition"}
    assert set(on_tokens) == {"batch", "repetition"}
    assert all((f > 0).all() and (f <= 1).all() for f in on_parameters.values())


def test_terms_have_their_own_interval(make_designs) -> None:
    """With the law's coefficients fixed, each term alone still spreads the loss."""
    design = make_designs(1e9, 2e11, num_layers=4.0, head_dim=40.0, global_batch_tokens=6e6)
    point = load_law("kaplan2020")  # no scatter of its own
    for name in ("shape", "head", "batch", "repetition"):
        terms = Terms(**{k: k == name for k in ("shape", "head", "batch", "repetition")})
        losses = LossModel(law=point, terms=terms, unique_tokens=2e10).loss_draws(design)
        assert np.ptp(losses) > 0, name
    assert np.ptp(LossModel(law=point, terms=Terms.none()).loss_draws(design)) == 0


def test_extrapolation(make_designs) -> None:
    """Inside the data every factor is 1; beyond, it says how many times, and 30 warns."""
    inside = LossModel(law=load_law(), unique_tokens=1e11).extrapolation(
        make_designs(1e9, 2e10, ffn_ratio=4.0)
    )
    assert set(inside) == {"law", "shape", "head", "batch", "repetition", "ffn"}
    assert all(float(value) == 1.0 for value in inside.values())
    out = FULL.extrapolation(make_designs(np.array([1.6e11, 1e9]), 3.2e12, ffn_ratio=16.0))
    assert out["law"][0] == pytest.approx(10.1, rel=0.03)
    assert out["shape"][0] == pytest.approx(80, rel=1e-6)
    assert out["shape"][0] > WARN_BEYOND
    assert out["batch"][0] == pytest.approx(32, rel=1e-6)
    assert out["ffn"][0] == 2.0


def test_warnings_only_far_beyond(make_designs) -> None:
    """Within 30 times the data nothing is said; beyond, and for odd feed-forward sizes, a line."""
    assert FULL.warnings(make_designs(3e10, 6e11, ffn_ratio=4.0)) == []
    far = FULL.warnings(make_designs(1.6e11, 3.2e12, ffn_ratio=16.0))
    assert [line.split(" is ")[0] for line in far] == [
        "the shape term",
        "the batch term",
        "feed-forward ratio",
    ]


def test_term_costs_have_intervals(make_designs) -> None:
    """The interval of a term's cost holds its point value, and excludes 0 where it matters."""
    design = make_designs(1e9, 2e11, num_layers=4.0, head_dim=40.0, global_batch_tokens=6e6)
    model = LossModel(law=load_law(), unique_tokens=2e10)
    costs = model.term_costs(design)
    for name, (low, median, high) in model.term_cost_intervals(design).items():
        assert 0 < low < median < high, name
        assert low < costs[name] < high, name


def test_interval_shape_and_order(make_designs) -> None:
    """Intervals keep the designs' shape, are ordered, and nest with the level."""
    designs = make_designs(np.geomspace(1e9, 1e11, 6).reshape(2, 3), 1e12)
    low, median, high = FULL.interval(designs)
    assert low.shape == median.shape == high.shape == (2, 3)
    assert ((low < median) & (median < high)).all()
    wider, _, widest = FULL.interval(designs, level=0.99)
    assert ((wider < low) & (widest > high)).all()
    np.testing.assert_allclose(median, FULL.loss(designs), atol=4e-3)


def test_refusals(make_designs) -> None:
    """Nonsense gets one line with the rule and the value."""
    with pytest.raises(UserInputError, match="tokens must be positive and finite, got nan"):
        make_designs(1e9, np.array([1e10, np.nan]))
    with pytest.raises(UserInputError, match="parameters_non_embedding must be positive"):
        replace(make_designs(), parameters_non_embedding=-1e9)
    with pytest.raises(UserInputError, match="do not broadcast"):
        make_designs(np.ones(3) * 1e9, np.ones(2) * 1e10, hidden_size=1e3, num_layers=10.0)
    with pytest.raises(UserInputError, match="unique tokens must be positive"):
        LossModel(law=load_law(), unique_tokens=0.0)
    with pytest.raises(UserInputError, match="level must be between 0 and 1"):
        FULL.interval(make_designs(), level=90)
    with pytest.raises(UserInputError, match="time_correlation"):
        FULL.paired(make_designs(), make_designs(), time_correlation=2.0)


def test_ten_thousand_designs_times_thousand_draws(make_designs) -> None:
    """10,000 designs x 1,000 draws, terms on, take less than 3 s."""
    rng = np.random.default_rng(0)
    designs = make_designs(10 ** rng.uniform(9, 12, 10_000), 10 ** rng.uniform(10, 13, 10_000))
    FULL.interval(make_designs())  # the first call reads the shipped draws
    start = time.process_time()
    low, _, high = FULL.interval(designs)
    elapsed = time.process_time() - start
    assert (low < high).all()
    assert elapsed < 3.0


def test_point_estimate_is_cheap(make_designs) -> None:
    """100,000 designs take less than 0.2 s: the search calls it in its inner loop."""
    rng = np.random.default_rng(0)
    designs = make_designs(10 ** rng.uniform(9, 12, 100_000), 10 ** rng.uniform(10, 13, 100_000))
    start = time.process_time()
    FULL.loss(designs)
    assert time.process_time() - start < 0.2
