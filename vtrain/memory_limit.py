"""How much of a device a plan may allocate: the default, and what a user may ask for instead."""

from __future__ import annotations

import re
from decimal import Decimal

from vtrain.errors import UserInputError

SHARE_FITS = 0.90
"""Design default: allocated peak over what the context leaves."""
LEAST_SHARE = 0.3
"""Smaller limits are slips (0.085 for 0.85): states and context alone take more."""

_SHARE = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)\s*(?P<percent>%?)")


def parse_memory_limit(value: str | float | None) -> float:
    """Read the largest share of what the context leaves that the allocated peak may take.

    Args:
        value: `0.85`, `85%`, a number; None or "" is the default.

    Returns:
        A share, LEAST_SHARE to 1.

    Raises:
        UserInputError: for anything else, with the nearest valid share.
    """
    if value is None or value == "":
        return SHARE_FITS
    match = _SHARE.fullmatch(str(value).strip())
    if match is None:
        raise _refusal(value, "for example 0.85 or 85%")
    # Decimal, so that 86.3% is the same float as 0.863.
    number = Decimal(match["number"])
    share = float(number / 100 if match["percent"] else number)
    if LEAST_SHARE <= share <= 1.0:
        return share
    # 85 means 85 %.
    meant = share / 100.0 if not match["percent"] and share >= 100.0 * LEAST_SHARE else share
    raise _refusal(value, f"nearest valid: {min(max(meant, LEAST_SHARE), 1.0):g}")


def format_share(share: float) -> str:
    """Return a share in percent: `90 %`."""
    return f"{100.0 * share:.10g} %"


def _refusal(value: str | float, hint: str) -> UserInputError:
    return UserInputError(
        f"memory limit {value} must be a share, {LEAST_SHARE:g} to 1, of what the context leaves",
        hint=hint,
    )
