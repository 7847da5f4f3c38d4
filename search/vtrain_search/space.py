"""The outer space: which architectures the search may choose from."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.architecture import Architecture, default_architecture, default_ffn_hidden_size
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vtrain_search.pins import Pins

WIDTH_STEP = 128
"""Widths are multiples of the head size; 128 is also the tile edge of every GPU we know."""
HEADS_STEP = 4
"""The default block has 8 or 4 key-value heads, so its query heads come in fours. Other counts
would leave a divisor of them, down to 1 for a prime, and with it no tensor parallelism."""
MIN_PARAMETERS = 50e6
"""Below 50M parameters no law has data (design defaults, "sanity")."""
_MAX_WIDTH = 65_536
_DEPTHS = (4, 256)
_FFN_RATIO_STEP = 0.125


class Point(NamedTuple):
    """One architecture of the outer space, in canonical order: the tie-break compares it."""

    hidden_size: int
    layers: int
    ffn_hidden_size: int
    num_key_value_heads: int
    head_dim: int


class Axis(NamedTuple):
    """One free dimension of the sampler: a name and its ordered values."""

    name: str
    values: tuple[float, ...]

    def nearest(self, value: float) -> int:
        """Return the position of the value closest to this one, on a log scale."""
        logs = np.log(np.array(self.values))
        return int(np.argmin(np.abs(logs - np.log(value))))


@dataclass(frozen=True, kw_only=True, slots=True)
class OuterSpace:
    """Ordered values of every outer dimension; a dimension of one value is not searched.

    Attributes:
        hidden_size: widths.
        layers: depths.
        ffn_ratio: feed-forward over model width; empty follows `default_ffn_hidden_size`.
        ffn_hidden_size: feed-forward width; empty follows the ratio.
        num_key_value_heads: key-value heads; empty takes 8, or 4 below a width of 4,096 and where
            8 does not divide the query heads.
        head_dim: head sizes.
        vocab_size: vocabulary of every architecture.
        fixed: the only architecture there is (`--arch`); the rest is then ignored.
    """

    hidden_size: tuple[int, ...]
    layers: tuple[int, ...]
    vocab_size: int
    ffn_ratio: tuple[float, ...] = ()
    ffn_hidden_size: tuple[int, ...] = ()
    num_key_value_heads: tuple[int, ...] = ()
    head_dim: tuple[int, ...] = (128,)
    fixed: Architecture | None = None

    def axes(self) -> tuple[Axis, ...]:
        """Return the dimensions with more than one value, in the sampler's order."""
        if self.fixed is not None:
            return ()
        names = (
            "hidden_size", "layers", "ffn_ratio", "ffn_hidden_size", "num_key_value_heads",
            "head_dim",
        )  # fmt: skip
        found = (Axis(name, tuple(getattr(self, name))) for name in names)
        return tuple(axis for axis in found if len(axis.values) > 1)

    @property
    def size(self) -> int:
        """Number of outer points, before validity."""
        return int(np.prod([len(axis.values) for axis in self.axes()], dtype=float))

    def point(self, **chosen: float) -> Point:
        """Return the architecture nearest to the chosen values; what is not chosen is default.

        Args:
            chosen: values by axis name; need not be members of the axes.
        """
        if self.fixed is not None:
            a = self.fixed
            return Point(
                a.hidden_size, a.num_layers, a.ffn_hidden_size, a.num_key_value_heads, a.head_dim
            )
        head_dim = int(_member(self.head_dim, chosen.get("head_dim", 128)))
        width = _member(self.hidden_size, chosen.get("hidden_size", self.hidden_size[0]))
        hidden = max(1, round(width / head_dim)) * head_dim
        layers = int(_member(self.layers, chosen.get("layers", self.layers[0])))
        heads = hidden // head_dim
        if self.ffn_hidden_size:
            default = default_ffn_hidden_size(hidden)
            ffn = int(_member(self.ffn_hidden_size, chosen.get("ffn_hidden_size", default)))
        elif self.ffn_ratio:
            ratio = _member(self.ffn_ratio, chosen.get("ffn_ratio", 8.0 / 3.0))
            ffn = max(1, round(ratio * hidden / 256)) * 256
        else:
            ffn = default_ffn_hidden_size(hidden)
        kv = 8 if hidden >= 4096 and heads % 8 == 0 else 4
        if heads % kv:
            # A width the user pinned: as many as divide its heads.
            kv = max(d for d in range(1, 9) if heads % d == 0)
        if self.num_key_value_heads:
            # `is_valid` drops widths that the wanted key-value heads do not divide.
            kv = int(_member(self.num_key_value_heads, chosen.get("num_key_value_heads", kv)))
        return Point(hidden, layers, ffn, kv, head_dim)

    def is_valid(self, point: Point) -> bool:
        """Return whether an architecture exists and is large enough to have a predicted loss."""
        if self.fixed is not None:
            return True
        heads = point.hidden_size // point.head_dim
        if point.hidden_size % point.head_dim or heads % point.num_key_value_heads:
            return False
        return self.architecture(point).parameters >= MIN_PARAMETERS

    def architecture(self, point: Point) -> Architecture:
        """Return the model of a point."""
        if self.fixed is not None:
            return self.fixed
        return default_architecture(
            hidden_size=point.hidden_size,
            num_layers=point.layers,
            vocab_size=self.vocab_size,
            head_dim=point.head_dim,
            num_key_value_heads=point.num_key_value_heads,
            ffn_hidden_size=point.ffn_hidden_size,
        )


def _member(values: tuple[float, ...], wanted: float) -> float:
    """Return the value nearest to a wanted one, the smaller of two equally near; they ascend."""
    at = bisect_left(values, wanted)
    near = values[max(0, at - 1) : at + 1]
    return min(near, key=lambda v: (abs(v - wanted), v))


def outer_space(pins: Pins, *, vocab_size: int, fixed: Architecture | None = None) -> OuterSpace:
    """Build the whole outer space that the user's limits leave.

    Raises:
        UserInputError: when a limit leaves no architecture, or contradicts a fixed model.
    """
    if fixed is not None:
        for key, own in (
            ("hidden_size", fixed.hidden_size), ("layers", fixed.num_layers),
            ("head_dim", fixed.head_dim), ("ffn_hidden_size", fixed.ffn_hidden_size),
            ("num_key_value_heads", fixed.num_key_value_heads),
        ):  # fmt: skip
            if not pins.allows(key, own):
                raise UserInputError(
                    f"the model of --arch has {key}={own}, which the pinned {key} excludes",
                    hint="drop one of the two",
                )
    head_dim = tuple(int(v) for v in _values(pins, "head_dim", (64, 80, 96, 128, 160, 192, 256)))
    if not pins.names("head_dim"):
        head_dim = (128,)
    step = WIDTH_STEP
    if not pins.names("num_key_value_heads") and len(head_dim) == 1:
        step = HEADS_STEP * head_dim[0]
    widths = _values(pins, "hidden_size", range(step, _MAX_WIDTH + 1, step))
    if len(head_dim) == 1 and (odd := [w for w in widths if w % head_dim[0]]):
        near = max(1, round(odd[0] / head_dim[0])) * head_dim[0]
        raise UserInputError(
            f"hidden_size={odd[0]:g} must be a multiple of head_dim={head_dim[0]}",
            hint=f"nearest valid: hidden_size={near}",
        )
    ratios: tuple[float, ...] = ()
    if pins.names("ffn_ratio"):
        low, high = pins.bounds("ffn_ratio") or (1.0, 8.0)
        count = int((high - low) / _FFN_RATIO_STEP + 1e-9)
        given = pins.exact.get("ffn_ratio")
        ratios = (
            tuple(sorted(float(v) for v in given))
            if given
            else tuple(low + i * _FFN_RATIO_STEP for i in range(count + 1))
        )
    ffn: tuple[int, ...] = ()
    if pins.names("ffn_hidden_size"):
        ffn = tuple(int(v) for v in _values(pins, "ffn_hidden_size", range(256, 300_000, 256)))
    kv: tuple[int, ...] = ()
    if pins.names("num_key_value_heads"):
        kv = tuple(int(v) for v in _values(pins, "num_key_value_heads", (1, 2, 4, 8, 16, 32, 64)))
    return OuterSpace(
        hidden_size=tuple(int(w) for w in widths),
        layers=tuple(int(v) for v in _values(pins, "layers", range(_DEPTHS[0], _DEPTHS[1] + 1))),
        vocab_size=vocab_size,
        ffn_ratio=ratios,
        ffn_hidden_size=ffn,
        num_key_value_heads=kv,
        head_dim=head_dim,
        fixed=fixed,
    )


def _values(pins: Pins, key: str, offered: range | tuple[int, ...]) -> tuple[float, ...]:
    """Return the offered values that obey the limits; exact values need not be offered."""
    if key in pins.exact:
        return tuple(sorted(float(v) for v in pins.exact[key]))
    found = tuple(float(v) for v in offered if pins.allows(key, v))
    if not found:
        low, high = pins.ranges[key]
        near = min(offered, key=lambda v: min(abs(v - low), abs(v - high)))
        raise UserInputError(
            f"--range {key}={low:g}..{high:g} holds no valid value",
            hint=f"nearest valid: {key}={near}",
        )
    return found


def parameters_non_embedding(
    hidden_size: ArrayLike,
    layers: ArrayLike,
    ffn_hidden_size: ArrayLike,
    num_key_value_heads: ArrayLike,
    head_dim: ArrayLike,
) -> NDArray[np.float64]:
    """Return parameters outside the embeddings of the search's block, as broadcast arrays.

    The same count as `Architecture.parameters_non_embedding` of `default_architecture`; the coarse
    scan needs it for tens of thousands of shapes at a time.
    """
    h = np.asarray(hidden_size, dtype=np.float64)
    attention = 2.0 * h * (h + np.asarray(num_key_value_heads) * np.asarray(head_dim))
    feed_forward = 3.0 * h * np.asarray(ffn_hidden_size)
    return np.asarray(np.asarray(layers) * (attention + feed_forward + 2.0 * h) + h)
