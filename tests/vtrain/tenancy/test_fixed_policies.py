"""Policies without scaling equal schedules computed by hand."""

from __future__ import annotations

import pytest

from .conftest import curve_of, job_of, play

# Four nodes; a needs 4 for 10 s, b 1 for 20 s, c 2 for 5 s, d 3 for 2 s; one step a second a node.
JOBS = [
    job_of("a", steps=40, arrival=0.0, gpus=4),
    job_of("b", steps=20, arrival=1.0, gpus=1),
    job_of("c", steps=10, arrival=2.0, gpus=2),
    job_of("d", steps=6, arrival=3.0, gpus=3),
]


def ends(policy, jobs=JOBS, nodes=4):
    curve = curve_of({n: float(n) for n in range(1, nodes + 1)}, nodes=nodes)
    outcome = play(jobs, [curve] * len(jobs), policy=policy, nodes=nodes)
    return [state.finished for state in outcome.states]


def test_fifo_equals_the_schedule_by_hand():
    """a 0-10; b and c start at 10 (30, 15); d waits for c, since nobody overtakes: 15-17."""
    assert ends("fifo") == pytest.approx([10.0, 30.0, 15.0, 17.0])


def test_fifo_head_blocks_later_jobs():
    """A large job at the head keeps a small one waiting though a node is free."""
    jobs = [
        job_of("a", steps=30, gpus=3),
        job_of("b", steps=20, arrival=1.0, gpus=2),
        job_of("c", steps=1, arrival=2.0, gpus=1),
    ]
    assert ends("fifo", jobs) == pytest.approx([10.0, 20.0, 11.0])


def test_fifo_priority_goes_first():
    """Of two waiting jobs the one of higher priority starts, whoever came first."""
    from dataclasses import replace

    jobs = [
        job_of("a", steps=40, gpus=4),
        job_of("b", steps=40, arrival=1.0, gpus=4),
        replace(job_of("c", steps=40, arrival=2.0, gpus=4), priority=1),
    ]
    assert ends("fifo", jobs) == pytest.approx([10.0, 30.0, 20.0])


def test_srtf_equals_the_schedule_by_hand():
    """The shortest jobs that fit run; longer ones are stopped for them."""
    # 0-2 a alone (b, 20 s left, is longer than a's 9 and does not fit beside it).
    # 2-3 c and b. 3-5 d and b. 5-9 c (4 s left) and b. 9-17 a (8 s left < b's 13). 17-30 b.
    assert ends("srtf") == pytest.approx([17.0, 30.0, 9.0, 5.0])


def test_edf_stops_a_later_deadline():
    """The job with the earlier deadline takes the nodes at once."""
    jobs = [
        job_of("late", steps=40, deadline=100.0, gpus=4),
        job_of("soon", steps=20, arrival=2.0, deadline=10.0, gpus=4),
    ]
    assert ends("edf", jobs) == pytest.approx([15.0, 7.0])


def test_least_attained_service_lets_the_newcomer_in():
    """A job beyond the first queue yields to one that has received nothing."""
    queue_s = 1000.0 * 3600.0 / 8.0
    jobs = [
        job_of("old", steps=int(3 * queue_s), gpus=1),
        job_of("new", steps=int(queue_s / 2), arrival=1.5 * queue_s, gpus=1),
    ]
    old, new = ends("las", jobs, nodes=1)
    assert new == pytest.approx(2.0 * queue_s)
    assert old == pytest.approx(3.5 * queue_s)


def test_a_stopped_job_pays_for_its_move():
    """A job that is stopped and goes on loses the pause, not its work."""
    from vtrain.tenancy.upkeep import Upkeep

    upkeep = Upkeep(failures="none", failures_per_gpu_hour=0.0, rescale_s=3.0)
    curve = curve_of({4: 4.0}, nodes=4, upkeep=upkeep)
    jobs = [
        job_of("late", steps=40, deadline=100.0, gpus=4),
        job_of("soon", steps=20, arrival=5.0, deadline=20.0, gpus=4),
    ]
    outcome = play(jobs, [curve, curve], policy="edf", nodes=4, upkeep=upkeep)
    # late trains 3-5, soon pauses 5-8 and trains 8-13, late pauses 13-16 and trains 16-24.
    assert [s.finished for s in outcome.states] == pytest.approx([24.0, 13.0])
    assert [s.moves for s in outcome.states] == [2, 0]
