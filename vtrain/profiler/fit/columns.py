"""Rows of a profile as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vtrain.profiler.rows import Row

    Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Products:
    """Measured products C[m, n] = A[m, k] B[k, n], arrays [rows].

    Attributes:
        m: rows of the output; n: its columns; k: summed elements.
        seconds: measured time.
        layout: TN forward, NN input gradient, NT weight gradient.
    """

    m: Array
    n: Array
    k: Array
    seconds: Array
    layout: NDArray[np.str_]

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.m.size)

    @property
    def flops(self) -> Array:
        """2 m n k."""
        return 2.0 * self.m * self.n * self.k

    @property
    def shape_groups(self) -> NDArray[np.intp]:
        """Number of each row's shape: the layouts of one shape are held out together."""
        keys = np.stack([self.m, self.n, self.k], axis=1)
        return np.unique(keys, axis=0, return_inverse=True)[1].ravel().astype(np.intp)

    def of(self, *layouts: str) -> Products:
        """Return the rows of some layouts."""
        return self.at(np.flatnonzero(np.isin(self.layout, layouts)))

    def at(self, rows: NDArray[np.intp]) -> Products:
        """Return some rows."""
        return Products(
            m=self.m[rows], n=self.n[rows], k=self.k[rows], seconds=self.seconds[rows],
            layout=self.layout[rows],
        )  # fmt: skip


def products(rows: Sequence[Row]) -> Products:
    """Return gemm.csv as arrays; batched rows (batch > 1) are left out."""
    kept = [row for row in rows if row.get("batch", "1") in ("", "1", "1.0")]
    return Products(
        m=numbers(kept, "m"), n=numbers(kept, "n"), k=numbers(kept, "k"),
        seconds=numbers(kept, "time_us") * 1e-6,
        layout=np.array([row.get("layout", "TN") or "TN" for row in kept], dtype=np.str_),
    )  # fmt: skip


def attention_columns(rows: Sequence[Row], direction: str) -> tuple[dict[str, Array], Array]:
    """Return the columns of the attention forms, and seconds, of one direction of attention.csv."""
    kept = [row for row in rows if row["pass"] == direction]
    table = {name: numbers(kept, name) for name in ("batch", "heads", "seq_q", "seq_kv")}
    # Latent attention names two sizes, 192/128: their mean carries the work.
    sizes = [[float(part) for part in row["head_dim"].split("/")] for row in kept]
    table["head_dim"] = np.array([float(np.mean(pair)) for pair in sizes])
    table["causal"] = np.array([float(row["causal"] in ("True", "true", "1")) for row in kept])
    table["with_forward"] = np.zeros(len(kept))
    return table, numbers(kept, "time_us") * 1e-6


def numbers(rows: Sequence[Row], column: str) -> Array:
    """Return one column as float64."""
    return np.array([float(row[column]) for row in rows], dtype=np.float64)
