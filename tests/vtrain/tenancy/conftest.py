"""Small clusters and jobs with speeds that can be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from vtrain.plan import Plan
from vtrain.tenancy.curve import Curve, SpeedTable, make_curve
from vtrain.tenancy.engine import Outcome, Simulation
from vtrain.tenancy.job import Job
from vtrain.tenancy.policies import make_policy
from vtrain.tenancy.upkeep import Upkeep

FREE = Upkeep(failures="none", failures_per_gpu_hour=0.0, rescale_s=0.0, restart_s=0.0)
"""Nothing fails and nothing costs time."""


def curve_of(
    steps_per_s: dict[int, float],
    *,
    nodes: int,
    upkeep: Upkeep = FREE,
    state_bytes: float = 0.0,
) -> Curve:
    """Speeds by node count on nodes of one GPU."""
    table = SpeedTable(
        nodes=np.array(list(steps_per_s), dtype=np.int64),
        step_time_s=np.array([1.0 / rate for rate in steps_per_s.values()]),
        plans=tuple(Plan(dp=n, global_batch_size=n) for n in steps_per_s),
        state_bytes=state_bytes,
    )
    return make_curve(table, upkeep, cluster_nodes=nodes, gpus_per_node=1)


def job_of(
    name: str, *, steps: int, arrival: float = 0.0, deadline: float = math.inf, gpus: int = 1
) -> Job:
    """A job whose model does not matter: its speeds are given apart."""
    return Job(
        name=name, model="none", steps=steps, global_batch_size=1, arrival_s=arrival,
        deadline_s=deadline, gpus=gpus,
    )  # fmt: skip


def play(
    jobs: Sequence[Job],
    curves: Sequence[Curve],
    *,
    policy: str,
    nodes: int,
    upkeep: Upkeep = FREE,
    seed: int = 0,
) -> Outcome:
    """Run with every segment recorded."""
    return Simulation(
        jobs, curves, make_policy(policy), cluster_nodes=nodes, gpus_per_node=1, upkeep=upkeep,
        seed=seed, record=True,
    ).run()  # fmt: skip


@pytest.fixture
def linear() -> Callable[[int], Curve]:
    """Speed in proportion to nodes, one step a second a node, on a cluster of so many nodes."""
    return lambda nodes: curve_of({n: float(n) for n in range(1, nodes + 1)}, nodes=nodes)
