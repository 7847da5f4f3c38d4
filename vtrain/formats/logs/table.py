"""A CSV of steps: any of the columns of `Iteration`, `step_time_s` (or `_ms`) among them."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

from vtrain.errors import UserInputError
from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import number, whole

_WHOLE = ("number", "global_batch_size", "consumed_samples")
_NAMES = {
    "iteration": "number", "step": "number", "iter": "number", "batch_size": "global_batch_size",
    "seconds": "step_time_s", "step_time": "step_time_s", "tflops": "tflops_per_gpu",
}  # fmt: skip
_RATES = ("step_time_s", "step_time_ms", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s")
_LONGEST_HEADER = 10_000
EXAMPLE = "a CSV of steps has the header `number,step_time_s` and lines like `1,9.42`"


def looks_like_table(text: str) -> bool:
    """Return whether the first line is a header that names a time or a rate."""
    return bool(set(_header(text)) & set(_RATES))


def has_columns(text: str) -> bool:
    """Return whether text is cells between commas: two lines alike, if not columns we know."""
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()][:2]
    commas = {line.count(",") for line in lines}
    return len(lines) == 2 and len(commas) == 1 and commas != {0}


def read_table(text: str, label: str = "the table") -> tuple[list[Iteration], int]:
    """Read a CSV of steps.

    Raises:
        UserInputError: no column tells how fast a step was.
    """
    names = _header(text)
    if not set(names) & set(_RATES):
        cells = _cells(text)
        bare = cells != [] and all(number(cell) is not None for cell in cells)
        shown = ", ".join(cell[:40] for cell in cells[:8])
        there = "its first line has no names" if bare else f"its columns: {shown or 'none'}"
        raise UserInputError(
            f"{label} has no column that tells how fast a step was ({there})",
            hint=f"one of {', '.join(_RATES)} is needed; {EXAMPLE}",
        )
    known = {item.name for item in fields(Iteration)} - {"run", "skipped"}
    out: list[Iteration] = []
    damaged = 0
    try:
        rows = [
            row
            for row in csv.reader(io.StringIO(text.lstrip("\ufeff")))
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise UserInputError(f"{label} is a damaged CSV: {error}", hint=EXAMPLE) from None
    for order, cells in enumerate(rows[1:]):
        if len(cells) < len(names):
            damaged += 1
            continue
        found: dict[str, float | int | None] = {"number": order}
        for name, cell in zip(names, cells, strict=False):
            if name == "step_time_ms":
                value = number(cell.strip())
                found["step_time_s"] = None if value is None else value * 1e-3
            elif name in known:
                found[name] = whole(cell.strip()) if name in _WHOLE else number(cell.strip())
        if found["number"] is None or not any((found.get(rate) or 0.0) > 0.0 for rate in _RATES):
            damaged += 1
            continue
        out.append(Iteration(**found))  # type: ignore[arg-type]
    if not out:
        there = ", ".join(name for name in names if name in _RATES)
        raise UserInputError(
            f"{label} has no row with a positive number in {there} ({damaged} rows read)",
            hint=EXAMPLE,
        )
    return out, damaged


def _header(text: str) -> list[str]:
    return [_NAMES.get(cell.lower(), cell.lower()) for cell in _cells(text)]


def _cells(text: str) -> list[str]:
    """Return the cells of the first line that has any, as written."""
    first = next((line for line in text.lstrip("\ufeff").splitlines() if line.strip()), "")
    # A line this long is no header, and the csv module refuses it with an error of its own.
    cells = next(csv.reader([first]), []) if len(first) < _LONGEST_HEADER else []
    return [cell.strip() for cell in cells]
