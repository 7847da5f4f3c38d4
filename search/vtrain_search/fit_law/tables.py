"""Reads the published measurements that the shipped draws and the tests are fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .additive import Points

Table = Mapping[str, NDArray[np.generic]]

CHINCHILLA_DROPPED = 5
"""Points left out: the lowest tokens/parameter, far off the trend (as Besiroglu et al. 2024)."""


def read_table(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the columns of a CSV file with a header."""
    import pandas as pd

    frame = pd.read_csv(path)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def column(table: Table, name: str) -> NDArray[np.float64]:
    """Return a column as floats."""
    return np.asarray(table[name], dtype=np.float64)


def chinchilla_points(table: Table, *, dropped: int) -> Points:
    """Return the digitised Chinchilla points less the `dropped` lowest tokens/parameter."""
    parameters, tokens = column(table, "params"), column(table, "tokens")
    keep = np.sort(np.argsort(tokens / parameters)[dropped:])
    return Points(
        ln_n=np.log(parameters[keep]),
        ln_d=np.log(tokens[keep]),
        ln_loss=np.log(column(table, "loss")[keep]),
    )
