"""Traffic of gradients and parameters over the replicas, and the optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.collectives import collective_seconds
from vtrain.operators.ends import padded_vocab
from vtrain.replica_traffic import exposed_seconds, replica_traffic

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Structure
    from vtrain.schedule.stages import StageLayers
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataParallelCosts:
    """What replication costs, arrays over the rows of one group.

    Attributes:
        layer_forward_s: forward seconds of a layer, gathering of its shards included.
        layer_backward_s: backward seconds of a layer, gathering and scattering included.
        first_accumulation_s: adding one micro-batch's gradient on the first rank.
        middle_accumulation_s: the same on an inner rank.
        last_accumulation_s: the same on the last rank.
        exposed_s: traffic once a step that compute does not hide, on the first rank: it starts
            first and ends last, later ranks have theirs while they wait.
        reduction_tail_s: gradients of an inner rank that still move after its last backward.
        optimizer_s: optimizer step, gradient norm and clipping.
    """

    layer_forward_s: Array
    layer_backward_s: Array
    first_accumulation_s: Array
    middle_accumulation_s: Array
    last_accumulation_s: Array
    exposed_s: Array
    reduction_tail_s: Array
    optimizer_s: Array


def data_parallel_costs(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    structure: Structure,
    layers: StageLayers,
    *,
    tp: Array,
    cp: Array,
    pp: Array,
    dp: Array,
    num_micro_batches: Array,
    layer_forward_s: Array,
    layer_backward_s: Array,
) -> DataParallelCosts:
    """Return the costs of replication and of the optimizer.

    Gradients and parameters move over dp x cp ranks at stride tp: context-parallel ranks hold
    the same weights. Volumes: Rajbhandari et al. 2020 (arXiv 1910.02054) §7.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: dtypes, buckets, overlap.
        site: factors of the real machine.
        structure: sharding of the group.
        layers: layers on the first, inner and last rank.
        tp: tensor-parallel degree, [n]; the other degrees likewise.
        cp: context-parallel degree.
        pp: pipeline ranks.
        dp: replicas.
        num_micro_batches: micro-batches of a step.
        layer_forward_s: forward seconds of one layer and micro-batch.
        layer_backward_s: backward seconds of the same.
    """
    per_layer = architecture.parameters_per_layer / tp
    table = table_parameters(architecture, stack, tp)
    only = pp <= 1.0
    head = np.where(only & architecture.tied_embeddings, 0.0, table)
    first = layers.first * per_layer + table + np.where(only, head, 0.0)
    middle = layers.middle * per_layer
    last = layers.last * per_layer + head
    heaviest = np.where(only, first, np.maximum(np.maximum(first, middle), last))

    accumulate = accumulation_seconds_per_parameter(cluster, stack, site)
    group = dp * cp
    optimizer = optimizer_seconds(cluster, stack, site, structure.sharding, heaviest, group)
    forward, backward = layer_forward_s, layer_backward_s
    exposed = tail = np.zeros_like(tp)
    if bool(np.any(group > 1.0)):
        if structure.sharding == "zero3":
            forward, backward, exposed, tail = _fully_sharded(
                cluster, stack, site, per_layer, first - layers.first * per_layer,
                layers.first.astype(np.float64), tp, pp, group, forward, backward,
                num_micro_batches,
            )  # fmt: skip
        else:
            exposed, tail = _once_a_step(
                cluster, stack, site, structure, first, tp, group, num_micro_batches,
                layers.first * forward, layers.first * backward,
            )  # fmt: skip
    # Embedding and head are units of their own under zero3, and not on inner ranks.
    inner, own = (layers.middle, layers.first) if structure.sharding == "zero3" else (middle, first)
    ratio = np.where(pp > 2.0, inner, last if inner is middle else layers.last)
    ratio = ratio / np.maximum(own, 1.0)
    tail = tail * ratio
    if structure.sharding != "zero3" and bool(np.any(ratio > 1.0)):
        # A rank with more parameters shows what its wait for the first rank does not cover.
        later = exposed * ratio - layers.first * (layer_forward_s + layer_backward_s)
        exposed = np.where(only, exposed, np.maximum(exposed, later))
    if architecture.tied_embeddings:
        # The two copies of a tied table on the end stages add their gradients.
        pair = tied_table_seconds(cluster, stack, site, table, tp=tp, group=group, pp=pp)
        exposed = exposed + pair
    return DataParallelCosts(
        layer_forward_s=forward,
        layer_backward_s=backward,
        first_accumulation_s=first * accumulate,
        middle_accumulation_s=middle * accumulate,
        last_accumulation_s=last * accumulate,
        exposed_s=exposed,
        reduction_tail_s=tail,
        optimizer_s=optimizer,
    )


def table_parameters(architecture: Architecture, stack: Stack, tp: Array) -> Array:
    """Return the parameters of one vocabulary table on one tensor-parallel rank, [n]."""
    vocab = padded_vocab(architecture.vocab_size, tp, stack.vocab_multiple)
    return vocab * architecture.hidden_size / tp


def accumulation_seconds_per_parameter(cluster: Cluster, stack: Stack, site: SiteFactors) -> float:
    """Return the seconds of adding one micro-batch's gradient, for one local parameter."""
    seconds = stack.accumulation_traffic_bytes_per_parameter * site.memory
    return seconds / (cluster.device.hbm_bytes_per_s * cluster.device.memory_bound.cast)


def optimizer_seconds(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    sharding: str,
    parameters: Array,
    group: Array,
) -> Array:
    """Return the seconds of the optimizer step of a rank that holds `parameters`, [n]."""
    share = parameters / group if sharding != "none" else parameters
    rate = cluster.device.hbm_bytes_per_s * cluster.device.memory_bound.optimizer
    return share * (stack.optimizer_traffic_bytes_per_parameter * site.memory / rate)


def tied_table_seconds(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    table: Array,
    *,
    tp: Array,
    group: Array,
    pp: Array,
) -> Array:
    """Return the seconds in which the end stages add the gradients of a tied table, [n]."""
    pair = collective_seconds(
        cluster, "all_reduce", table * stack.gradient_reduce_bytes, np.where(pp > 1.0, 2.0, 1.0),
        tp * group * np.maximum(pp - 1.0, 1.0),
    )  # fmt: skip
    return pair * site.communication


def _once_a_step(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    structure: Structure,
    parameters: Array,
    tp: Array,
    group: Array,
    num_micro_batches: Array,
    forward_window_s: Array,
    backward_window_s: Array,
) -> tuple[Array, Array]:
    """Exposed seconds of the gradient reduction and, when sharded, the parameter gathering.

    The reduction can hide behind the backward of the last micro-batch, the gathering behind the
    forward of the first one. ZeRO-2 scatters after every micro-batch. The second result is the
    part that follows the last backward.
    """
    traffic = replica_traffic(
        cluster, stack, site, structure.sharding, layers=np.zeros_like(tp),
        layer_parameters=parameters, end_parameters=parameters, tp=tp, group=group,
    )  # fmt: skip
    overlap = stack.overlap
    slow = overlap.slow_down
    tail = exposed_seconds(traffic.reduce_s, overlap.dp_reduce, backward_window_s, slow)
    gather = exposed_seconds(traffic.gather_s, overlap.dp_gather, forward_window_s, slow)
    if structure.sharding == "zero2":
        return tail * num_micro_batches + gather, np.zeros_like(tail)
    return tail + gather, tail


def _fully_sharded(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    layer_parameters: Array,
    end_parameters: Array,
    layers_on_first: Array,
    tp: Array,
    pp: Array,
    group: Array,
    forward_s: Array,
    backward_s: Array,
    num_micro_batches: Array,
) -> tuple[Array, Array, Array, Array]:
    """Layer times with gathering and scattering, exposed seconds once a step, the tail of them.

    The gather of the next layer runs beside the compute of this one, so a layer takes the longer
    of the two; backward gathers again and scatters its gradient. Pipelines keep the gathered
    weights for the step (PyTorch FSDP2 `reshard_after_forward` under pipeline parallelism), so
    there the traffic occurs once a step. Embedding and head gather once a step, exposed.
    """
    traffic = replica_traffic(
        cluster, stack, site, "zero3", layers=np.ones_like(tp),
        layer_parameters=layer_parameters, end_parameters=end_parameters, tp=tp, group=group,
    )  # fmt: skip
    slow = stack.overlap.slow_down
    hide = stack.overlap.dp_gather

    def beside(compute_s: Array, traffic_s: Array) -> Array:
        hidden = np.minimum(traffic_s * hide, compute_s)
        return compute_s + traffic_s - hidden + (slow - 1.0) * hidden

    staged = pp > 1.0
    forward = np.where(staged, forward_s, beside(forward_s, traffic.gather_s))
    both = traffic.gather_s + traffic.reduce_s
    backward = np.where(staged, backward_s, beside(backward_s, both))
    ends = traffic.gather_open_s + traffic.reduce_open_s
    ends = ends * np.where(staged, 1.0, num_micro_batches)
    first = exposed_seconds(
        layers_on_first * traffic.gather_s, hide, layers_on_first * forward_s, slow
    )
    tail = exposed_seconds(
        layers_on_first * traffic.reduce_s, hide, layers_on_first * backward_s, slow
    )
    exposed = ends + np.where(staged, first + tail, 0.0)
    return forward, backward, exposed, np.where(staged, tail, 0.0)
