"""What Python hands over, checked as the command line checks its words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path
from typing import Any

from vtrain.errors import UserInputError


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number; NumPy's count, truth values and text do not.

    Raises:
        UserInputError: for anything else, and below `least`.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise UserInputError(
            f"{name} must be a whole number of at least {least}, got {value!r}",
            hint=_as_number(value, least),
        )
    return number


def optional_whole(name: str, value: Any, *, least: int = 1) -> int | None:
    """Return a whole number or None; errors as `whole`."""
    return None if value is None else whole(name, value, least=least)


def wholes(name: str, values: Any) -> tuple[int, ...]:
    """Return one whole number or several, at least one; errors as `whole`."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    found = tuple(whole(name, value) for value in several)
    if not found:
        raise UserInputError(f"{name} needs at least one value")
    return found


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return a word that is one of several.

    Raises:
        UserInputError: for anything else.
    """
    if not isinstance(value, str) or value not in choices:
        raise UserInputError(f"{name} {value!r} is not known", hint=f"one of {', '.join(choices)}")
    return value


def some_of(name: str, values: Any, choices: Sequence[str]) -> tuple[str, ...]:
    """Return one word or several of some choices, at least one; errors as `one_of`."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    found = tuple(one_of(name, value, choices) for value in several)
    if not found:
        raise UserInputError(f"{name} needs at least one value", hint=f"of {', '.join(choices)}")
    return found


def named(name: str, value: Any, *kinds: type) -> None:
    """Refuse what is neither a name or file nor a value of some kinds.

    Raises:
        UserInputError: saying what it may be.
    """
    if not isinstance(value, (str, Path, *kinds)):
        may_be = " or ".join(["a name", "a file", *(kind.__name__ for kind in kinds)])
        raise UserInputError(f"{name} must be {may_be}, got {value!r}")


def positive(name: str, value: Any) -> float | None:
    """Return a finite number above zero, or None.

    Raises:
        UserInputError: for anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not is_number(value) or not 0.0 < value < math.inf:
        raise UserInputError(
            f"{name} must be a number above zero, got {value!r}", hint=_as_number(value, 0)
        )
    return float(value)


def is_number(value: Any) -> bool:
    """Tell numbers, NumPy's too, from text and collections."""
    return hasattr(value, "__float__") and not hasattr(value, "__len__")


def _as_number(value: Any, least: int) -> str | None:
    """Return how the same value is written as a number, where it is one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or number < least:
        return None
    near = int(number) if number == int(number) else number if least == 0 else round(number)
    return f"nearest valid: {near}"
