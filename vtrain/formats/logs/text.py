"""Pieces that the readers of logs share."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from vtrain.formats.logs.model import Iteration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ABBREVIATED = re.compile(rf"(?P<number>{NUMBER})\s*(?P<unit>[KMGBT]?)")
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def lines_of(text: str) -> Iterator[str]:
    """Yield lines without colours, whatever ends them; a progress bar's return ends one too."""
    for line in re.split(r"\r\n|\n|\r", text):
        clean = _COLOUR.sub("", line).rstrip()
        if clean:
            yield clean


def number(text: str | None) -> float | None:
    """Return a finite number, thousands separators allowed, or None."""
    if text is None:
        return None
    try:
        value = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: str | None) -> int | None:
    """Return a whole number or None."""
    value = number(text)
    return int(value) if value is not None and value == math.floor(value) else None


def abbreviated(text: str | None) -> float | None:
    """Return the value of `1.3M`, `34.5K`, `12G` or a plain number, or None."""
    match = _ABBREVIATED.fullmatch(text.strip()) if text is not None else None
    if match is None:
        return None
    value = number(match["number"])
    return None if value is None else value * _TIMES[match["unit"]]


def fields_of(line: str) -> dict[str, str]:
    """Split `name: value | name: value |` into a dictionary, names in lower case."""
    out = {}
    for part in line.split("|"):
        name, colon, value = part.rpartition(":")
        if colon:
            out[name.strip().lower()] = value.strip()
    return out


def count_runs(iterations: Iterable[Iteration]) -> tuple[list[Iteration], int]:
    """Number the starts of the job, and drop lines that repeat the one before.

    Several ranks may print the same step one after another; a step number that falls, or comes
    again later, means that the job was restarted from a checkpoint.

    Returns:
        Iterations with their run, and how many were dropped.
    """
    out: list[Iteration] = []
    run = dropped = 0
    repeated: set[int] = set()
    for line in iterations:
        # A rank that lags by a step repeats what its fellows have said more than once before.
        lags = out and line.number == out[-1].number - 1 and line.number in repeated
        if out and (line.number == out[-1].number or lags):
            repeated.add(line.number)
            dropped += 1
            continue
        if out and line.number < out[-1].number:
            run += 1
            repeated.clear()
        out.append(_with_run(line, run))
    return out, dropped


def _with_run(line: Iteration, run: int) -> Iteration:
    from dataclasses import replace

    return replace(line, run=run) if run else line


def collect(
    text: str, begins: re.Pattern[str], read: Callable[[str], Iteration | None]
) -> tuple[list[Iteration], int]:
    """Read every line that begins like an iteration.

    Args:
        text: the log.
        begins: found in lines that are meant to be iterations.
        read: turns such a line into an iteration, None where it is damaged.

    Returns:
        The iterations, and how many such lines could not be read.
    """
    out: list[Iteration] = []
    damaged = 0
    for line in lines_of(text):
        if not begins.search(line):
            continue
        found = read(line)
        if found is None:
            damaged += 1
        else:
            out.append(found)
    return out, damaged
