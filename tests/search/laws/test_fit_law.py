"""Fitting pilots: recovery of a known law, what is refused, what terms are taken out, speed."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from vtrain_search.fit_law import Points, bootstrap_additive, fit_additive
from vtrain_search.fit_law.identify import refuse_other_unit
from vtrain_search.fit_law.pilot_fit import effective_points, fit_pilots
from vtrain_search.fit_law.pilots import Pilots, read_pilots
from vtrain_search.laws import load_law

from vtrain.errors import UserInputError

TRUE = load_law().facts.coefficients


def true_loss(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return the default law's loss."""
    return TRUE["E"] + TRUE["A"] / n ** TRUE["alpha"] + TRUE["B"] / d ** TRUE["beta"]


def ladder(noise: float = 0.002, seed: int = 0, sizes: int = 6, ratios: int = 5) -> Pilots:
    """Return pilots of the default law: sizes 1e8-3e9 at 5-160 tokens a parameter."""
    n = np.repeat(np.geomspace(1e8, 3e9, sizes), ratios)
    d = n * np.tile(np.geomspace(5, 160, ratios), sizes)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(n.size))
    return Pilots(
        rows=tuple(range(1, n.size + 1)), parameters=n, tokens=d, loss=true_loss(n, d) * scatter
    )


def test_exact_data_give_back_the_law() -> None:
    """Without noise the coefficients come back to 1e-5, whatever the start."""
    pilots = ladder(noise=0.0)
    points, removed = effective_points(pilots, 0)
    assert removed == ()
    found = fit_additive(points, huber_delta=5e-3).coefficients()
    for name, value in TRUE.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name


def test_bootstrap_covers_the_truth() -> None:
    """With 0.2 % noise the 90 % intervals hold the true coefficients, and the error is 0.2 %."""
    fit = fit_pilots(ladder(), replicates=200)
    for name, (low, high) in fit.interval90().items():
        assert low <= TRUE[name] <= high, name
    assert fit.rms_pct == pytest.approx(0.2, abs=0.1)
    assert fit.heldout_rms_pct is not None
    assert fit.heldout_rms_pct < 1.5
    assert fit.excluded == ()


def test_same_seed_same_draws() -> None:
    """The bootstrap is reproducible and another seed gives another one."""
    first, again = (fit_pilots(ladder(), replicates=100, seed=3) for _ in range(2))
    other = fit_pilots(ladder(), replicates=100, seed=4)
    np.testing.assert_array_equal(first.draws["alpha"], again.draws["alpha"])
    assert not np.array_equal(first.draws["alpha"], other.draws["alpha"])


def test_exclusion_is_explicit() -> None:
    """Outliers stay unless excluded by row or by ratio, are named, and move the fit."""
    pilots = ladder()
    loss = pilots.loss.copy()
    loss[[3, 4]] *= 1.06
    spoiled = Pilots(
        rows=pilots.rows, parameters=pilots.parameters, tokens=pilots.tokens, loss=loss
    )
    kept = fit_pilots(spoiled, replicates=100)
    dropped = fit_pilots(spoiled, replicates=100, excluded=(4, 5))
    assert kept.excluded == ()
    assert set(kept.suspects()) >= {4, 5}
    assert dropped.excluded == (4, 5)
    assert dropped.rms_pct < 0.4 < kept.rms_pct
    by_ratio = fit_pilots(pilots, replicates=100, drop_lowest_ratio=3)
    lowest = np.argsort(pilots.tokens / pilots.parameters, kind="stable")[:3]
    assert by_ratio.excluded == tuple(sorted(pilots.rows[i] for i in lowest))


def test_terms_are_taken_out() -> None:
    """Pilots of odd shapes and batches give back the law when width, depth, batch are given."""
    plain = ladder(noise=0.0)
    rng = np.random.default_rng(0)
    aspect = np.exp(rng.uniform(np.log(5), np.log(250), plain.loss.size))
    width = (plain.parameters * aspect / 12) ** (1 / 3)
    batch = 0.567 * plain.tokens**0.571 * np.exp(rng.uniform(-1.5, 1.5, plain.loss.size))
    odd = Pilots(
        rows=plain.rows,
        parameters=plain.parameters,
        tokens=plain.tokens,
        loss=plain.loss,
        width=width,
        depth=width / aspect,
        batch_tokens=batch,
    )
    points, removed = effective_points(odd, 0)
    assert removed == ("shape", "batch")
    spoiled = Pilots(
        rows=odd.rows,
        parameters=odd.parameters,
        tokens=odd.tokens,
        loss=true_loss(np.exp(points.ln_n), np.exp(points.ln_d)),
        width=odd.width,
        depth=odd.depth,
        batch_tokens=odd.batch_tokens,
    )
    fit = fit_pilots(spoiled, replicates=100)
    assert fit.rms_pct < 1e-3
    blind = fit_pilots(
        Pilots(rows=odd.rows, parameters=odd.parameters, tokens=odd.tokens, loss=spoiled.loss),
        replicates=100,
    )
    assert blind.rms_pct > 0.2


def test_vocabulary_larger_than_the_model_is_refused() -> None:
    """Parameters that cannot hold the stated embedding name the row."""
    pilots = ladder()
    wide = Pilots(
        rows=pilots.rows,
        parameters=pilots.parameters,
        tokens=pilots.tokens,
        loss=pilots.loss,
        width=np.full(pilots.loss.size, 4096.0),
        depth=np.full(pilots.loss.size, 10.0),
    )
    with pytest.raises(UserInputError, match=r"row 1: params are fewer than an embedding"):
        fit_pilots(wide, replicates=100, vocab_size=128_256)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda n, d: np.arange(n.size) < 6, "6 runs cannot identify five coefficients"),
        (lambda n, d: n == n[0], "params span only 1e\\+08-1e\\+08 in 1 level"),
        (lambda n, d: np.isclose(d / n, 5), "6 runs cannot"),
    ],
)
def test_unidentified_sets_are_refused(keep, message: str) -> None:
    """Too few runs, or no spread in size, get one plain sentence."""
    pilots = ladder(sizes=6, ratios=9)
    with pytest.raises(UserInputError, match=message):
        fit_pilots(pilots.keep(keep(pilots.parameters, pilots.tokens)), replicates=100)


def test_one_compute_level_and_one_ratio_are_refused() -> None:
    """An isoFLOP curve alone and a constant tokens/parameter ladder are refused."""
    n = np.geomspace(1e8, 3e9, 12)
    for d, message in ((1e20 / (6 * n), "one compute level"), (20 * n, "20 tokens a parameter")):
        pilots = Pilots(rows=tuple(range(1, 13)), parameters=n, tokens=d, loss=true_loss(n, d))
        with pytest.raises(UserInputError, match=message):
            fit_pilots(pilots, replicates=100)


def test_a_fit_that_runs_off_is_refused() -> None:
    """Losses that do not depend on tokens cannot identify beta, and the message says so."""
    pilots = ladder(noise=0.0)
    flat = Pilots(
        rows=pilots.rows,
        parameters=pilots.parameters,
        tokens=pilots.tokens,
        loss=TRUE["E"] + TRUE["A"] / pilots.parameters ** TRUE["alpha"],
    )
    with pytest.raises(UserInputError, match="do not identify"):
        fit_pilots(flat, replicates=100)


def test_bits_are_recognised() -> None:
    """Losses 1.44 times too high read as bits a token, a third as bits a byte; nats pass."""
    pilots = ladder()
    refuse_other_unit(pilots)
    for factor, words in ((1 / np.log(2), "bits a token"), (0.33, "bits a byte")):
        other = Pilots(
            rows=pilots.rows,
            parameters=pilots.parameters,
            tokens=pilots.tokens,
            loss=pilots.loss * factor,
        )
        with pytest.raises(UserInputError, match=f"as {words} would be.*--unit"):
            refuse_other_unit(other)


HEAD = "params,tokens,loss\n"
GOOD = "1e8,2e9,3.5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEAD, "holds no runs"),
        ("params,loss\n1e8,3\n", "lacks column tokens; it has params, loss"),
        ("n,d,l\n1e8,3,3\n", "lacks column params, tokens, loss"),
        (HEAD + GOOD + "1e8,2e9,nan\n", "row 2: loss is not finite"),
        (HEAD + GOOD + "1e8,2e9,-3\n1e9,1e9,-2\n", "rows 2, 3: loss is not positive: -3"),
        (HEAD + "0,2e9,3\n", "row 1: params is not positive"),
        (HEAD + GOOD + '"100,000,000",2e9,3\n', "row 2: params '100,000,000' has thousands"),
        (HEAD + GOOD + "100,000,000,2e9,3\n", "row 2 of .*: 5 values under 3 columns"),
        (HEAD + "100_000_000,2e9,3\n", "row 1: params '100_000_000' has thousands"),
        (HEAD + "7B,2e9,3\n", "row 1: params '7B' has a suffix; write 7e9"),
        (HEAD + GOOD + "1e8,,3\n", "row 2: tokens is empty"),
        (HEAD + "1e8,two,3\n", "row 1: tokens is 'two', not a number"),
        (HEAD + GOOD + "2e8,2e9,3\n" + GOOD, "rows 1, 3 of .* are duplicates"),
        ("params,tokens,loss,width\n1e8,2e9,3,512\n", "only one of width and depth"),
    ],
)
def test_bad_pilots_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    """Each thing that is wrong in a pilots file gets one line that names the row."""
    path = tmp_path / "pilots.csv"
    path.write_text(text)
    with pytest.raises(UserInputError, match=message) as caught:
        read_pilots(path)
    assert "\n" not in str(caught.value)


def test_good_pilots_are_read(tmp_path: Path) -> None:
    """Case, order, blank lines, a byte-order mark and further columns do not matter."""
    path = tmp_path / "pilots.csv"
    path.write_text("\ufeffLoss,Tokens,params,note\n3.5,2e9,1e8,first\n\n3.4,4e9,100000000,b\n")
    pilots = read_pilots(path)
    np.testing.assert_array_equal(pilots.parameters, [1e8, 1e8])
    np.testing.assert_array_equal(pilots.loss, [3.5, 3.4])
    assert pilots.rows == (1, 2)
    assert pilots.width is None


def test_seeds_of_one_run_are_not_duplicates(tmp_path: Path) -> None:
    """The same size and tokens with another loss is a repeat, not a mistake."""
    path = tmp_path / "pilots.csv"
    path.write_text(HEAD + "1e8,2e9,3.50\n1e8,2e9,3.51\n")
    assert len(read_pilots(path).rows) == 2


@pytest.mark.slow
def test_thousand_points_thousand_bootstraps() -> None:
    """1,000 runs with 1,000 bootstraps take less than 60 s."""
    rng = np.random.default_rng(0)
    n = 10 ** rng.uniform(8, 10, 1000)
    d = n * 10 ** rng.uniform(0.5, 2.2, 1000)
    loss = true_loss(n, d) * np.exp(0.005 * rng.standard_normal(1000))
    points = Points(ln_n=np.log(n), ln_d=np.log(d), ln_loss=np.log(loss))
    start = time.process_time()
    fitted = fit_additive(points)
    draws = bootstrap_additive(points, replicates=1000, seed=0, fitted=fitted)
    elapsed = time.process_time() - start
    assert elapsed < 60.0
    low, high = np.quantile(draws["alpha"], [0.01, 0.99])
    assert low < TRUE["alpha"] < high
