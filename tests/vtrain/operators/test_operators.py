from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vtrain.architecture import default_architecture
from vtrain.operators import Workload, boundary_seconds, end_costs, layer_costs
from vtrain.plan import Structure
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SHIPPED

MODEL = default_architecture(hidden_size=4096, num_layers=32)
H100 = load_cluster("h100")
CORE = load_stack("megatron-core-2025")


def work(
    tp=1.0, cp=1.0, micro=1.0, *, stack=CORE, cluster=H100, recompute="none", sp=False, seq=4096
):
    return Workload(
        architecture=MODEL, cluster=cluster, stack=stack, site=SHIPPED,
        structure=Structure(recompute, "zero1", sp, "1f1b"), seq_length=seq,
        tp=np.array([tp]), cp=np.array([cp]), micro_batch_size=np.array([micro]),
    )  # fmt: skip


def test_products_of_a_layer_run_near_but_below_the_peak():
    """FLOPs of the forward matrices over their time: 40 to 90 % of the dense peak."""
    flops = 2.0 * MODEL.matmul_parameters_per_layer * 4096 * 4.0
    rate = flops / layer_costs(work(micro=4.0)).forward_matrix_s[0]
    assert 0.4 < rate / H100.device.peak_flops["bf16"] < 0.9


def test_one_rank_sends_nothing():
    """Neither tensor nor context parallelism of degree 1 costs traffic."""
    layer = layer_costs(work())
    assert layer.forward_communication_s[0] == layer.backward_communication_s[0] == 0.0


def test_sequence_parallelism_divides_the_norms():
    """Memory-bound work between the blocks falls with tp only under sequence parallelism."""
    plain = layer_costs(work(tp=8.0)).forward_memory_s[0]
    split = layer_costs(work(tp=8.0, sp=True)).forward_memory_s[0]
    assert split < 0.6 * plain


def test_selective_recomputation_follows_the_modules_of_the_stack():
    """Attention alone, or every second product with everything bound by memory."""
    attention = layer_costs(work(recompute="selective"))
    assert attention.recompute_s[0] == pytest.approx(attention.forward_attention_s[0])
    titan = layer_costs(work(recompute="selective", stack=load_stack("torchtitan-2024")))
    half = 0.5 * titan.forward_matrix_s[0] + titan.forward_memory_s[0]
    assert titan.recompute_s[0] == pytest.approx(half)


def test_a_quantised_gather_moves_half_the_bytes():
    """Under fp8 what feeds a product travels in fp8, so exposed traffic falls."""
    half = layer_costs(work(tp=8.0, sp=True)).forward_communication_s[0]
    fp8 = layer_costs(work(tp=8.0, sp=True, stack=replace(CORE, precision="fp8")))
    assert 0.6 * half < fp8.forward_communication_s[0] < 0.95 * half


def test_the_power_limit_is_felt_less_inside_a_step():
    """A throttled board recovers a part; one that does not throttle gains nothing."""
    hot = replace(CORE, power_relief=1.0)
    assert work().gemm.sustained > work(stack=hot).gemm.sustained
    a100 = load_cluster("a100")
    assert work(cluster=a100).gemm.sustained == work(cluster=a100, stack=hot).gemm.sustained


def test_context_parallelism_splits_the_layer():
    """Four ranks on a quarter of a long sequence: attention and products shrink about fourfold."""
    whole, part = layer_costs(work(seq=65536)), layer_costs(work(cp=4.0, seq=65536))
    assert part.forward_matrix_s[0] < 0.35 * whole.forward_matrix_s[0]
    assert part.forward_attention_s[0] < 0.35 * whole.forward_attention_s[0]


def test_checkpoints_that_leave_the_device_cost_their_bytes():
    """Two bytes an element of the residual stream at the stated rate."""
    slow = replace(CORE, checkpoint_bytes_per_s=1e9)
    extra = (
        layer_costs(work(recompute="full", stack=slow)).recompute_s
        - layer_costs(work(recompute="full")).recompute_s
    )
    assert extra[0] == pytest.approx(2.0 * 4096 * MODEL.hidden_size / 1e9)


def test_a_split_boundary_is_cheaper_across_nodes():
    """Each of eight NICs carries an eighth, and NVLink gathers it."""
    one = np.ones(1)
    args = (SHIPPED, Structure("none", "zero1", False, "1f1b"), np.array([2.0**28]))
    degrees = {"tp": 8.0 * one, "cp": one, "pp": 4.0 * one, "dp": 4.0 * one}
    whole = boundary_seconds(H100, replace(CORE, splits_boundary=False), *args, **degrees)
    split = boundary_seconds(H100, CORE, *args, **degrees)
    assert split[0] < 0.4 * whole[0]


def test_no_pipeline_has_no_boundary():
    """One stage hands nothing over."""
    one = np.ones(1)
    structure = Structure("none", "zero1", False, "1f1b")
    seconds = boundary_seconds(
        H100, CORE, SHIPPED, structure, np.array([1e8]), tp=one, cp=one, pp=one, dp=one
    )
    assert seconds[0] == 0.0


def test_the_head_grows_with_its_share_of_the_vocabulary():
    """Twice the tensor-parallel degree halves logits and loss."""
    one, two = end_costs(work()), end_costs(work(tp=2.0, sp=True))
    assert 0.4 < two.head_backward_s[0] / one.head_backward_s[0] < 0.65
