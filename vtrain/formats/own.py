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


def read_design_data(data: dict[str, Any], path: str) -> Imported:
    """Read a parsed best.toml, row, or document of `vtrain-search --json`.

    Args:
        data: the parsed file.
        path: what errors call it.

    Raises:
        UserInputError: when there is no row, or it is not a whole design.
    """
    notes: list[str] = []
    rows = data.get("rows")
    if isinstance(rows, list):
        if not rows or not isinstance(rows[0], dict):
            raise UserInputError(f"{path}: the document holds no row")
        if len(rows) > 1:
            notes.append(f"row 1 of {len(rows)} is taken (budget {rows[0].get('budget', '?')})")
        data = rows[0]
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
    )
