"""The terms: published figures, invariants, and what they cost in compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vtrain_search.laws import Designs, LossModel, Terms, critical_batch_tokens, load_law
from vtrain_search.laws.additive import AdditiveLaw
from vtrain_search.laws.terms import BatchTerm, HeadTerm, RepetitionTerm, ShapeTerm

LAW = load_law()
WITHOUT_VOCABULARY = AdditiveLaw(
    # An embedding's share of N shrinks with size and would blur what the shape alone costs.
    replace(LAW.facts, vocab_size=0, counts="non-embedding parameters"),
    LAW.draws,
)


@pytest.mark.parametrize(("off", "tax"), [(2, 0.029), (3, 0.0724), (4, 0.115), (8, 0.26)])
def test_shape_tax(off: float, tax: float) -> None:
    """Off the best width/depth by 2, 3, 4, 8 times costs 2.9, 7, 12, 26 % of N, either way."""
    term = ShapeTerm()
    n = np.array([1e9, 7e10])
    for side in (off, 1.0 / off):
        aspect = term.best_aspect(n) * side
        lost = -term.ln_factor(term.point(), np.log(n), np.log(aspect))
        np.testing.assert_allclose(lost, tax, rtol=0.03)


def test_best_aspect_grows_with_size() -> None:
    """Best width/depth is 24 at 0.4B, about 29 at 1B, 45 at 7B and 76-79 at 70B."""
    best = ShapeTerm().best_aspect(np.array([4e8, 1e9, 7e9, 7e10]))
    np.testing.assert_allclose(best, [24, 29, 46, 78], rtol=0.03)


def test_head_factor_bands() -> None:
    """The factor on N is 1 from 80 up, 0.96 at 51-72, 0.89 at 40-48, 0.75 at 36 and below."""
    term = HeadTerm()
    sizes = np.array([16, 32, 36, 40, 48, 51, 64, 72, 80, 96, 128, 256])
    factors = np.exp(term.ln_factor(term.point(), sizes))
    expected = [0.75, 0.75, 0.75, 0.89, 0.89, 0.96, 0.96, 0.96, 1, 1, 1, 1]
    np.testing.assert_allclose(factors, expected)
    between = term.ln_factor(term.point(), np.linspace(20, 200, 500))
    assert (np.diff(between) >= 0).all()


def test_critical_batch() -> None:
    """B* is 4.9M tokens after 1.5e12 (shared derivation), 1.1M after 1e11."""
    found = critical_batch_tokens(np.array([1.5e12, 1e11]))
    np.testing.assert_allclose(found, [5.0e6, 1.08e6], rtol=0.03)


def test_batch_tax_is_free_at_the_critical_batch_and_symmetric() -> None:
    """No tax at B*, the same at half and double, and it grows away from B*."""
    term = BatchTerm()
    x = np.log(np.array([1 / 8, 1 / 2, 1, 2, 8]))
    ln_factor = term.ln_factor(term.point(), x)
    assert ln_factor[2] == 0
    assert ln_factor[1] == pytest.approx(ln_factor[3])
    assert (np.diff(-ln_factor[2:]) > 0).all()


def test_batch_beyond_eight_times_is_refused(make_designs) -> None:
    """Beyond 8 B* the loss is +inf and the mask false; at 8 B*, or without the term, finite."""
    tokens = 1e12
    batches = critical_batch_tokens(np.asarray(tokens)) * np.array([1.0, 8.0, 8.01, 100.0])
    designs = make_designs(7e9, tokens, global_batch_tokens=batches)
    model = LossModel(law=LAW)
    np.testing.assert_array_equal(model.batch_allowed(designs), [True, True, False, False])
    np.testing.assert_array_equal(np.isfinite(model.loss(designs)), [True, True, False, False])
    low, _, high = model.interval(designs)
    assert np.isinf(low[2:]).all()
    assert np.isfinite(high[:2]).all()
    assert np.isfinite(LossModel(law=LAW, terms=Terms(batch=False)).loss(designs)).all()


def test_repetition_is_exactly_nothing_below_one_epoch() -> None:
    """While tokens do not exceed the unique ones both factors are exactly 1."""
    term = RepetitionTerm(unique_tokens=1e11)
    ln_d = np.log(np.array([1e9, 5e10, 1e11]))
    assert (term.ln_token_factor(term.point(), ln_d) == 0).all()
    assert (term.ln_parameter_factor(term.point(), np.log(1e12), ln_d) == 0).all()


def test_repetition_published_decay() -> None:
    """Muennighoff: four epochs are worth 3.7 of fresh data, forty no more than about 15."""
    term = RepetitionTerm(unique_tokens=1e9)
    ln_d = np.log(np.array([4e9, 40e9]))
    worth = np.exp(ln_d + term.ln_token_factor(term.point(), ln_d)) / 1e9
    np.testing.assert_allclose(worth, [3.73, 15.2], rtol=0.02)


@settings(max_examples=300, deadline=None)
@given(
    ln_n=st.floats(np.log(1e8), np.log(1e13)),
    ln_d=st.floats(np.log(1e8), np.log(1e14)),
    ln_ratio=st.floats(-np.log(8), np.log(8)),
    aspect=st.floats(2, 400),
    head=st.sampled_from([32, 48, 64, 128, 256]),
    step=st.floats(0.001, 2.0),
)
def test_loss_falls_in_tokens_at_fixed_batch(
    ln_n: float, ln_d: float, ln_ratio: float, aspect: float, head: int, step: float
) -> None:
    """With all terms on, more tokens at the same batch lower the loss, B*/8 to 8 B*."""
    n, d = np.exp(ln_n), np.exp(ln_d)
    batch = np.exp(ln_ratio) * critical_batch_tokens(np.asarray(d))
    hidden = (n * aspect / 12) ** (1 / 3)
    designs = Designs(
        parameters_non_embedding=n,
        tokens=np.array([d, d * np.exp(step)]),
        hidden_size=hidden,
        num_layers=hidden / aspect,
        head_dim=head,
        global_batch_tokens=batch,
    )
    loss = LossModel(law=LAW).loss(designs)
    assert np.isfinite(loss).all()
    assert loss[1] < loss[0]


@settings(max_examples=300, deadline=None)
@given(
    ln_n=st.floats(np.log(1e8), np.log(1e13)),
    ln_d=st.floats(np.log(1e8), np.log(1e14)),
    hidden=st.integers(256, 65536),
    layers=st.integers(2, 512),
    epochs=st.floats(0.1, 20),
    step=st.floats(0.001, 2.0),
)
def test_loss_is_finite_and_falls_in_size(
    ln_n: float, ln_d: float, hidden: int, layers: int, epochs: float, step: float
) -> None:
    """Loss is finite and falls in N at any fixed shape; with repeated data too at the best one.

    Both at once need not hold: data repeated 20 times make size worth nothing, and then a fixed
    shape that fits the larger size a little less shows.
    """
    n, d = np.exp(ln_n), np.exp(ln_d)
    designs = Designs(
        parameters_non_embedding=n * np.array([1.0, np.exp(step)]),
        tokens=d,
        hidden_size=hidden,
        num_layers=layers,
        head_dim=128,
        global_batch_tokens=critical_batch_tokens(np.asarray(d)),
    )
    loss = LossModel(law=LAW).loss(designs)
    assert np.isfinite(loss).all()
    assert loss[1] < loss[0]
    repeated = LossModel(law=LAW, terms=Terms(shape=False), unique_tokens=d / epochs)
    loss = repeated.loss(designs)
    assert np.isfinite(loss).all()
    assert loss[1] < loss[0]


@pytest.mark.parametrize("off", [2.0, 4.0, 8.0])
def test_penalty_costs_the_same_share_of_compute_at_any_scale(off: float) -> None:
    """A shape penalty is one fraction of compute at $10k and at $100M (1e22 and 1e26 FLOP)."""
    shares = []
    for compute in (1e22, 1e24, 1e26):
        worse = _lowest_loss(compute, off)
        assert worse > _lowest_loss(compute, 1.0)
        # Bisect for the compute at which well-shaped models reach the badly shaped ones' loss.
        low, high = 0.3 * compute, compute
        for _ in range(40):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if _lowest_loss(middle, 1.0) > worse else (low, middle)
        shares.append(1.0 - low / compute)
    np.testing.assert_allclose(shares, 1.0 - np.exp(-0.06 * np.log(off) ** 2), rtol=5e-3)


def _lowest_loss(compute: float, off: float) -> float:
    """Return the lowest loss at a compute when width/depth is `off` times the best one."""
    n = np.exp(0.5 * np.log(compute) + np.linspace(-5.0, 1.0, 20001))
    aspect = ShapeTerm().best_aspect(n) * off
    hidden = (n * aspect / 12.0) ** (1.0 / 3.0)
    d = compute / (6.0 * n)
    designs = Designs(
        parameters_non_embedding=n,
        tokens=d,
        hidden_size=hidden,
        num_layers=hidden / aspect,
        head_dim=128,
        global_batch_tokens=critical_batch_tokens(d),
    )
    return float(LossModel(law=WITHOUT_VOCABULARY).loss(designs).min())
