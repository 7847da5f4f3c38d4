"""What holds under every policy, whatever the workload."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.tenancy.outcome import job_rows, met_deadline, segment_rows, summarise, to_csv
from vtrain.tenancy.policies import POLICIES
from vtrain.tenancy.state import DONE, REJECTED
from vtrain.tenancy.upkeep import Upkeep

from .conftest import curve_of, job_of, play

NODES = 12


@st.composite
def workloads(draw):
    """Jobs with sublinear speeds, at most one step a second a node, and an upkeep."""
    pause = draw(st.sampled_from([0.0, 5.0, 40.0]))
    failures = draw(st.sampled_from(["none", "expected", "random"]))
    rate = 0.0 if failures == "none" else draw(st.sampled_from([0.01, 1.0]))
    upkeep = Upkeep(
        failures=failures,
        failures_per_gpu_hour=rate,
        rescale_s=pause,
        restart_s=pause,
        write_bytes_per_s_per_gpu=1.0,
    )
    jobs, curves = [], []
    now = 0.0
    for i in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from([0.0, 1.0, 30.0, 200.0]))
        power = draw(st.sampled_from([0.5, 0.8, 1.0]))
        counts = draw(st.sampled_from([(1, 2, 4, 8), (2, 3, 5, 12), (1, 12), (3, 6, 9)]))
        curve = curve_of(
            {n: n**power for n in counts},
            nodes=NODES,
            upkeep=upkeep,
            state_bytes=draw(st.sampled_from([0.0, 20.0])),
        )
        steps = draw(st.integers(1, 3000))
        slack = draw(st.sampled_from([0.5, 1.0, 1.3, 2.0, 5.0, math.inf]))
        asked = draw(st.sampled_from(counts))
        alone = 2 * pause + steps / asked**power
        jobs.append(
            job_of(f"j{i}", steps=steps, arrival=now, deadline=now + slack * alone, gpus=asked)
        )
        curves.append(curve)
    return jobs, curves, upkeep


def check_nodes(outcome):
    """No node has two jobs at a time, and no job two stretches at a time."""
    events = sorted(
        (time, kind, seg.job, node)
        for seg in outcome.segments
        for node in seg.nodes
        for time, kind in ((seg.start_s, 1), (seg.end_s, 0))
        if seg.end_s > seg.start_s
    )
    holder: dict[int, int] = {}
    for _, kind, job, node in events:
        if kind:
            assert node not in holder, f"node {node} is given twice"
            assert 0 <= node < NODES
            holder[node] = job
        else:
            assert holder.pop(node) == job


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 3))
def test_nodes_work_and_promises(policy, workload, seed):
    """Nodes are never oversubscribed; work done is work asked for; all jobs end or are rejected;
    an admitted deadline is kept unless failures strike."""
    jobs, curves, upkeep = workload
    outcome = play(jobs, curves, policy=policy, nodes=NODES, upkeep=upkeep, seed=seed)
    check_nodes(outcome)
    done = dict.fromkeys(range(len(jobs)), 0.0)
    for seg in outcome.segments:
        done[seg.job] += seg.steps
        assert seg.trained_s <= seg.end_s - seg.start_s + 1e-6
    for state in outcome.states:
        assert state.status in (DONE, REJECTED)
        if state.status == REJECTED:
            assert policy in ("elasticflow", "patient")
            assert state.job.has_deadline
            assert state.node_s == 0.0
        else:
            assert done[state.index] == pytest.approx(state.job.steps, rel=1e-6)
            assert state.started >= state.job.arrival_s
            if policy in ("elasticflow", "patient") and upkeep.failures != "random":
                assert met_deadline(state) or not state.job.has_deadline
    held = sum(len(seg.nodes) * (seg.end_s - seg.start_s) for seg in outcome.segments)
    assert held == pytest.approx(sum(s.node_s for s in outcome.states))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 3))
def test_same_seed_same_bytes(policy, workload, seed):
    """Two runs with one seed write the same logs to the byte."""
    jobs, curves, upkeep = workload

    def logs():
        outcome = play(jobs, curves, policy=policy, nodes=NODES, upkeep=upkeep, seed=seed)
        return (
            to_csv(job_rows(outcome, gpus_per_node=1)),
            to_csv(segment_rows(outcome)),
            repr(summarise(outcome, gpus_per_node=1, price_usd_per_gpu_hour=1.0)),
        )

    assert logs() == logs()


@pytest.mark.parametrize("policy", ["srtf", "edf", "las"])
@settings(max_examples=20, deadline=None)
@given(workload=workloads())
def test_no_node_idles_that_a_waiting_job_fits(policy, workload):
    """Between events, nobody waits who would fit into the free nodes."""
    jobs, curves, upkeep = workload
    outcome = play(jobs, curves, policy=policy, nodes=NODES, upkeep=upkeep)
    times = sorted({t for seg in outcome.segments for t in (seg.start_s, seg.end_s)})
    for begin, end in pairwise(times):
        if end - begin < 1e-6:
            continue
        middle = 0.5 * (begin + end)
        running = {s.job: s for s in outcome.segments if s.start_s <= middle < s.end_s}
        free = NODES - sum(len(s.nodes) for s in running.values())
        for state in outcome.states:
            waits = state.job.arrival_s < begin and state.finished > end
            if waits and state.index not in running:
                assert state.curve.nodes_of[state.request] > free
