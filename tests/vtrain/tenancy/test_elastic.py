"""Elastic policies: admission, leftovers, failures, the second look."""

from __future__ import annotations

import pytest

from vtrain.goodput import goodput
from vtrain.tenancy.policies import POLICIES
from vtrain.tenancy.upkeep import Upkeep

from .conftest import curve_of, job_of, play


def test_a_job_alone_takes_all_it_can_use(linear):
    """Leftover nodes go to the only job there is."""
    outcome = play([job_of("a", steps=80, deadline=80.0)], [linear(8)], policy="elasticflow",
                   nodes=8)  # fmt: skip
    assert outcome.states[0].finished == pytest.approx(10.0)


def test_what_cannot_be_promised_is_rejected(linear):
    """Two jobs that need all nodes until the same date cannot both be admitted."""
    jobs = [job_of("a", steps=80, deadline=10.5), job_of("b", steps=80, deadline=10.5)]
    for policy in ("elasticflow", "patient"):
        outcome = play(jobs, [linear(8)] * 2, policy=policy, nodes=8)
        assert [s.status for s in outcome.states] == ["done", "rejected"]


def test_an_earlier_date_gets_in_when_promises_can_be_renewed(linear):
    """A newcomer is admitted by filling the promises given anew in order of deadline."""
    jobs = [
        job_of("slack", steps=80, deadline=20.0),
        job_of("tight", steps=72, arrival=1.0, deadline=10.1),
    ]
    outcome = play(jobs, [linear(8)] * 2, policy="elasticflow", nodes=8)
    assert all(s.finished <= s.job.deadline_s + 1e-3 for s in outcome.states)


def test_jobs_without_deadline_use_what_is_left(linear):
    """A job nobody waits for runs beside a promised one and never endangers it."""
    jobs = [job_of("free", steps=400), job_of("dated", steps=60, arrival=10.0, deadline=20.0)]
    outcome = play(jobs, [linear(8)] * 2, policy="elasticflow", nodes=8)
    assert outcome.states[1].finished <= 20.0 + 1e-3
    assert outcome.states[0].status == "done"


def test_the_second_look_admits_when_others_end_early():
    """A job refused on arrival gets in once another ended ahead of its promise."""
    slow = curve_of({4: 4.0, 8: 4.4}, nodes=8)
    jobs = [
        job_of("first", steps=44, deadline=11.2, gpus=4),
        job_of("whole", steps=72, arrival=1.0, deadline=19.5, gpus=8),
    ]
    curves = [slow, curve_of({8: 8.0}, nodes=8)]
    strict = play(jobs, curves, policy="elasticflow", nodes=8)
    patient = play(jobs, curves, policy="patient", nodes=8)
    assert strict.states[1].status == "rejected"
    assert patient.states[1].status == "done"
    assert patient.states[1].finished <= 19.5 + 1e-3


@pytest.mark.parametrize("policy", POLICIES)
def test_random_failures_cost_what_goodput_expects(policy):
    """A long job struck at random ends within 2 % of the date its goodput predicts."""
    upkeep = Upkeep(
        failures="random",
        failures_per_gpu_hour=0.5,
        restart_s=60.0,
        rescale_s=0.0,
        write_bytes_per_s_per_gpu=1.0,
    )
    curve = curve_of({1: 1.0}, nodes=1, upkeep=upkeep, state_bytes=10.0)
    steps = 20_000_000
    outcome = play([job_of("long", steps=steps)], [curve], policy=policy, nodes=1, upkeep=upkeep,
                   seed=1)  # fmt: skip
    share = float(goodput(1.0, state_bytes=10.0, failures_per_gpu_hour=0.5, restart_s=60.0,
                          write_bytes_per_s_per_gpu=1.0))  # fmt: skip
    state = outcome.states[0]
    assert state.failures > 2000
    assert state.finished == pytest.approx(steps / share, rel=0.02)


def test_a_failure_throws_back_to_the_checkpoint_only():
    """Work lost to one failure is less than one checkpoint interval plus the restart."""
    upkeep = Upkeep(
        failures="random",
        failures_per_gpu_hour=0.2,
        restart_s=30.0,
        rescale_s=0.0,
        write_bytes_per_s_per_gpu=1.0,
    )
    curve = curve_of({1: 1.0}, nodes=1, upkeep=upkeep, state_bytes=5.0)
    outcome = play([job_of("a", steps=50_000)], [curve], policy="fifo", nodes=1, upkeep=upkeep)
    state = outcome.states[0]
    calm_s = 50_000 / curve.real_of[1]
    assert state.failures > 0
    assert state.finished <= calm_s + state.failures * (30.0 + curve.interval[1])


def test_leftovers_go_to_the_nearly_done(linear):
    """Of two jobs without deadline our policy finishes the short one first, on all nodes; the sum
    of completions is that of shortest remaining time first."""
    jobs = [job_of("long", steps=800), job_of("short", steps=80)]
    outcome = play(jobs, [linear(8)] * 2, policy="patient", nodes=8)
    assert [s.finished for s in outcome.states] == pytest.approx([110.0, 10.0])
