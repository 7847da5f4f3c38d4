"""Reads a team's pilot runs from a CSV file and refuses what cannot be meant."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vtrain.errors import UserInputError

from .robust import FloatArray

REQUIRED = ("params", "tokens", "loss")
OPTIONAL = ("width", "depth", "batch_tokens")
_HEADER_HINT = "columns are params,tokens,loss[,width,depth,batch_tokens]"
_THOUSANDS = re.compile(r"^[+-]?\d{1,3}([,' _\u202f\u00a0]\d{3})+(\.\d*)?$")
_SUFFIX = re.compile(r"^[+-]?[\d.]+\s*[kKmMbBgGtT]$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pilots:
    """Pilot runs, one entry a row [rows]; losses in nats a token."""

    rows: tuple[int, ...]
    """Number of each run in the file, the first after the header being 1."""
    parameters: FloatArray
    tokens: FloatArray
    loss: FloatArray
    width: FloatArray | None = None
    depth: FloatArray | None = None
    batch_tokens: FloatArray | None = None

    def keep(self, mask: FloatArray | np.ndarray) -> Pilots:
        """Return the runs where the mask is true."""
        chosen = np.flatnonzero(mask)

        def part(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else values[chosen]

        return Pilots(
            rows=tuple(self.rows[i] for i in chosen),
            parameters=self.parameters[chosen],
            tokens=self.tokens[chosen],
            loss=self.loss[chosen],
            width=part(self.width),
            depth=part(self.depth),
            batch_tokens=part(self.batch_tokens),
        )


def read_pilots(path: Path) -> Pilots:
    """Return the pilot runs of a CSV file.

    Raises:
        UserInputError: the file cannot be read, a column is missing, or a cell is not a positive
            number; the message names the rows.
    """
    header, records = _records(path)
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise UserInputError(
            f"{path.name} lacks column {', '.join(missing)}; it has {', '.join(header)}",
            hint=_HEADER_HINT,
        )
    if not records:
        raise UserInputError(f"{path.name} holds no runs, only a header")
    long = [i + 1 for i, record in enumerate(records) if len(record) != len(header)]
    if long:
        row = long[0]
        raise UserInputError(
            f"{_rows(long)} of {path.name}: {len(records[row - 1])} values under "
            f"{len(header)} columns",
            hint="write numbers without thousands separators, 7000000000 or 7e9",
        )
    columns = {
        name: _numbers(name, [record[header.index(name)] for record in records])
        for name in REQUIRED + OPTIONAL
        if name in header and not _is_blank(records, header.index(name))
    }
    if ("width" in columns) != ("depth" in columns):
        raise UserInputError(
            f"{path.name} has only one of width and depth", hint="give both or neither"
        )
    _refuse_duplicates(path, columns)
    return Pilots(
        rows=tuple(range(1, len(records) + 1)),
        parameters=columns["params"],
        tokens=columns["tokens"],
        loss=columns["loss"],
        width=columns.get("width"),
        depth=columns.get("depth"),
        batch_tokens=columns.get("batch_tokens"),
    )


def _records(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}", hint=_HEADER_HINT) from None
    except UnicodeDecodeError:
        raise UserInputError(f"{path.name} is not UTF-8 text", hint=_HEADER_HINT) from None
    try:
        lines = [
            line for line in csv.reader(text.splitlines()) if any(cell.strip() for cell in line)
        ]
    except csv.Error as error:
        raise UserInputError(f"{path.name} is not CSV: {error}", hint=_HEADER_HINT) from None
    if not lines:
        raise UserInputError(f"{path.name} is empty", hint=_HEADER_HINT)
    header = [cell.strip().lower() for cell in lines[0]]
    return header, lines[1:]


def _is_blank(records: list[list[str]], index: int) -> bool:
    return all(not record[index].strip() for record in records)


def _numbers(name: str, cells: list[str]) -> FloatArray:
    """Return a column as numbers, or say which rows are wrong and why."""
    values = np.full(len(cells), np.nan)
    for index, cell in enumerate(cells):
        text = cell.strip()
        row = index + 1
        if _THOUSANDS.match(text):
            raise UserInputError(
                f"row {row}: {name} {text!r} has thousands separators",
                hint=f"write {re.sub(r'[^0-9.+-]', '', text)}",
            )
        if _SUFFIX.match(text):
            raise UserInputError(
                f"row {row}: {name} {text!r} has a suffix", hint="write 7e9 for 7 billion"
            )
        try:
            values[index] = float(text.replace("_", "?"))
        except ValueError:
            raise UserInputError(
                f"row {row}: {name} is {text!r}, not a number"
                if text
                else f"row {row}: {name} is empty",
                hint="leave the run out or fill it in",
            ) from None
    for bad, what in (
        (~np.isfinite(values), "not finite (a diverged run?)"),
        (values <= 0, "not positive"),
    ):
        if bad.any():
            found = [int(i) + 1 for i in np.flatnonzero(bad)]
            raise UserInputError(
                f"{_rows(found)}: {name} is {what}: {cells[found[0] - 1].strip()}",
                hint="leave those runs out",
            )
    return values


def _refuse_duplicates(path: Path, columns: dict[str, FloatArray]) -> None:
    """Refuse rows that are equal in every column; seeds of one run differ in loss and are fine."""
    table = np.column_stack(list(columns.values()))
    _, inverse, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts[inverse.reshape(-1)] > 1)
    if repeated.size:
        raise UserInputError(
            f"{_rows([int(i) + 1 for i in repeated])} of {path.name} are duplicates",
            hint="keep one of each; repeats with another seed have another loss",
        )


def _rows(numbers: list[int]) -> str:
    """Return 'row 3' or 'rows 3, 4, 9, 12, 15 and 7 more'."""
    shown = ", ".join(str(n) for n in numbers[:5])
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"
