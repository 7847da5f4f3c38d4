"""The coarse scan says where to look."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from vtrain_search.problem import Problem
from vtrain_search.scan import grid_points, scan


@pytest.mark.parametrize("pin", ["tokens_per_parameter=20", "tokens=1e12"])
def test_pinned_tokens_keep_every_affordable_size_in_sight(
    make_problem: Callable[..., Problem], pin: str
) -> None:
    """Where tokens are pinned, the box holds the sizes that 35 % and 60 % MFU afford."""
    problem = make_problem("1e6usd", fixed=(pin,))
    (case,) = problem.cases
    box = {axis.name: axis.values for axis in scan(problem, case, points=16).axes}
    # $1M buy 333,333 H100-hours at $3.00; the dense bf16 peak is 989.4 TFLOP/s.
    flop = 1e6 / 3.0 * 3600.0 * 989.4e12
    sizes = [
        problem.space.architecture(p).parameters
        for p in grid_points(problem, case, share=0.02)
        if p.hidden_size in box["hidden_size"] and p.layers in box["layers"]
    ]
    for mfu in (0.35, 0.60):
        tokens = 1e12 if pin == "tokens=1e12" else None
        # C = 6 N D.
        size = flop * mfu / 6 / tokens if tokens else np.sqrt(flop * mfu / 120)
        assert min(sizes) <= 1.05 * size
        assert max(sizes) >= 0.85 * size
