"""Step time in closed form: properties that must hold whatever the constants are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.architecture import default_architecture
from vtrain.enumeration import default_space, enumerate_plans
from vtrain.estimate import estimate, step_seconds
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SiteFactors

MODEL = default_architecture(hidden_size=4096, num_layers=32)
H100 = load_cluster("h100")
CORE = load_stack("megatron-core-2025")


def one(plan: Plan, *, cluster=H100, stack=CORE, site=SiteFactors(), seq=4096) -> float:  # noqa: B008
    table = PlanTable.from_plans([plan])
    return float(step_seconds(MODEL, cluster, stack, table, seq_length=seq, site=site)[0])


def test_a_row_costs_the_same_alone_and_in_a_table():
    """Grouping and gathering change nothing."""
    space = default_space(H100, CORE)
    table, _ = enumerate_plans(
        MODEL, H100, stack=CORE, seq_length=4096, gpus=[64], global_batch_size=[256], space=space
    )
    whole = step_seconds(MODEL, H100, CORE, table, seq_length=4096)
    for row in range(0, len(table), 37):
        assert one(table.plan(row)) == pytest.approx(whole[row], rel=1e-12)


def test_calibration_sees_the_step_time_that_estimate_reports():
    """The shortcut without memory is the same number, and the parts sum to it."""
    table = PlanTable.from_plans([
        Plan(tp=4, pp=2, dp=8, micro_batch_size=2, global_batch_size=256, sequence_parallel=True),
        Plan(dp=64, global_batch_size=256, sharding="zero3"),
    ])  # fmt: skip
    whole = estimate(MODEL, H100, CORE, table, seq_length=4096)
    alone = step_seconds(MODEL, H100, CORE, table, seq_length=4096)
    assert np.array_equal(alone, whole.step_time_s)
    parts = whole.pipeline_s + whole.data_parallel_s + whole.optimizer_s + whole.host_s
    assert np.allclose(parts, whole.step_time_s, rtol=1e-12)


def test_every_factor_of_a_site_doubled_doubles_the_step():
    """What no factor scales is the floor of a kernel: a few per cent here."""
    plan = Plan(tp=4, pp=2, dp=8, micro_batch_size=2, global_batch_size=256, sequence_parallel=True)
    double = SiteFactors(matrix=2.0, memory=2.0, communication=2.0, host=2.0)
    assert one(plan, site=double) / one(plan) == pytest.approx(2.0, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from((1, 2, 4, 8)), pp=st.sampled_from((1, 2, 4)),
    micro=st.sampled_from((1, 2, 4)), batches=st.integers(4, 16),
    factor=st.sampled_from(("matrix", "memory", "communication", "host")),
)  # fmt: skip
def test_a_slower_site_never_trains_faster(tp, pp, micro, batches, factor):
    """Time does not fall when any factor grows."""
    dp = 64 // (tp * pp)
    plan = Plan(
        tp=tp, pp=pp, dp=dp, micro_batch_size=micro, global_batch_size=dp * micro * batches,
        sequence_parallel=tp > 1,
    )  # fmt: skip
    assert one(plan, site=SiteFactors(**{factor: 1.5})) >= one(plan) * (1.0 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(tp=st.sampled_from((1, 2, 8)), pp=st.sampled_from((1, 4)), m=st.integers(4, 24))
def test_more_micro_batches_take_longer(tp, pp, m):
    """A larger batch on the same plan costs more, by at most its own work."""
    dp = 64 // (tp * pp)
    few = one(Plan(tp=tp, pp=pp, dp=dp, global_batch_size=dp * m))
    more = one(Plan(tp=tp, pp=pp, dp=dp, global_batch_size=dp * (m + 1)))
    assert few < more <= few * (m + 1) / m * (1.0 + 1e-9)


def test_recomputation_costs_time_in_its_order():
    """None is fastest, full slowest."""
    plan = Plan(dp=64, global_batch_size=128)
    none, selective, full = (one(replace(plan, recompute=r)) for r in ("none", "selective", "full"))
    assert none < selective < full < 1.45 * none


def test_narrower_formats_are_faster():
    """fp8 beats bf16 on a device that has it, and equals it on one that has not."""
    plan = Plan(dp=64, global_batch_size=128)
    fp8 = replace(CORE, precision="fp8")
    assert one(plan, stack=fp8) < one(plan)
    a100 = load_cluster("a100")
    assert one(plan, stack=fp8, cluster=a100) == one(plan, cluster=a100)


def test_hidden_traffic_is_never_slower():
    """Overlap without slow-down cannot hurt."""
    plan = Plan(tp=8, dp=8, global_batch_size=64, sequence_parallel=True)
    shown = replace(CORE, overlap=replace(CORE.overlap, tp=0.0, dp_reduce=0.0, dp_gather=0.0))
    assert one(plan) < one(plan, stack=shown)


def test_tensor_parallelism_beyond_nvlink_pays_for_the_network():
    """Sixteen ranks on boards of eight are slower than on a rack of 72."""
    plan = Plan(tp=16, dp=4, global_batch_size=64, sequence_parallel=True)
    rack = replace(H100, nvlink_domain=72)
    assert one(plan) > 1.05 * one(plan, cluster=rack)


def test_plans_near_the_memory_limit_are_marked():
    """Above 85 % of the device the step time is not to be trusted, and only there."""
    table = PlanTable.from_plans([
        Plan(tp=8, dp=8, micro_batch_size=m, global_batch_size=64 * m, sequence_parallel=True)
        for m in (1, 4, 16, 64)
    ])  # fmt: skip
    answer = estimate(MODEL, H100, CORE, table, seq_length=4096)
    share = answer.mem_peak_bytes / H100.device.memory_bytes
    assert np.array_equal(answer.time_unreliable, share > 0.85)
    assert answer.time_unreliable.any()
    assert not answer.time_unreliable.all()


def test_the_interval_holds_the_prediction_and_leans_to_the_slow_side():
    """Low < predicted < high, with more room above."""
    table = PlanTable.from_plans([Plan(dp=64, global_batch_size=128)])
    answer = estimate(MODEL, H100, CORE, table, seq_length=4096)
    low, high = answer.step_time_interval_s
    assert 0.0 < answer.step_time_s[0] - low[0] < high[0] - answer.step_time_s[0]
