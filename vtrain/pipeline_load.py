"""From the costs of layers and ends to what each pipeline rank does for one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.hardware import group_span
from vtrain.schedule.boundaries import pipeline_shapes
from vtrain.schedule.pipeline import PipelineLoad, RoundLoad, WeightLoad

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Structure
    from vtrain.schedule.stages import StageLayers
    from vtrain.stack import Stack
    from vtrain.stage_costs import StageCosts

    Array = npt.NDArray[np.float64]


def pipeline_load(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    structure: Structure,
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
        structure: what the plans have in common.
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
    woven = bool(np.any(v > 1.0))
    alone = pp <= 1.0
    near = np.where(alone, 0.0, cost.near_hop_s)
    more = cost.far_hop_s - cost.near_hop_s
    flying: Array | float = 0.0
    if woven and stack.overlap.send_recv:
        flying = np.where(v > 1.0, stack.overlap.send_recv, 0.0)
        near, more = near * (1.0 - flying), more * (1.0 - flying)
    first_send = near + shape.first_far * more
    last_send = near + shape.last_far * more
    wrap_send = near + shape.wrap_far * more
    three = pp > 2.0
    inner_count = np.maximum(pp - 2.0, 0.0)
    # In GPipe's two sweeps the dear side of a rank sets the pace, in 1F1B both sides together.
    dear_side = np.minimum(shape.pace_far, 1.0)
    apart = structure.schedule == "gpipe"
    pace_sends = near + (dear_side if apart else 0.5 * shape.pace_far) * more
    if woven:
        pace_sends = v * np.where(three, pace_sends, 0.5 * (first_send + wrap_send))

    traffic = cost.traffic
    # With two ranks nobody is an inner rank, but a chunk without embedding and head still counts.
    first_layers, last_layers = (n.astype(np.float64) for n in (layers.first, layers.last))
    full = np.ceil(first_layers / v) * v if woven else first_layers
    plain = np.where(three, layers.middle, full)
    forward, accumulation = cost.layer_forward_s, cost.layer_accumulation_s
    backward = cost.layer_backward_s
    layer = forward + backward + accumulation
    inner_layers = np.where(three, architecture.num_layers - first_layers - last_layers, 0.0)
    behind_s = shape.behind_layers * layer + v * (
        2.0 * shape.behind * near + shape.behind_far * more
    )
    load = PipelineLoad(
        first_forward_s=first_layers * forward + cost.embedding_forward_s + v * first_send
        + np.where(alone, cost.head_forward_s, 0.0),
        first_backward_s=first_layers * backward + cost.embedding_backward_s
        + traffic.first_accumulation_s + np.where(alone, cost.head_backward_s, 0.0)
        + (v - 1.0) * wrap_send,
        inner_forward_s=plain * forward + pace_sends,
        inner_backward_s=plain * (backward + accumulation) + pace_sends,
        last_forward_s=last_layers * forward + cost.head_forward_s + (v - 1.0) * wrap_send,
        last_backward_s=last_layers * backward + cost.head_backward_s + v * last_send
        + traffic.last_accumulation_s,
        inner_total_s=inner_layers * layer + v * (
            2.0 * inner_count * near + shape.inner_far * more
        ),
        behind_s=behind_s,
        behind=shape.behind,
        drain_s=shape.far * _shared_send(cluster, stack, cost, tp, cp, dp),
        rounds=None,
        weights=None,
    )  # fmt: skip
    if structure.schedule == "zb-h1":
        weight = cost.layer_weight_gradient_s
        weights = WeightLoad(
            first_s=first_layers * weight + traffic.first_accumulation_s,
            inner_s=plain * (weight + accumulation),
            last_s=last_layers * weight + traffic.last_accumulation_s,
        )
        return load._replace(weights=weights)
    if not woven:
        return load
    dearest = near + np.maximum(shape.wrap_far, np.minimum(shape.far, 1.0)) * more
    chunk = plain / v
    # Rank 0 may be short of layers, all of them in its first chunk.
    missing = plain - first_layers
    rounds = RoundLoad(
        entry_forward_s=(chunk - missing) * forward + cost.embedding_forward_s + first_send,
        entry_backward_s=(chunk - missing) * backward + cost.embedding_backward_s
        + traffic.first_accumulation_s - (plain - chunk) * accumulation,
        plain_forward_s=chunk * forward + dearest,
        plain_backward_s=chunk * (backward + accumulation) + dearest,
        ring_flight_s=flying * (
            pp * cost.near_hop_s
            + (shape.far + shape.wrap_far) * (cost.far_hop_s - cost.near_hop_s)
        ),
        last_lag_s=dearest - last_send,
    )  # fmt: skip
    return load._replace(rounds=rounds)


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
