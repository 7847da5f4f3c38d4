"""Law files: a round trip, and one clear line for each thing that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vtrain_search.laws import load_law
from vtrain_search.laws.lawfile import dump_law

from vtrain.errors import UserInputError


def test_round_trip(tmp_path: Path, make_designs) -> None:
    """A law written and read back predicts and scatters as before."""
    law = load_law()
    path = tmp_path / "mine.toml"
    path.write_text(dump_law(law, {"note": {"why": "test"}}))
    again = load_law(path)
    assert again.facts == law.facts
    designs = make_designs(np.array([1e9, 1e11]), np.array([2e10, 2e12]))
    np.testing.assert_array_equal(again.loss(designs), law.loss(designs))
    np.testing.assert_allclose(
        again.loss_draws(designs, again.draws()),
        law.loss_draws(designs, law.draws()),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 9", "schema_version must be 1, got 9"),
        ('name = "besiroglu2024"\n', "", "lacks 'name'"),
        ("beta = 0.3658", "", "lacks 'beta'"),
        ("E = 1.8172", "E = -1.8172", "every coefficient must be positive"),
        ("E = 1.8172", 'E = "x"', "could not convert"),
        ("vocab_size = 32000", "vocab_size = 0", "counts all parameters but vocab_size=0"),
        ("E + A/N^alpha + B/D^beta", "whatever", "formula must be"),
        ("schema_version = 1", "schema_version = ", "is not TOML"),
    ],
)
def test_refusals(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A broken law file gets one line that names the file and what is wrong."""
    text = dump_law(load_law())
    assert old in text
    path = tmp_path / "broken.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserInputError, match=message):
        load_law(path)


def test_ragged_draws_are_refused(tmp_path: Path) -> None:
    """Draws of different lengths or with NaN are refused."""
    text = dump_law(load_law())
    path = tmp_path / "ragged.toml"
    head, tail = text.split("alpha = [\n", 1)
    path.write_text(head + "alpha = [\n" + tail.split("\n", 1)[1])
    with pytest.raises(UserInputError, match="columns of one length"):
        load_law(path)
