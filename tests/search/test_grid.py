"""GPU counts and batch cells tile what a team can rent and run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vtrain_search.grid import cell_batch, cell_of, gpu_counts, smooth_numbers
from vtrain_search.pins import Pins, parse_pins

from vtrain.errors import UserInputError
from vtrain.presets import load_cluster

H100 = load_cluster("h100")


def test_smooth_numbers_are_complete() -> None:
    """Exactly the numbers with no prime factor above 7, ascending."""

    def smooth(n: int) -> bool:
        for p in (2, 3, 5, 7):
            while n % p == 0:
                n //= p
        return n == 1

    assert smooth_numbers(1024).tolist() == [n for n in range(1, 1025) if smooth(n)]


def test_gpu_counts_are_whole_nodes_within_the_limit() -> None:
    """Whole nodes only, at most the limit, the pinned count taken as it is."""
    counts = gpu_counts(H100, max_gpus=1000, pins=Pins())
    assert counts[0] == 8
    assert counts[-1] == 1000
    assert not np.any(counts % 8)
    assert gpu_counts(H100, max_gpus=8192, pins=parse_pins(["gpus=88"], [])).tolist() == [88]
    with pytest.raises(UserInputError, match="nearest valid: gpus=16"):
        gpu_counts(H100, max_gpus=8192, pins=parse_pins(["gpus=12"], []))
    with pytest.raises(UserInputError, match="less than one node"):
        gpu_counts(H100, max_gpus=4, pins=Pins())


@given(st.integers(1, 1 << 20))
def test_cells_tile_the_batches(batch: int) -> None:
    """Each batch lies in one cell, within an eighth of an octave of its middle."""
    cell = int(cell_of(batch))
    assert abs(np.log2(batch) - cell / 4) <= 0.125 + 1e-12
    assert abs(np.log2(float(cell_batch(cell)) / 2 ** (cell / 4))) < 0.6
