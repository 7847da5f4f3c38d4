"""Read a design from the files the search writes."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from vtrain.errors import UserInputError


def read_design_row(name: str) -> dict[str, Any]:
    """Read the design of a best.toml, of a JSON row, or of the first row of a JSON document.

    `Design.from_row` makes a design of it; `mem_limit_share` says under which limit it was found.

    Args:
        name: a file, or "-" for standard input (JSON).

    Raises:
        UserInputError: when the file cannot be read or holds no design.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserInputError(f"cannot read {name}: {reason}") from None
    try:
        data: Any = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserInputError(f"{name} is neither TOML (.toml) nor JSON: {error}") from None
    if isinstance(data, dict) and isinstance(data.get("rows"), list):
        data = data["rows"]
    if isinstance(data, list):
        if not data:
            raise UserInputError(f"{name} holds no row")
        data = data[0]
    if isinstance(data, dict) and isinstance(data.get("design"), dict):
        data = data["design"]
    if not isinstance(data, dict):
        raise UserInputError(
            f"{name} holds no design", hint="a table of keys such as tp and layers"
        )
    return data
