"""The tables of a profile: CSV files in the column format of published operator tables.

Times are microseconds, sizes bytes. Columns beyond the format (spread, repeats, the time before
normalisation) come last and may be missing in tables from elsewhere.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

from vtrain.errors import UserInputError
from vtrain.files import write_text

Row = dict[str, str]

_MEASURED = ("spread_pct", "repeats", "raw_us")
COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": (
        "gpu", "dtype", "m", "n", "k", "time_us", "tflops", "source", "layout", "batch", "note",
    ),
    "attention": (
        "gpu", "dtype", "pass", "causal", "batch", "heads", "kv_heads", "seq_q", "seq_kv",
        "head_dim", "time_us", "tflops", "kernel", "source",
    ),
    "elementwise": (
        "gpu", "op", "dtype", "pass", "shape", "bytes_est", "time_us", "achieved_gbs", "source",
    ),
    "collectives": (
        "gpu", "system", "nodes", "gpus", "op", "bytes", "time_us", "algbw_gbs", "busbw_gbs",
        "source",
    ),
}  # fmt: skip
"""Columns of each table, as `vtrain fit-devices` reads them."""

KEYS: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "layout", "batch"),
    "attention": ("pass", "causal", "batch", "heads", "kv_heads", "seq_q", "head_dim", "kernel"),
    "elementwise": ("op", "pass", "shape"),
    "collectives": ("nodes", "gpus", "op", "bytes"),
}
"""Columns that name a row: one measured twice is one row."""

_NUMBERS: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "time_us"),
    "attention": ("batch", "heads", "seq_q", "seq_kv", "time_us"),
    "elementwise": ("bytes_est", "time_us"),
    "collectives": ("nodes", "gpus", "bytes", "time_us"),
}


def key_of(table: str, row: dict[str, Any]) -> tuple[str, ...]:
    """Return what names a row among those of its table."""
    return tuple(str(row.get(column, "")) for column in KEYS[table])


def path_of(folder: Path, table: str) -> Path:
    """Return the file of a table."""
    return folder / f"{table}.csv"


def write_rows(folder: Path, table: str, rows: list[Row]) -> None:
    """Write a table whole."""
    extra = _MEASURED if any(name in row for row in rows for name in _MEASURED) else ()
    out = io.StringIO()
    writer = csv.DictWriter(
        out, [*COLUMNS[table], *extra], extrasaction="ignore", restval="", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    write_text(path_of(folder, table), out.getvalue())


def read_rows(path: Path, table: str) -> list[Row]:
    """Read a table; a file that is not there has no rows.

    Args:
        path: the CSV file.
        table: which columns to expect, a key of COLUMNS.

    Raises:
        UserInputError: not readable, columns missing, or a number that is none; names the line.
    """
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserInputError(f"{path} is not UTF-8 text: no table of a profile") from None
    reader = csv.DictReader(io.StringIO(text))
    missing = sorted(set(COLUMNS[table][:-1]) - {"note", "tflops"} - set(reader.fieldnames or ()))
    missing = [name for name in missing if name not in _OPTIONAL]
    if missing:
        raise UserInputError(
            f"{path} lacks the columns {', '.join(missing)}",
            hint=f"a {table} table has {', '.join(COLUMNS[table])}",
        )
    rows = []
    for row in reader:
        _check_numbers(path, table, reader.line_num, row)
        rows.append({key: value or "" for key, value in row.items() if key is not None})
    return rows


_OPTIONAL = ("source", "batch", "note", "achieved_gbs", "algbw_gbs", "busbw_gbs", "tflops")


def _check_numbers(path: Path, table: str, line: int, row: dict[str, Any]) -> None:
    for name in _NUMBERS[table]:
        text = row.get(name) or ""
        if text == "" and (table == "collectives" or name == "bytes_est"):
            # Published plateaus state a bandwidth and no size; a fit leaves such rows out.
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0.0):
            raise UserInputError(
                f"{path}, line {line}: {name} must be a number above zero, got {text!r}",
                hint="the file is damaged; delete the line to leave it out",
            )
