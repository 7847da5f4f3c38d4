"""Text to quantities and back: numbers, durations, prices, bytes; nothing is guessed.

One base unit inside (seconds, bytes, USD, GPU-hours); text is converted only at the rim. A
spelling with two readings is refused with the nearest one that has a single reading.
"""

from __future__ import annotations

import math
import re

from vtrain.errors import UserInputError

GIB = 1024.0**3

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)?(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER_PATTERN = rf"(?=[\d.]){_DIGITS}"
"""A positive number without suffix: 1e6, 1_000_000, 1,000,000, 2.5."""

MULTIPLIERS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SPOKEN = {"m": "M", "b": "B", "t": "T", "g": "B", "G": "B", "bn": "B", "mn": "M", "mm": "M"}

_NUMBER = re.compile(rf"(?P<number>{NUMBER_PATTERN})\s*(?P<suffix>[A-Za-z]*)")
_DURATION_PART = re.compile(rf"(?P<number>{NUMBER_PATTERN})\s*(?P<unit>[A-Za-z]+)\s*")
_SECONDS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
_CALENDAR = {
    "mo": 30, "month": 30, "months": 30, "y": 365, "yr": 365, "year": 365, "years": 365,
}  # fmt: skip
_BYTES = {
    "b": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 1024.0, "mib": 1024.0**2, "gib": GIB, "tib": 1024.0**4,
}  # fmt: skip
_PER_GPU_HOUR = r"(?:/|\s*per\s*)\s*(?:gpu)?[\s\-/]*h(?:(?:ou)?rs?)?"
_PRICE = re.compile(
    rf"(?P<lead>(?:us)?\$|usd)?\s*(?P<number>{NUMBER_PATTERN})\s*(?P<tail>(?:us)?\$|usd)?"
    rf"\s*(?:{_PER_GPU_HOUR})?",
    re.IGNORECASE,
)


def number_value(text: str) -> float:
    """Return the value of text that matches NUMBER_PATTERN."""
    return float(text.replace(",", "").replace("_", ""))


def multiplier(suffix: str, *, context: str, multipliers: dict[str, float] = MULTIPLIERS) -> float:
    """Return what a size suffix multiplies by; "" is 1.

    Args:
        suffix: k, K, M, B or T (a caller may allow others).
        context: the text it stands in, for the message.
        multipliers: suffix to factor.

    Raises:
        UserInputError: for a suffix with two readings (m: milli or million) or none.
    """
    if not suffix:
        return 1.0
    if suffix in multipliers:
        return multipliers[suffix]
    near = _SPOKEN.get(suffix) or _SPOKEN.get(suffix.lower())
    if near in multipliers:
        raise UserInputError(
            f"suffix {suffix!r} in {context!r} can be read in two ways",
            hint=f"nearest valid: {near} for {multipliers[near]:.0e}",
        )
    raise UserInputError(
        f"unknown suffix {suffix!r} in {context!r}", hint=f"one of {', '.join(multipliers)}"
    )


def parse_number(text: str, *, what: str = "number") -> float:
    """Read a positive number: `1e6`, `1_000_000`, `1,000,000`, `2.5k`, `7B`.

    Args:
        text: what the user wrote.
        what: name of the quantity, for the message.

    Raises:
        UserInputError: when it is not a finite number above zero.
    """
    word = text.strip()
    match = _NUMBER.fullmatch(word)
    if match is None:
        raise UserInputError(f"{what} must be a number above zero, got {text!r}", hint="e.g. 1e6")
    value = number_value(match["number"]) * multiplier(match["suffix"], context=word)
    if not (0.0 < value < math.inf):
        raise UserInputError(f"{what} must be finite and above zero, got {text!r}")
    return value


def parse_count(text: str, *, what: str = "count") -> int:
    """Read a whole number of at least 1, with the spellings of `parse_number`.

    Raises:
        UserInputError: when it is not whole.
    """
    value = parse_number(text, what=what)
    if value != math.floor(value):
        near = max(1, round(value))
        raise UserInputError(
            f"{what} must be a whole number, got {text!r}", hint=f"nearest valid: {near}"
        )
    return int(value)


def parse_duration_s(text: str) -> float:
    """Read a duration in seconds: `30d`, `12h`, `2h30m`, `1 hour`, `90min`, `2 weeks`.

    `m` means minutes only after hours or days, where it cannot be months; alone it is refused.

    Raises:
        UserInputError: for no unit, calendar units, zero or anything else.
    """
    word = text.strip()
    position, seconds, coarser = 0, 0.0, math.inf
    while position < len(word):
        match = _DURATION_PART.match(word, position)
        if match is None:
            raise _duration_error(text)
        unit = match["unit"].lower()
        number = number_value(match["number"])
        if unit == "m" and coarser < math.inf:
            size = 60.0
        elif unit == "m":
            raise UserInputError(
                f"{text!r} can mean minutes or months",
                hint=f"nearest valid: {match['number']}min or {30 * number:g}d",
            )
        elif unit in _CALENDAR:
            raise UserInputError(
                f"{unit!r} in {text!r} has no fixed length",
                hint=f"nearest valid: {_CALENDAR[unit] * number:g}d",
            )
        elif unit in _SECONDS:
            size = _SECONDS[unit]
        else:
            raise _duration_error(text)
        if size >= coarser:
            raise _duration_error(text)
        seconds, coarser, position = seconds + number * size, size, match.end()
    if not (0.0 < seconds < math.inf):
        raise _duration_error(text)
    return seconds


def _duration_error(text: str) -> UserInputError:
    bare = re.fullmatch(NUMBER_PATTERN, text.strip())
    if bare and number_value(text.strip()) > 0.0:
        hint = f"nearest valid: {text.strip()}d"
    else:
        hint = "write 30d, 12h, 2h30m or 90min"
    return UserInputError(f"cannot read {text!r} as a duration above zero", hint=hint)


def parse_price_usd_per_gpu_hour(text: str) -> float:
    """Read a price: `3.00`, `$3`, `2.10usd/gpu-h`, `2.1 usd per GPU-hour`, `$2.10/h`.

    Raises:
        UserInputError: for zero, negatives, other currencies and anything else.
    """
    word = text.strip()
    match = _PRICE.fullmatch(word)
    value = number_value(match["number"]) if match else math.nan
    if match is None or (match["lead"] and match["tail"]) or not (0.0 < value < math.inf):
        hint = "write 2.10usd/gpu-h or 2.10"
        if match is not None and value == 0.0:
            hint = "for machines that cost nothing give a GPU-hour budget, e.g. 2Mgpuh"
        raise UserInputError(
            f"cannot read {text!r} as a price in USD per GPU-hour above zero", hint=hint
        )
    return value


def parse_bytes(text: str) -> float:
    """Read an amount of memory in bytes: `80GiB`, `80 GB`, `512MiB`.

    Raises:
        UserInputError: for a missing or unknown unit.
    """
    match = _NUMBER.fullmatch(text.strip())
    size = _BYTES.get(match["suffix"].lower()) if match else None
    value = number_value(match["number"]) if match else math.nan
    if size is None or not (0.0 < value < math.inf):
        raise UserInputError(
            f"cannot read {text!r} as an amount of memory", hint="write 80GiB or 80GB"
        )
    return value * size


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return value in the largest unit it fills once rounded to three digits."""
    for size, name in steps:
        if abs(value) >= 0.9995 * size:
            return value / size, name
    return value / steps[-1][0], steps[-1][1]


def _three_digits(value: float) -> str:
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{decimals}f}"


def format_usd(value_usd: float) -> str:
    """Return dollars for a table: `$1.00M`, `$250k`, `$0.42`."""
    scaled, name = _scaled(value_usd, ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")))
    return f"${_three_digits(scaled)}{name}" if scaled >= 0 else f"-${_three_digits(-scaled)}{name}"


def format_count(value: float) -> str:
    """Return a count for a table: `70.6B`, `1.50T`, `512`."""
    if abs(value) < 1e3 and value == math.floor(value):
        return f"{value:.0f}"
    scaled, name = _scaled(value, ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")))
    return f"{_three_digits(scaled)}{name}"


def format_duration(seconds: float) -> str:
    """Return a duration for a table: `30.0 d`, `12.5 h`, `4.20 s`, `310 ms`."""
    if seconds >= 86400.0:
        return f"{seconds / 86400.0:,.1f} d"
    steps = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    scaled, name = _scaled(seconds, steps)
    return f"{_three_digits(scaled)} {name}"


def format_bytes(size_bytes: float) -> str:
    """Return memory for a table, in binary units: `58.8 GiB`, `512 MiB`."""
    steps = ((1024.0**4, "TiB"), (GIB, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
    scaled, name = _scaled(size_bytes, steps)
    return f"{_three_digits(scaled)} {name}"
