"""Which boundaries of a pipeline leave the NVLink domain."""

from __future__ import annotations

import numpy as np
import pytest

from vtrain.architecture import default_architecture
from vtrain.schedule.boundaries import far_boundaries, pipeline_shapes


@pytest.mark.parametrize(
    ("ranks", "stride", "far"),
    [
        (4, 8, [1, 1, 1, 1]),
        (4, 2, [0, 0, 0, 0]),
        (8, 2, [0, 0, 0, 1, 0, 0, 0, 1]),
        (4, 4, [0, 1, 0, 1]),
        (3, 4, [0, 1, 1]),
        (1, 8, [0]),
    ],
)
def test_steps_between_nodes_of_eight(ranks: int, stride: int, far: list[int]) -> None:
    """A step is far where the next stage starts a new node; the last entry leads back to rank 0."""
    assert far_boundaries(8, ranks, stride).astype(int).tolist() == far


def test_a_stage_that_straddles_a_domain_makes_the_step_far() -> None:
    """Stages of three GPUs on nodes of four: all but the first sit on two nodes."""
    assert far_boundaries(4, 4, 3).tolist() == [True, True, True, True]


def test_shapes_agree_with_counting() -> None:
    """Counts of far steps follow from the boundaries, for every degree and stride."""
    architecture = default_architecture(hidden_size=1024, num_layers=48)
    pairs = [(pp, stride) for pp in (1, 2, 3, 4, 6, 8, 16, 48) for stride in (1, 2, 4, 8, 64)]
    pp, stride = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    shape = pipeline_shapes(architecture, "even", 8, pp, stride)
    for row, (ranks, distance) in enumerate(pairs):
        far = far_boundaries(8, ranks, distance).astype(int)
        assert shape.far[row] == far[:-1].sum()
        inner = far[:-2] + far[1:-1] if ranks > 2 else np.zeros(1)
        assert shape.inner_far[row] == inner.sum()
        assert shape.pace_far[row] == inner.max()
        behind = int(shape.behind[row])
        assert shape.behind_layers[row] == behind * 48 / ranks
