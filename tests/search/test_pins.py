"""Pinned dimensions are read exactly or refused in one line."""

from __future__ import annotations

import pytest
from vtrain_search.pins import Pins, parse_pins

from vtrain.errors import UserInputError


def test_fixed_values_and_ranges_are_read() -> None:
    """Aliases, lists, suffixes, switches and ranges arrive under their canonical key."""
    pins = parse_pins(
        ["tp=2,4", "depth=64", "tokens=2T", "sequence_parallel=off", "recompute=full"],
        ["width=4096..8192", "ffn_ratio=2.5..4"],
    )
    assert pins.exact["tp"] == (2, 4)
    assert pins.one("layers") == 64
    assert pins.one("tokens") == 2_000_000_000_000
    assert pins.one("sequence_parallel") is False
    assert pins.exact["recompute"] == ("full",)
    assert pins.bounds("hidden_size") == (4096.0, 8192.0)
    assert pins.bounds("ffn_ratio") == (2.5, 4.0)
    assert pins.allows("hidden_size", 4096)
    assert not pins.allows("hidden_size", 9216)
    assert pins.allows("pp", 5)


@pytest.mark.parametrize(
    ("fixed", "ranged", "rule"),
    [
        (["tp"], [], "must be key=value"),
        (["foo=3"], [], "unknown key 'foo'"),
        (["tp=2.5"], [], "must be a whole number"),
        (["tp=0"], [], "tp"),
        (["recompute=some"], [], "one of none, selective, full"),
        (["tp=2"], ["tp=1..4"], "both fixed and ranged"),
        (["tp=2", "tp=4"], [], "given twice"),
        ([], ["tp=8..2"], "low end exceeds"),
        ([], ["tp=8"], "not a range"),
        ([], ["recompute=none..full"], "not a range"),
        (["ffn_ratio=3", "ffn_hidden_size=4096"], [], "pin the same thing"),
    ],
)
def test_bad_pins_are_refused(fixed: list[str], ranged: list[str], rule: str) -> None:
    """Every unreadable or contradicting pin names its rule."""
    with pytest.raises(UserInputError, match=rule):
        parse_pins(fixed, ranged)


@pytest.mark.parametrize(
    ("word", "first"),
    [("micro_bach", "micro_batch"), ("gpu", "gpus"), ("kv_head", "kv_heads"), ("layer", "layers")],
)
def test_an_unknown_key_names_the_nearest_first(word: str, first: str) -> None:
    """One to three near keys, the nearest first; without any, a few examples and not the list."""
    with pytest.raises(UserInputError, match=f"unknown key '{word}'; nearest: {first}") as caught:
        parse_pins([f"{word}=2"], [])
    assert str(caught.value).count(",") <= 2
    with pytest.raises(UserInputError, match="for example tp, pp, gpus") as caught:
        parse_pins(["foo=2"], [])
    assert str(caught.value).count(",") <= 5


@pytest.mark.parametrize("word", ["parameters=70e9", "params=70B", "size=70B"])
def test_a_size_is_no_pin(word: str) -> None:
    """Who pins the number of parameters is told how to ask for a size."""
    with pytest.raises(UserInputError, match=r"outcome, not a dimension.*--arch.*--why-not 70B"):
        parse_pins([word], [])


def test_no_pins_allow_everything() -> None:
    """An empty set of pins limits nothing."""
    assert Pins().allows("tp", 8)
    assert Pins().bounds("tp") is None
    assert not Pins().names("tp")
