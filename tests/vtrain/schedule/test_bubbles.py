"""Published formulas of bubbles, on pipelines of equal ranks."""

from __future__ import annotations

import numpy as np
import pytest

from vtrain.schedule import make_schedule
from vtrain.schedule.pipeline import PipelineLoad, RoundLoad, WeightLoad, pipeline_seconds
from vtrain.simulation.play import TaskTimes, play


def task_times(ranks: int, chunks: int, *seconds: float) -> TaskTimes:
    """Equal tasks: forward, backward, weight gradient; no sends."""
    none = np.zeros((ranks, chunks))
    return TaskTimes(
        seconds=np.stack([np.full((ranks, chunks), s / chunks) for s in seconds]),
        forward_flight_s=none,
        backward_flight_s=none,
        first_wait_s=np.zeros(ranks),
        first_flight_s=np.zeros(ranks),
        last_flight_s=np.zeros(ranks),
    )


def bubble(name: str, ranks: int, chunks: int, micro_batches: int, *seconds: float) -> float:
    """Played seconds beyond the work of one rank, over that work."""
    schedule = make_schedule(name, ranks=ranks, chunks=chunks, micro_batches=micro_batches)
    played = play(schedule, task_times(ranks, chunks, *seconds), skip=False)
    work = micro_batches * sum(seconds)
    return float(played.finish_s.max()) / work - 1.0


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (4, 8), (8, 8), (8, 64), (5, 3)])
def test_bubble_of_1f1b_and_gpipe(name: str, ranks: int, micro_batches: int) -> None:
    """(p - 1) / m (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    expected = (ranks - 1) / micro_batches
    assert bubble(name, ranks, 1, micro_batches, 1.0, 2.0, 0.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ranks", "chunks", "groups"), [(2, 2, 1), (4, 2, 2), (4, 6, 1), (8, 3, 4)]
)
def test_bubble_of_interleaving(ranks: int, chunks: int, groups: int) -> None:
    """(p - 1) / (v m) (the same section)."""
    micro_batches = ranks * groups
    expected = (ranks - 1) / (chunks * micro_batches)
    assert bubble("1f1b", ranks, chunks, micro_batches, 1.0, 2.0, 0.0) == pytest.approx(expected)


@pytest.mark.parametrize(("forward", "backward", "weight"), [(1, 1, 1), (1, 1.2, 0.9), (2, 2.5, 1)])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (8, 32)])
def test_bubble_of_zero_bubble_h1(
    forward: float, backward: float, weight: float, ranks: int, micro_batches: int
) -> None:
    """(p - 1)(T_F + T_B - T_W) (Qi et al. 2023, arXiv 2401.10241, table 2)."""
    work = micro_batches * (forward + backward + weight)
    expected = (ranks - 1) * (forward + backward - weight) / work
    seen = bubble("zb-h1", ranks, 1, micro_batches, forward, backward, weight)
    assert seen == pytest.approx(expected)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_closed_form_of_equal_ranks(name: str, chunks: int) -> None:
    """The closed form of equal ranks without traffic is what is played."""
    if chunks > 1 and name != "1f1b":
        pytest.skip("only 1F1B interleaves")
    ranks, forward, backward, weight = 6, 1.0, 1.3, 0.7
    whole = backward + weight

    def column(value: float) -> np.ndarray:
        return np.array([value])

    load = PipelineLoad(
        *(column(value) for value in (forward, whole) * 3),
        inner_total_s=column((ranks - 2) * (forward + whole)),
        behind_s=column(0.0),
        behind=column(0.0),
        drain_s=column(0.0),
        rounds=RoundLoad(
            *(column(value / chunks) for value in (forward, whole) * 2), column(0.0), column(0.0)
        ),
        weights=WeightLoad(*[column(weight)] * 3) if name == "zb-h1" else None,
    )
    for micro_batches in (6, 12, 60):
        closed = pipeline_seconds(
            name,
            load,
            pp=column(ranks),
            virtual_stages=column(chunks),
            num_micro_batches=column(micro_batches),
        )
        split = (forward, backward, weight) if name == "zb-h1" else (forward, whole, 0.0)
        schedule = make_schedule(name, ranks=ranks, chunks=chunks, micro_batches=micro_batches)
        played = play(schedule, task_times(ranks, chunks, *split), skip=False)
        assert closed[0] == pytest.approx(played.finish_s.max(), rel=1e-12)
