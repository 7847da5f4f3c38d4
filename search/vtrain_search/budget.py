"""What a team may spend: the budget grammar, and what a budget file says.

Grammar (each NUMBER as in `vtrain.units`, with suffix k, M, B, T):

    1e6usd  $250k  usd 250k          dollars
    2Mgpuh  2M gpu-hours             GPU-hours
    512xH100x30d                     at most so many of that GPU for at most so long
    1e24flop                         model FLOPs, forward and backward
    1e4usd..1e7usd:13                13 budgets in geometric steps
    lab-1m  path/to/budget.toml      a ready-made budget, or your own file

Money without a currency, and sizes with two readings, are refused: a planner that takes `5m usd`
for 5,000 dollars when 5 million were meant is worse than none.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError, unknown_name
from vtrain.units import NUMBER_PATTERN
from vtrain_search.budget_amount import FLOP, GPU_HOURS, SPELLINGS, USD, Budget, parse_amount
from vtrain_search.budget_files import is_budget_file, read_budget, ready_made_budgets

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Budget", "canonical", "join_units", "parse_budget", "parse_budgets"]

MAX_RANGE = 1000

_RANGE = re.compile(r"(?P<low>.+?)\s*\.\.\s*(?P<high>[^:]+?)\s*(?::\s*(?P<count>.*))?")
_UNIT_WORD = re.compile(rf"[kMBT]?\s*(?i:{USD}|{GPU_HOURS}|{FLOP})")


def parse_budget(text: str) -> Budget:
    """Read one budget.

    Args:
        text: a spelling of the grammar above, the name of a ready-made budget, or a TOML file.

    Raises:
        UserInputError: with the nearest valid spelling.
    """
    word = text.strip()
    if is_budget_file(word):
        return read_budget(word)
    if ".." in word:
        raise UserInputError(f"{text!r} is a range, but one budget is needed here")
    if re.fullmatch(r"[A-Za-z]+(?:-[\w]+)+", word):
        raise unknown_name("budget", word, ready_made_budgets())
    return parse_amount(word, text=text)


def parse_budgets(words: Sequence[str]) -> list[Budget]:
    """Read all budgets of a command line.

    A word that is only a unit is joined to the one before (`2M gpu-hours` unquoted), and a range
    becomes its members.

    Args:
        words: what the user wrote, in order.

    Raises:
        UserInputError: for the first that cannot be read, or when there is none.
    """
    budgets: list[Budget] = []
    for word in join_units(words):
        match = _RANGE.fullmatch(word.strip())
        if match and not is_budget_file(word.strip()):
            budgets.extend(_range(match, word))
        else:
            budgets.append(parse_budget(word))
    if not budgets:
        raise UserInputError("no budget given", hint=f"write {SPELLINGS}")
    return budgets


def join_units(words: Sequence[str]) -> list[str]:
    """Join words that are only a unit to the number before: 2M, gpu-hours -> 2M gpu-hours.

    Also serves a whole command line, because no option or its value reads like a unit alone.
    """
    joined: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        # Two words first: `2M gpu hours`.
        for width in (2, 1):
            following = " ".join(words[position + 1 : position + 1 + width])
            is_number = re.fullmatch(rf"{NUMBER_PATTERN}\s*[A-Za-z]?", word.split("=")[-1])
            if is_number and following and _UNIT_WORD.fullmatch(following):
                word = f"{word} {following}"
                position += len(words[position + 1 : position + 1 + width])
                break
        joined.append(word)
        position += 1
    return joined


def _range(match: re.Match[str], text: str) -> list[Budget]:
    low_text, high_text, count_text = match["low"], match["high"], match["count"]
    low, high = _range_end(low_text, high_text), _range_end(high_text, high_text)
    if count_text is None or not re.fullmatch(r"\d+", count_text.strip()):
        raise UserInputError(
            f"range {text!r} needs the number of budgets",
            hint=f"nearest valid: {low_text}..{high_text}:7",
        )
    count = int(count_text)
    if not 2 <= count <= MAX_RANGE:
        near = min(max(count, 2), MAX_RANGE)
        raise UserInputError(
            f"range {text!r} must have 2 to {MAX_RANGE} budgets",
            hint=f"nearest valid: {low_text}..{high_text}:{near}",
        )
    if low.kind != high.kind or low.kind == "gpus_for":
        raise UserInputError(
            f"both ends of range {text!r} must be dollars, GPU-hours or FLOPs alike",
            hint="e.g. 1e4usd..1e7usd:13",
        )
    if low.amount >= high.amount:
        raise UserInputError(
            f"range {text!r} must rise",
            hint=f"nearest valid: {high_text}..{low_text}:{count}",
        )
    ratio = math.log(high.amount / low.amount) / (count - 1)
    # Six digits: short enough to type again, and below what any answer can tell apart.
    inner = [float(f"{low.amount * math.exp(ratio * i):.6g}") for i in range(1, count - 1)]
    amounts = [low.amount, *inner, high.amount]
    return [Budget(kind=low.kind, amount=a, text=f"{text} [{i}]") for i, a in enumerate(amounts)]


def _range_end(text: str, high_text: str) -> Budget:
    if re.fullmatch(rf"{NUMBER_PATTERN}\s*[A-Za-z]?", text):
        unit = re.sub(rf"^{NUMBER_PATTERN}\s*[kKMBT]?", "", high_text) or "usd"
        raise UserInputError(
            f"{text!r} has no unit", hint=f"both ends of a range need one, e.g. {text}{unit}"
        )
    return parse_amount(text)


def canonical(budget: Budget) -> str:
    """Return the text that reads back as the same budget, whatever spelling it came from."""
    if budget.source is not None:
        return budget.source
    if budget.kind == "gpus_for":
        return f"{budget.max_gpus}x{budget.cluster}x{_duration(budget.deadline_s or 0.0)}"
    unit = {"usd": "usd", "gpu_hours": "gpuh", "flop": "flop"}[budget.kind]
    return f"{_number(budget.amount)}{unit}"


def _number(value: float) -> str:
    return str(int(value)) if value == math.floor(value) and value < 1e15 else repr(value)


def _duration(seconds: float) -> str:
    days = seconds / 86400.0
    if days >= 1.0 and days * 86400.0 == seconds and days == math.floor(days):
        return f"{days:.0f}d"
    return f"{_number(seconds)}s"
