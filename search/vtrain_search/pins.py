"""What the user pinned: `--fix key=value` and `--range key=a..b`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE, SCHEDULES, SHARDING
from vtrain.units import parse_number

Value = int | float | str | bool

ARCHITECTURE_KEYS = (
    "hidden_size", "layers", "head_dim", "num_key_value_heads", "ffn_hidden_size", "ffn_ratio",
)  # fmt: skip
PLAN_KEYS = (
    "gpus", "global_batch_size", "tp", "cp", "pp", "dp", "virtual_stages", "micro_batch_size",
    "recompute", "sharding", "sequence_parallel", "schedule",
)  # fmt: skip
RUN_KEYS = ("tokens", "tokens_per_parameter")
KEYS = ARCHITECTURE_KEYS + PLAN_KEYS + RUN_KEYS

_CHOICES: Mapping[str, tuple[Value, ...]] = {
    "recompute": RECOMPUTE,
    "sharding": SHARDING,
    "schedule": SCHEDULES,
    "sequence_parallel": (True, False),
}
_ALIASES = {
    "width": "hidden_size", "depth": "layers", "num_layers": "layers", "ffn": "ffn_hidden_size",
    "kv_heads": "num_key_value_heads", "batch": "global_batch_size", "gbs": "global_batch_size",
    "mbs": "micro_batch_size", "micro_batch": "micro_batch_size", "vpp": "virtual_stages",
}  # fmt: skip
_SIZES = ("parameters", "parameter", "params", "param", "size", "model_size", "n_params")
_USUAL = ("tp", "pp", "gpus", "global_batch_size", "layers", "hidden_size")
_RANGE = re.compile(r"(?P<low>[^.]+(?:\.\d+)?)\.\.(?P<high>.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pins:
    """Limits the user put on single dimensions; everything else is searched.

    Attributes:
        exact: allowed values by key, at least one.
        ranges: inclusive (low, high) by key.
    """

    exact: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a key that is both fixed and ranged.

        Raises:
            UserInputError: naming the key.
        """
        for key in self.exact:
            if key in self.ranges:
                raise UserInputError(f"{key} is both fixed and ranged", hint="use one of the two")
        if {"ffn_hidden_size", "ffn_ratio"} <= {*self.exact, *self.ranges}:
            raise UserInputError("ffn_hidden_size and ffn_ratio pin the same thing")
        if set(RUN_KEYS) <= set(self.exact):
            raise UserInputError("tokens and tokens_per_parameter pin the same thing")

    def names(self, key: str) -> bool:
        """Return whether the user limited this dimension."""
        return key in self.exact or key in self.ranges

    def one(self, key: str) -> Value | None:
        """Return the single value of a fixed key, else None."""
        values = self.exact.get(key, ())
        return values[0] if len(values) == 1 else None

    def allows(self, key: str, value: Value) -> bool:
        """Return whether a value obeys the limits on its dimension."""
        if key in self.exact:
            return value in self.exact[key]
        if key in self.ranges and not isinstance(value, str):
            low, high = self.ranges[key]
            return low <= value <= high
        return True

    def bounds(self, key: str) -> tuple[float, float] | None:
        """Return the smallest and largest value allowed, None where nothing was said."""
        if key in self.ranges:
            return self.ranges[key]
        numbers = [float(v) for v in self.exact.get(key, ()) if not isinstance(v, str)]
        return (min(numbers), max(numbers)) if numbers else None


def parse_pins(fixed: Iterable[str], ranged: Iterable[str]) -> Pins:
    """Read the words of `--fix` and `--range`.

    Args:
        fixed: words such as `tp=8`, `micro_batch_size=1,2`, `tokens=2e12`.
        ranged: words such as `hidden_size=4096..8192`.

    Raises:
        UserInputError: unknown key, unreadable value, or an empty range.
    """
    exact: dict[str, tuple[Value, ...]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for word in fixed:
        key, text = _split("--fix", word, "tp=8")
        values = tuple(_value(key, item) for item in text.split(","))
        if exact.setdefault(key, values) != values:
            raise UserInputError(f"--fix {key} is given twice with different values")
    for word in ranged:
        key, text = _split("--range", word, "hidden_size=4096..8192")
        match = _RANGE.fullmatch(text)
        if match is None or key in _CHOICES or key in RUN_KEYS:
            raise UserInputError(
                f"--range {word!r} is not a range of numbers",
                hint=f"--fix {key}=..." if key in _CHOICES or key in RUN_KEYS else
                "spell it like hidden_size=4096..8192",
            )  # fmt: skip
        low, high = (parse_number(match[side], what=key) for side in ("low", "high"))
        if low > high:
            raise UserInputError(
                f"--range {key}={text}: the low end exceeds the high end",
                hint=f"nearest valid: {key}={match['high']}..{match['low']}",
            )
        ranges[key] = (low, high)
    return Pins(exact=exact, ranges=ranges)


def _split(option: str, word: str, example: str) -> tuple[str, str]:
    key, sign, text = word.partition("=")
    key = key.strip().replace("-", "_").lower()
    key = _ALIASES.get(key, key)
    if not sign or not text.strip():
        raise UserInputError(f"{option} {word!r} must be key=value", hint=f"for example {example}")
    if key in _SIZES:
        raise UserInputError(
            f"{option}: the number of parameters is an outcome, not a dimension",
            hint="limit it with --range layers=A..B and --range hidden_size=A..B, give a model "
            "with --arch, or ask what a size costs with --why-not 70B",
        )
    if key not in KEYS:
        near = get_close_matches(key, [*KEYS, *_ALIASES], n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else f"for example {', '.join(_USUAL)}"
        raise UserInputError(f"{option}: unknown key {key!r}", hint=hint)
    return key, text.strip()


def _value(key: str, text: str) -> Value:
    text = text.strip()
    if key == "sequence_parallel":
        words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
        if text.lower() not in words:
            raise UserInputError(f"--fix {key}={text}: neither on nor off", hint="one of on, off")
        return words[text.lower()]
    if key in _CHOICES:
        if text not in _CHOICES[key]:
            raise UserInputError(
                f"--fix {key}={text} is not known",
                hint=f"one of {', '.join(str(c) for c in _CHOICES[key])}",
            )
        return text
    number = parse_number(text, what=key)
    if key in ("ffn_ratio", "tokens_per_parameter"):
        return number
    if number != int(number):
        raise UserInputError(
            f"--fix {key}={text} must be a whole number", hint=f"nearest valid: {round(number)}"
        )
    return int(number)
