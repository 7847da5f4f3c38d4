"""What the work of a pipeline rank is made of: the seconds both evaluators share.

`vtrain.estimate` adds them up in closed form, `vtrain.simulate` plays them as a task graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.data_parallel import (
    DataParallelCosts,
    accumulation_seconds_per_parameter,
    data_parallel_costs,
)
from vtrain.operators import Workload, boundary_seconds, end_costs, layer_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Structure
    from vtrain.schedule.stages import StageLayers
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCosts:
    """Seconds of the parts of a stage for one micro-batch, arrays over the rows of a group.

    Attributes:
        layer_forward_s: one layer forward, gathering of its shards and host floor included.
        layer_backward_s: the same backward, recomputation included.
        layer_weight_gradient_s: the part of it that no other stage waits for, without
            accumulation.
        layer_accumulation_s: adding one layer's gradient of one micro-batch.
        embedding_forward_s: the embedding on the first stage.
        embedding_backward_s: its backward.
        head_forward_s: output head and loss on the last stage.
        head_backward_s: its backward.
        near_hop_s: handing a micro-batch to a stage in the same NVLink domain, nothing hidden.
        far_hop_s: the same to another domain.
        traffic: replication, gradient accumulation and optimizer.
    """

    layer_forward_s: Array
    layer_backward_s: Array
    layer_weight_gradient_s: Array
    layer_accumulation_s: Array
    embedding_forward_s: Array
    embedding_backward_s: Array
    head_forward_s: Array
    head_backward_s: Array
    near_hop_s: Array
    far_hop_s: Array
    traffic: DataParallelCosts


def stage_costs(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    structure: Structure,
    layers: StageLayers,
    *,
    seq_length: int,
    tp: Array,
    cp: Array,
    pp: Array,
    dp: Array,
    micro_batch_size: Array,
    num_micro_batches: Array,
) -> StageCosts:
    """Return what the stages of every plan of one structure are made of.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        site: factors of the real machine.
        structure: what the plans have in common.
        layers: layers on the first, inner and last rank of each plan.
        seq_length: tokens of a sequence.
        tp: tensor-parallel degree, float64 [n]; the other degrees likewise.
        cp: context-parallel degree.
        pp: pipeline ranks.
        dp: replicas.
        micro_batch_size: sequences of a micro-batch.
        num_micro_batches: micro-batches of a step.
    """
    shape_tp, shape_cp, shape_mbs, inverse = distinct_shapes(tp, cp, micro_batch_size)
    shapes = shape_costs(
        architecture, cluster, stack, site, structure, seq_length, shape_tp, shape_cp, shape_mbs
    )
    names = tuple(shapes)
    cost = dict(zip(names, np.stack([shapes[n] for n in names])[:, inverse], strict=True))
    traffic = data_parallel_costs(
        architecture, cluster, stack, site, structure, layers, tp=tp, cp=cp, pp=pp, dp=dp,
        num_micro_batches=num_micro_batches,
        layer_forward_s=cost["layer_forward"], layer_backward_s=cost["layer_backward"],
    )  # fmt: skip
    forward, backward = traffic.layer_forward_s, traffic.layer_backward_s
    floor = host_floor_seconds(cluster, stack, tp=tp, cp=cp, pp=pp, dp=dp) * site.host
    # A host too slow to feed the device stretches forward and backward alike.
    stretch = np.maximum(1.0, floor / (forward + backward))
    blocking = stack.host.blocking_s * site.host
    return StageCosts(
        layer_forward_s=forward * stretch + blocking / 3.0,
        layer_backward_s=backward * stretch + blocking * (2.0 / 3.0),
        layer_weight_gradient_s=cost["layer_weight_gradient"] * stretch,
        layer_accumulation_s=accumulation_seconds_per_parameter(cluster, stack, site)
        * (architecture.parameters_per_layer / tp),
        embedding_forward_s=cost["embedding_forward"],
        embedding_backward_s=cost["embedding_backward"],
        head_forward_s=cost["head_forward"],
        head_backward_s=cost["head_backward"],
        near_hop_s=cost["near_hop"],
        far_hop_s=cost["far_hop"],
        traffic=traffic,
    )


def distinct_shapes(
    tp: Array, cp: Array, micro_batch_size: Array
) -> tuple[Array, Array, Array, IntArray]:
    """Return the distinct (tp, cp, micro-batch) triples and each row's position among them."""
    sizes = [int(column.max()) + 1 for column in (tp, cp, micro_batch_size)]
    # One exact whole number names a triple; a look-up by it is much cheaper than sorting.
    key = ((tp * sizes[1] + cp) * sizes[2] + micro_batch_size).astype(np.int64)
    if sizes[0] * sizes[1] * sizes[2] > max(_LOOK_UP, len(tp)):
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return tp[first], cp[first], micro_batch_size[first], inverse
    present = np.flatnonzero(np.bincount(key))
    place = np.zeros(int(present[-1]) + 1, dtype=np.int64)
    place[present] = np.arange(len(present))
    rest, sizes_mbs = np.divmod(present, sizes[2])
    sizes_tp, sizes_cp = np.divmod(rest, sizes[1])
    shapes = [column.astype(np.float64) for column in (sizes_tp, sizes_cp, sizes_mbs)]
    return shapes[0], shapes[1], shapes[2], place[key]


# Entries of a look-up table that stays in cache.
_LOOK_UP = 1 << 14


def shape_costs(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    structure: Structure,
    seq_length: int,
    tp: Array,
    cp: Array,
    micro_batch_size: Array,
) -> Mapping[str, Array]:
    """Return the per-layer and per-end seconds of each distinct shape, by name."""
    work = Workload(
        architecture=architecture, cluster=cluster, stack=stack, site=site, structure=structure,
        seq_length=seq_length, tp=tp, cp=cp, micro_batch_size=micro_batch_size,
    )  # fmt: skip
    layer = layer_costs(work)
    ends = end_costs(work)
    # Weight gradients that run apart find the recomputed activations gone and compute them once
    # more (torchtitan issue 773: zero bubble loses when recompute is on).
    again = layer.recompute_s if structure.schedule == "zb-h1" else 0.0
    # Half-precision activation of one micro-batch between stages, split like the residual.
    boundary_bytes = 2.0 * work.tokens_between_blocks * architecture.hidden_size

    def hop(reach: float) -> Array:
        # Two stages whose ranks lie `reach` apart.
        return boundary_seconds(
            cluster, stack, site, structure, boundary_bytes, tp=tp, cp=cp,
            pp=np.full_like(tp, 2.0), dp=reach / (tp * cp),
        )  # fmt: skip

    return {
        "layer_forward": layer.forward_s,
        "layer_backward": layer.backward_s + again,
        "layer_weight_gradient": layer.weight_gradient_s + again,
        "embedding_forward": ends.embedding_forward_s,
        "embedding_backward": ends.embedding_backward_s,
        "head_forward": ends.head_forward_s,
        "head_backward": ends.head_backward_s,
        "near_hop": hop(1.0),
        "far_hop": hop(float(cluster.nvlink_domain)),
    }


def host_floor_seconds(
    cluster: Cluster, stack: Stack, *, tp: Array, cp: Array, pp: Array, dp: Array
) -> Array:
    """Return the least seconds of one layer and micro-batch, forward and backward, [n]."""
    host = stack.host
    floor = np.full_like(tp, host.floor_s)
    if host.floor_tp_s:
        floor = _by_degree(host.floor_tp_s, tp, floor)
    if host.floor_tp_pp_s:
        crossing = (pp > 1.0) & (tp * cp * dp * pp > cluster.nvlink_domain)
        floor = np.where(crossing, _by_degree(host.floor_tp_pp_s, tp, floor), floor)
    return floor


def _by_degree(pairs: tuple[tuple[int, float], ...], tp: Array, below: Array) -> Array:
    """Return the seconds of the largest listed degree up to tp, `below` under the first one."""
    degrees, seconds = np.array(pairs, dtype=np.float64).T
    place = np.searchsorted(degrees, tp, side="right")
    return np.where(place > 0, seconds[np.maximum(place - 1, 0)], below)
