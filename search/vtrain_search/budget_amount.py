"""One amount of dollars, GPU-hours, FLOPs or GPUs-for-a-time: the value and its spellings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from vtrain.errors import UserInputError
from vtrain.units import (
    MULTIPLIERS,
    NUMBER_PATTERN,
    format_count,
    format_duration,
    format_usd,
    multiplier,
    number_value,
    parse_duration_s,
)

KINDS = ("usd", "gpu_hours", "flop", "gpus_for")
SPELLINGS = "1e6usd, '$1M', 2Mgpuh, 512xH100x30d or 1e24flop"

# Words for units, by which a following word of the command line is joined as well.
USD = r"(?:US)?\$|USD|dollars?"
GPU_HOURS = r"GPU[\s\-*]*(?:h(?:(?:ou)?rs?)?)"
FLOP = r"(?:model\s+)?FLOPs?"

_FLOP_MULTIPLIERS = {**MULTIPLIERS, "G": 1e9, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24}
_LEAST_FLOP = 1e15  # below this nobody means FLOPs: some milliseconds of one accelerator
_CURRENCIES = r"EUR|GBP|JPY|CNY|RMB|CHF|CAD|AUD|INR|KRW|SEK|NOK|DKK|SGD|euros?|pounds?|yen|[€£¥₩₹]"
_AMOUNT = re.compile(
    rf"(?P<lead>(?i:US\$|\$|USD))?\s*(?P<number>{NUMBER_PATTERN})\s*"
    rf"(?P<suffix>[A-Za-z]{{0,2}}?)\s*"
    rf"(?:(?P<usd>(?i:{USD}))|(?P<gpuh>(?i:{GPU_HOURS}))|(?P<flop>(?i:{FLOP})))?"
)
_GPUS_FOR = re.compile(
    r"(?P<count>\d[\d,_]*)\s*[xX]\s*(?P<gpu>[A-Za-z][\w.\-]*?)\s*[xX]\s*(?P<time>\d.*)"
)
# What a shell leaves of dollars: $1M -> M, $1e6 -> e6, $1,000,000 -> ,000,000, $10M -> 0M.
_SHELL_LEFTOVER = re.compile(r"[kKMBT]|[eE]\d+|[,._]\d[\d,._]*[kKMBT]?|0+[kKMBT]?|")


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """One limit on spending, with whatever else its text or file settled.

    Attributes:
        kind: one of KINDS.
        amount: dollars, GPU-hours or model FLOPs by kind; GPU-hours for gpus_for.
        text: what the user wrote; no part of equality.
        cluster: name or alias of the cluster it is for, where it says.
        max_gpus: GPUs at most, where it says.
        deadline_s: seconds of wall time at most, where it says.
        price_usd_per_gpu_hour: price, where a file says.
        source: the file or ready-made name it was read from.
    """

    kind: str
    amount: float
    text: str = field(default="", compare=False)
    cluster: str | None = None
    max_gpus: int | None = None
    deadline_s: float | None = None
    price_usd_per_gpu_hour: float | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that buy nothing.

        Raises:
            UserInputError: naming the rule.
        """
        if self.kind not in KINDS:
            raise UserInputError(f"kind={self.kind!r} is not known", hint=f"one of {KINDS}")
        if not (0.0 < self.amount < math.inf):
            raise UserInputError(f"a budget must be finite and above zero, got {self.amount!r}")
        if self.kind == "gpus_for" and not (self.cluster and self.max_gpus and self.deadline_s):
            raise UserInputError("a budget of GPUs for a time needs all three of them")

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours at most, where the budget is in GPU-hours."""
        return self.amount if self.kind in ("gpu_hours", "gpus_for") else None

    @property
    def usd(self) -> float | None:
        """Dollars at most, where the budget is in dollars."""
        return self.amount if self.kind == "usd" else None

    @property
    def flop(self) -> float | None:
        """Model FLOPs at most, where the budget is in FLOPs."""
        return self.amount if self.kind == "flop" else None

    @property
    def label(self) -> str:
        """Short form for a table: `$1.00M`, `2.00M GPU-h`, `512 x H100 x 30.0 d`."""
        if self.kind == "usd":
            return format_usd(self.amount)
        if self.kind == "flop":
            return f"{self.amount:.3g} FLOP"
        if self.kind == "gpus_for":
            duration = format_duration(self.deadline_s or 0.0)
            return f"{self.max_gpus} x {self.cluster} x {duration}"
        return f"{format_count(self.amount)} GPU-h"


def parse_amount(word: str, *, text: str | None = None) -> Budget:
    """Read one budget that is an amount, not a file or a range.

    Args:
        word: without surrounding blanks.
        text: the original, kept with the result.
    """
    text = word if text is None else text
    if _SHELL_LEFTOVER.fullmatch(word):
        raise UserInputError(
            f"cannot read budget {text!r}: no number with a unit; a shell turns $1M into M",
            hint="quote dollars in single quotes, e.g. --budget '$1M', or write 1e6usd",
        )
    gpus_for = _GPUS_FOR.fullmatch(word)
    if gpus_for is not None:
        return _gpus_for(gpus_for, text)
    match = _AMOUNT.fullmatch(word)
    if match is None or (match["lead"] and (match["usd"] or match["gpuh"] or match["flop"])):
        raise _unreadable(word, text)
    number, suffix = match["number"], match["suffix"]
    flop = match["flop"] is not None
    kind = "flop" if flop else "gpu_hours" if match["gpuh"] else "usd"
    unit = {"flop": "flop", "gpu_hours": "gpuh", "usd": "usd"}[kind]
    if not (match["lead"] or match["usd"] or match["gpuh"] or flop):
        size = suffix if suffix in MULTIPLIERS else suffix.upper()
        if size and size not in MULTIPLIERS:
            raise _unreadable(word, text)
        value = number_value(number) * MULTIPLIERS.get(size, 1.0)
        raise UserInputError(
            f"budget {text!r} has no unit",
            hint=f"nearest valid: {number}{size}usd or '${number}{size}' (in single quotes, or the "
            f"shell eats the $), {number}{size}gpuh"
            + (f", {number}{size}flop" if value >= _LEAST_FLOP else ""),
        )
    if suffix == "m":
        raise UserInputError(
            f"m in budget {text!r} can mean thousandths or millions",
            hint=f"nearest valid: {number}M{unit}",
        )
    factor = multiplier(
        suffix, context=word, multipliers=_FLOP_MULTIPLIERS if flop else MULTIPLIERS
    )
    amount = number_value(number) * factor
    if amount == 0.0:
        raise UserInputError(f"budget {text!r} is zero", hint=f"nearest valid: 1{unit}")
    if not math.isfinite(amount):
        raise UserInputError(f"budget {text!r} is not finite", hint=f"write {SPELLINGS}")
    return Budget(kind=kind, amount=amount, text=text)


def _gpus_for(match: re.Match[str], text: str) -> Budget:
    count = int(match["count"].replace(",", "").replace("_", ""))
    if count < 1:
        raise UserInputError(f"budget {text!r} has no GPUs", hint="nearest valid: 1 GPU or more")
    deadline_s = parse_duration_s(match["time"])
    return Budget(
        kind="gpus_for",
        amount=count * deadline_s / 3600.0,
        text=text,
        cluster=match["gpu"],
        max_gpus=count,
        deadline_s=deadline_s,
    )


def _unreadable(word: str, text: str) -> UserInputError:
    """Say what is wrong with a text that is no budget, as narrowly as can be told."""
    if re.match(r"^\s*-|\$\s*-", word):
        positive = re.sub(r"-", "", word, count=1).strip()
        return UserInputError(f"budget {text!r} is negative", hint=f"nearest valid: {positive}")
    if re.search(r"(?i:\b(?:nan|inf(?:inity)?)(?![a-z])|\b(?:nan|inf)(?:usd|gpu|flop))", word):
        return UserInputError(f"budget {text!r} is not finite", hint=f"write {SPELLINGS}")
    currency = re.search(rf"(?i:{_CURRENCIES})", word)
    digits = re.search(rf"({NUMBER_PATTERN})\s*([kKMBT]?)", word)
    if currency and digits:
        return UserInputError(
            f"budget {text!r} is in {currency[0]}: only US dollars are understood",
            hint=f"convert it, then write e.g. {digits[1]}{digits[2]}usd",
        )
    if re.search(r"(?i:flops?\s*/\s*s|flop/s|flops?-?(?:days?|years?))", word):
        return UserInputError(
            f"budget {text!r} is a rate, not an amount", hint="write model FLOPs, e.g. 1e24flop"
        )
    spoken = re.search(rf"({NUMBER_PATTERN})\s*(thousand|million|billion)s?\s*(\D*)", word)
    if spoken:
        size = {"thousand": "k", "million": "M", "billion": "B"}[spoken[2]]
        unit = spoken[3].strip() or "usd"
        return UserInputError(
            f"cannot read budget {text!r}", hint=f"nearest valid: {spoken[1]}{size}{unit}"
        )
    if digits and re.fullmatch(r"(?i:.*gpus?)", word):
        return UserInputError(
            f"budget {text!r} is neither GPU-hours nor GPUs for a time",
            hint=f"nearest valid: {digits[1]}{digits[2]}gpuh or {digits[1]}xH100x30d",
        )
    partial = re.fullmatch(r"(\d[\d,_]*)\s*[xX]\s*([A-Za-z][\w.\-]*)", word)
    if partial:
        return UserInputError(
            f"budget {text!r} has no duration",
            hint=f"nearest valid: {partial[1]}x{partial[2]}x30d",
        )
    hours = re.fullmatch(rf"({NUMBER_PATTERN})\s*([kKMBT]?)\s*(\w+)-?\s*h(?:(?:ou)?rs?)?", word)
    if hours:
        return UserInputError(
            f"cannot read budget {text!r}",
            hint=f"nearest valid: {hours[1]}{hours[2]}gpuh with --cluster {hours[3].rstrip('-')}",
        )
    return UserInputError(f"cannot read budget {text!r}", hint=f"write {SPELLINGS}")
