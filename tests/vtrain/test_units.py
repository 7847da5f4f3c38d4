"""Numbers, durations, prices, bytes: one reading each, or none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.units import (
    format_bytes,
    format_count,
    format_duration,
    format_usd,
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_number,
    parse_price_usd_per_gpu_hour,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6), ("1_000_000", 1e6), ("1,000,000", 1e6), ("2.5k", 2500.0), ("7B", 7e9),
        ("15T", 15e12), (" 42 ", 42.0), (".5", 0.5), ("1E+3", 1000.0), ("3 M", 3e6),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float) -> None:
    """Every spelling of a number has its one value."""
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1,00", "1__0", "-3", "0", "nan", "inf", "1e999", "7b", "5m", "1 2", "3Q"]
)
def test_bad_numbers(text: str) -> None:
    """Zero, negatives, infinities, stray separators and doubtful suffixes are refused."""
    with pytest.raises(UserInputError):
        parse_number(text)


def test_counts_are_whole() -> None:
    """A count is a whole number of at least 1."""
    assert parse_count("8,192") == 8192
    with pytest.raises(UserInputError, match="nearest valid: 2"):
        parse_count("2.2")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 30 * 86400), ("12h", 43200), ("2h30m", 9000), ("1 hour", 3600), ("90min", 5400),
        ("2 weeks", 14 * 86400), ("1d 12h", 129600), ("45s", 45), ("1.5 days", 129600),
        ("1h 30min 5s", 5405), ("1d30m", 88200),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    """Every spelling of a duration has its one value in seconds."""
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("30", "nearest valid: 30d"), ("30m", "nearest valid: 30min or 900d"),
        ("2 months", "nearest valid: 60d"), ("1y", "nearest valid: 365d"), ("", "write 30d"),
        ("0", "write 30d"), ("0.0", "write 30d"),
        ("0d", "write 30d"), ("-3d", "write 30d"), ("2h3h", "write 30d"), ("30m2h", "min or"),
        ("3 fortnights", "write 30d"), ("d", "write 30d"), ("1e400d", "write 30d"),
    ],
)  # fmt: skip
def test_bad_durations(text: str, way_out: str) -> None:
    """Unitless, doubtful, repeated, zero and negative durations are refused with a way out."""
    with pytest.raises(UserInputError, match=way_out):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("3.00", 3.0), ("3", 3.0), ("$3", 3.0), ("2.10usd/gpu-h", 2.10), ("$2.10/h", 2.10),
        ("2.1 USD per GPU-hour", 2.1), ("2.1usd/gpuh", 2.1), ("2.1 usd / GPU hour", 2.1),
        ("$3/GPU/h", 3.0),
    ],
)  # fmt: skip
def test_prices(text: str, price: float) -> None:
    """Every spelling of a price has its one value."""
    assert parse_price_usd_per_gpu_hour(text) == price


@pytest.mark.parametrize("text", ["", "3eur", "-3", "0", "nan", "$3usd", "3usd/day", "cheap"])
def test_bad_prices(text: str) -> None:
    """Free, negative and foreign prices are refused."""
    with pytest.raises(UserInputError, match="USD per GPU-hour"):
        parse_price_usd_per_gpu_hour(text)


def test_bytes() -> None:
    """GB and GiB are told apart, and an amount without unit is refused."""
    assert parse_bytes("80GiB") == 80 * 2**30
    assert parse_bytes("80 GB") == 80e9
    for text in ("80", "80G", "-1GB", "0GB"):
        with pytest.raises(UserInputError, match="80GiB or 80GB"):
            parse_bytes(text)


@given(st.floats(1e-3, 1e15))
def test_printed_money_reads_back_within_its_digits(value: float) -> None:
    """A table shows three digits: the text read back is within half a per cent and a cent."""
    text = format_usd(value).lstrip("$").replace(",", "")
    assert math.isclose(float(text or 0) if text[-1].isdigit() else parse_number(text), value,
                        rel_tol=5.1e-3, abs_tol=5.1e-3)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (format_usd(1e6), "$1.00M"), (format_usd(250e3), "$250k"), (format_usd(999_600), "$1.00M"),
        (format_usd(0.42), "$0.42"), (format_usd(-5e3), "-$5.00k"), (format_usd(0.0), "$0.00"),
        (format_count(70.6e9), "70.6B"), (format_count(1.5e12), "1.50T"),
        (format_count(512), "512"), (format_count(0), "0"), (format_duration(30 * 86400), "30.0 d"),
        (format_duration(9000), "2.50 h"), (format_duration(0.31), "310 ms"),
        (format_bytes(58.8 * 2**30), "58.8 GiB"), (format_bytes(512), "512 B"),
    ],
)  # fmt: skip
def test_tables_show(text: str, shown: str) -> None:
    """Quantities are shown with three digits and a unit."""
    assert text == shown
