"""vtrain's own files: a design (best.toml, a row of --json) and a model TOML."""

from __future__ import annotations

from typing import Any

from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.formats.imported import Imported, StackHints, labelled


def holds_design(data: dict[str, Any]) -> bool:
    """Return whether a parsed file is a design, a row, or a document of rows."""
    if isinstance(data.get("design"), dict) or isinstance(data.get("rows"), list):
        return True
    return {"tp", "dp", "layers"} <= set(data) or {"tp", "dp", "num_layers"} <= set(data)


def read_design_data(data: dict[str, Any], path: str, *, row: int = 1) -> Imported:
    """Read a parsed best.toml, row, or document of `vtrain-search --json`.

    Args:
        data: the parsed file.
        path: what errors call it.
        row: which row of a document, counted from 1 (one row a budget).

    Raises:
        UserInputError: when there is no such row, or it is not a whole design.
    """
    notes: list[str] = []
    rows = data.get("rows")
    if isinstance(rows, list):
        if not rows:
            raise UserInputError(f"{path}: the document holds no row")
        if not 1 <= row <= len(rows):
            raise UserInputError(
                f"{path}: there is no row {row}",
                hint=f"nearest valid: {min(max(row, 1), len(rows))}",
            )
        data = rows[row - 1]
        if not isinstance(data, dict):
            raise UserInputError(f"{path}: row {row} is no table of keys")
        if len(rows) > 1:
            notes.append(f"row {row} of {len(rows)} is taken (budget {data.get('budget', '?')})")
    if isinstance(data.get("design"), dict):
        data = data["design"]
    with labelled(path):
        design = Design.from_row(data)
    known = set(design.to_row()) | {"num_layers", "steps"}
    return Imported(
        source="vtrain design",
        path=path,
        architecture=design.architecture,
        plan=design.plan,
        seq_length=design.seq_length,
        tokens=design.tokens,
        gpus=design.plan.gpus,
        cluster=design.cluster,
        stack=StackHints(name=design.stack),
        ignored_fields=tuple(key for key in data if key not in known),
        notes=tuple(notes),
    )


def read_model_file(path: str) -> Imported:
    """Read a model TOML.

    Raises:
        UserInputError: unknown field or a shape that cannot exist.
    """
    from vtrain.models import load_model

    model = load_model(path)
    return Imported(
        source="vtrain model",
        path=path,
        architecture=model.architecture,
        seq_length=model.seq_length,
        longest_sequence=model.seq_length,
    )
