"""From the costs of layers and ends to what each pipeline rank does for one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.hardware import group_span
from vtrain.schedule.boundaries import pipeline_shapes
from vtrain.schedule.pipeline import PipelineLoad

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.schedule.stages import StageLayers
    from vtrain.stack import Stack
    from vtrain.stage_costs import StageCosts

    Array = npt.NDArray[np.float64]


def pipeline_load(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    layers: StageLayers,
    cost: StageCosts,
    *,
    tp: Array,
    cp: Array,
    pp: Array,
    dp: Array,
    virtual_stages: Array,
) -> PipelineLoad:
    """Return what the ranks of every plan do for one micro-batch.

    A rank sends each chunk's output on, forward and backward, and waits for the send (the stack
    says which share of it runs on by itself, interleaved schedules only). The two ends of the
    pipeline are spared one send each; a send is dearer where it leaves the NVLink domain, and an
    inner rank beside such a boundary sets the pace.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        layers: layers on the first, inner and last rank.
        cost: seconds of the parts.
        tp: tensor-parallel degree, float64 [n]; the other degrees likewise.
        cp: context-parallel degree.
        pp: pipeline ranks.
        dp: replicas.
        virtual_stages: chunks on each rank.
    """
    shape = pipeline_shapes(
        architecture, stack.layer_split, cluster.nvlink_domain, pp, tp * cp * dp
    )
    v = virtual_stages
    blocking = np.where(v > 1.0, 1.0 - stack.overlap.send_recv, 1.0)
    near, more = cost.near_hop_s, cost.far_hop_s - cost.near_hop_s
    first_send = (near + shape.first_far * more) * blocking
    last_send = (near + shape.last_far * more) * blocking
    wrap_send = (near + shape.wrap_far * more) * blocking
    dearest = (near + np.maximum(shape.wrap_far, np.minimum(shape.far, 1.0)) * more) * blocking
    inner_count = np.maximum(pp - 2.0, 0.0)
    inner_sends = v * (2.0 * inner_count * near + shape.inner_far * more) * blocking
    behind_sends = v * (2.0 * shape.behind * near + shape.behind_far * more) * blocking
    pace_sends = np.where(
        pp > 2.0, v * (2.0 * near + shape.pace_far * more) * blocking, v * (first_send + wrap_send)
    )

    traffic = cost.traffic
    # With two ranks nobody is an inner rank, but a chunk without embedding and head still counts.
    full = np.ceil(layers.first / v) * v
    plain = np.where(pp > 2.0, layers.middle, full)
    forward, backward = cost.layer_forward_s, cost.layer_backward_s
    accumulation = cost.layer_accumulation_s
    layer = forward + backward + accumulation
    plain_accumulation = np.where(
        pp > 2.0, traffic.middle_accumulation_s, accumulation * plain
    )
    inner_layers = np.where(pp > 2.0, architecture.num_layers - layers.first - layers.last, 0.0)
    alone = pp <= 1.0
    weight = cost.layer_weight_gradient_s
    entry_layers = layers.first - (plain - plain / v)
    return PipelineLoad(
        first_forward_s=layers.first * forward + cost.embedding_forward_s + v * first_send
        + np.where(alone, cost.head_forward_s, 0.0),
        first_backward_s=layers.first * backward + cost.embedding_backward_s
        + (v - 1.0) * wrap_send + traffic.first_accumulation_s
        + np.where(alone, cost.head_backward_s, 0.0),
        inner_forward_s=plain * forward + 0.5 * pace_sends,
        inner_backward_s=plain * backward + plain_accumulation + 0.5 * pace_sends,
        last_forward_s=layers.last * forward + cost.head_forward_s + (v - 1.0) * wrap_send,
        last_backward_s=layers.last * backward + cost.head_backward_s + v * last_send
        + traffic.last_accumulation_s,
        inner_total_s=inner_layers * layer + inner_sends,
        behind_s=shape.behind_layers * layer + behind_sends,
        behind=shape.behind,
        first_weight_s=layers.first * weight + traffic.first_accumulation_s,
        inner_weight_s=plain * weight + plain_accumulation,
        last_weight_s=layers.last * weight + traffic.last_accumulation_s,
        entry_forward_s=entry_layers * forward + cost.embedding_forward_s + first_send,
        entry_backward_s=traffic.first_accumulation_s - (layers.first - entry_layers) * accumulation
        + entry_layers * backward + cost.embedding_backward_s,
        plain_forward_s=plain / v * forward + dearest,
        plain_backward_s=plain / v * (backward + accumulation) + dearest,
        ring_flight_s=(1.0 - blocking) * (pp * near + (shape.far + shape.wrap_far) * more),
        last_lag_s=dearest - last_send,
        drain_s=shape.far * _shared_send(cluster, stack, cost, tp, cp, dp),
    )  # fmt: skip


def _shared_send(
    cluster: Cluster, stack: Stack, cost: StageCosts, tp: Array, cp: Array, dp: Array
) -> Array:
    """Return what sharing the NIC with the gradient reduction adds to a stage's last send, [n].

    Two transfers that share a link both finish later by the shorter of them. Stacks that reduce
    after the pipeline has drained share nothing.
    """
    if max(stack.overlap.dp_reduce, stack.overlap.dp_gather) == 0.0:
        return np.zeros_like(tp)
    _, domains = group_span(cluster, dp * cp, tp)
    shared = np.minimum(cost.far_hop_s, cost.traffic.reduction_tail_s)
    return np.where(domains > 1.0, shared, 0.0)
