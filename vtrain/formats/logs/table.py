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


def looks_like_table(text: str) -> bool:
    """Return whether the first line is a header that names a time or a rate."""
    return bool(set(_header(text)) & set(_RATES))


def read_table(text: str, label: str = "the table") -> tuple[list[Iteration], int]:
    """Read a CSV of steps.

    Raises:
        UserInputError: no column tells how fast a step was.
    """
    names = _header(text)
    if not set(names) & set(_RATES):
        raise UserInputError(
            f"{label} has no column that tells how fast a step was",
            hint=f"one of {', '.join(_RATES)}",
        )
    known = {item.name for item in fields(Iteration)} - {"run", "skipped"}
    out: list[Iteration] = []
    damaged = 0
    rows = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    next(rows)
    for order, cells in enumerate(row for row in rows if any(cell.strip() for cell in row)):
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
    return out, damaged


def _header(text: str) -> list[str]:
    first = next((line for line in text.lstrip("\ufeff").splitlines() if line.strip()), "")
    cells = next(csv.reader([first]), [])
    return [_NAMES.get(cell.strip().lower(), cell.strip().lower()) for cell in cells]
