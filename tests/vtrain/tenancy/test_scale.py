"""The simulator keeps up with large clusters: 10,000 jobs on 16,384 GPUs in a minute a policy."""

from __future__ import annotations

import time

import pytest

from vtrain.formats import load_architecture
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SHIPPED
from vtrain.tenancy.generate import WorkloadSpec
from vtrain.tenancy.policies import POLICIES
from vtrain.tenancy.speed_book import SpeedBook
from vtrain.tenancy.upkeep import Upkeep
from vtrain.tenancy.workload import generated, play

JOBS = 500
LIMIT_S = 60.0 * JOBS / 10_000


@pytest.mark.parametrize("policy", POLICIES)
def test_a_part_of_the_workload_takes_its_part_of_the_minute(policy):
    """CPU time of one core, plan tables and drawing of jobs included."""
    begin_s = time.process_time()
    book = SpeedBook(
        load_cluster("a100-sxm-80g"), load_stack("megatron-core-2025"), SHIPPED, gpus=16_384,
        read_model=load_architecture,
    )  # fmt: skip
    upkeep = Upkeep()
    spec = WorkloadSpec(jobs=JOBS, load=0.9, tightness=1.5)
    workload = generated(spec, book, upkeep, speed="vtrain", seed=0)
    outcome = play(workload, book, upkeep, policy=policy, seed=0, record=False)
    assert len(outcome.states) == JOBS
    assert time.process_time() - begin_s < LIMIT_S
