"""Reads the parameter draws that ship with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from .base import Draws
from .designs import FloatArray


@cache
def read_columns(file_name: str) -> tuple[dict[str, FloatArray], str]:
    """Return the columns of a shipped CSV file and its provenance (first comment line)."""
    text = (files(__package__) / "data" / file_name).read_text(encoding="utf-8")
    lines = text.splitlines()
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    body = [line for line in lines if line and not line.startswith("#")]
    names = body[0].split(",")
    table = np.array([line.split(",") for line in body[1:]], dtype=np.float64)
    columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
    for column in columns.values():
        column.flags.writeable = False  # the cache hands the same arrays to every caller
    return columns, comments[0] if comments else ""


def recentred(file_name: str, centre: dict[str, float]) -> Draws:
    """Return shipped scatter (draw minus own point estimate) moved to another centre.

    The file holds deviations from the point estimate of the very fit that was bootstrapped. A
    published law is a slightly different optimum of the same data, on the same ridge of nearly
    collinear coefficients, so the deviations are added to the published values.

    Args:
        file_name: name of a file under data/.
        centre: published value of each column.
    """
    deviations, provenance = read_columns(file_name)
    columns = {name: value + deviations[name] for name, value in centre.items()}
    return Draws(columns=columns, provenance=f"{provenance}, added to the published coefficients")
