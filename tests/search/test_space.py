"""The outer space holds valid architectures only, and all that the user left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vtrain_search.pins import Pins, parse_pins
from vtrain_search.space import outer_space, parameters_non_embedding

from vtrain.architecture import default_architecture
from vtrain.errors import UserInputError

SPACE = outer_space(Pins(), vocab_size=128_256)


def test_every_default_width_has_four_or_eight_key_value_heads() -> None:
    """No width of the default space leaves a divisor that tensor parallelism cannot use."""
    for width in SPACE.hidden_size:
        point = SPACE.point(hidden_size=float(width), layers=32.0)
        assert SPACE.is_valid(point)
        assert point.num_key_value_heads in (4, 8)


@given(st.integers(1, 128), st.integers(4, 256))
def test_vectorised_parameters_equal_the_architecture(width: int, layers: int) -> None:
    """The coarse scan counts the same parameters as the exact count."""
    point = SPACE.point(hidden_size=512.0 * width, layers=float(layers))
    count = parameters_non_embedding(*(point[i] for i in range(5)))
    assert float(count) == SPACE.architecture(point).parameters_non_embedding


def test_pins_cut_the_space() -> None:
    """Fixed and ranged dimensions leave exactly the allowed values."""
    pins = parse_pins(["layers=64"], ["hidden_size=4096..6144"])
    space = outer_space(pins, vocab_size=128_256)
    assert space.layers == (64,)
    assert space.hidden_size == (4096, 4608, 5120, 5632, 6144)
    assert [axis.name for axis in space.axes()] == ["hidden_size"]
    assert space.size == 5


def test_ffn_and_key_value_heads_become_axes_when_asked() -> None:
    """Feed-forward ratio and key-value heads are searched only where the user opens them."""
    pins = parse_pins([], ["ffn_ratio=2..4", "num_key_value_heads=2..16"])
    space = outer_space(pins, vocab_size=32_000)
    assert {"ffn_ratio", "num_key_value_heads"} <= {axis.name for axis in space.axes()}
    point = space.point(hidden_size=4096.0, layers=32.0, ffn_ratio=3.0, num_key_value_heads=16.0)
    assert point.ffn_hidden_size == 12_288
    assert point.num_key_value_heads == 16


def test_an_odd_pinned_width_is_kept_or_refused() -> None:
    """A width that the head size divides is taken as it is; another is refused with the nearest."""
    space = outer_space(parse_pins(["hidden_size=9472"], []), vocab_size=32_000)
    assert space.is_valid(space.point(hidden_size=9472.0, layers=8.0))
    with pytest.raises(UserInputError, match="nearest valid: hidden_size=5120"):
        outer_space(parse_pins(["hidden_size=5100"], []), vocab_size=32_000)


def test_a_fixed_model_is_the_whole_space() -> None:
    """With --arch there is one point, and a pin that contradicts it is refused."""
    model = default_architecture(hidden_size=2048, num_layers=24)
    space = outer_space(Pins(), vocab_size=1, fixed=model)
    assert space.axes() == ()
    assert space.architecture(space.point()) is model
    with pytest.raises(UserInputError, match="layers=24"):
        outer_space(parse_pins(["layers=32"], []), vocab_size=1, fixed=model)
