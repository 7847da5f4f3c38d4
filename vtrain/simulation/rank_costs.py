"""What every pipeline rank of one plan does: tasks, sends, traffic over its replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.data_parallel import (
    accumulation_seconds_per_parameter,
    optimizer_seconds,
    table_parameters,
    tied_table_seconds,
)
from vtrain.operators import Workload, layer_costs
from vtrain.plan import Structure
from vtrain.replica_traffic import ReplicaTraffic, exposed_seconds, replica_traffic
from vtrain.schedule.stages import layers_of_stages, stage_layers
from vtrain.schedule.tasks import BACKWARD, FORWARD, WEIGHT_GRADIENT
from vtrain.simulation.events import DATA_PARALLEL, HOST, PARTS, RECOMPUTE, SEND, TENSOR_PARALLEL
from vtrain.simulation.links import Links, plan_links
from vtrain.stage_costs import stage_costs

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.operators import LayerCosts
    from vtrain.plan import Plan
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack
    from vtrain.stage_costs import StageCosts

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCosts:
    """Seconds by rank; one replica, since all do the same.

    Attributes:
        layers: layers, [ranks, chunks].
        parts_s: parts of each task, [task kinds, ranks, chunks, parts] in the order of
            `vtrain.simulation.events.PARTS`.
        links: the boundaries between virtual stages.
        traffic: gradients and parameters over the replicas, once a step, [ranks].
        forward_window_s: compute of the first micro-batch that gathering can hide behind, [ranks].
        backward_window_s: compute of the last one that the reduction can hide behind, [ranks].
        tied_s: adding the gradients of the two copies of a tied table on the end ranks.
        optimizer_s: optimizer, [ranks].
        step_host_s: host seconds of every step that depend on nothing.
    """

    layers: IntArray
    parts_s: Array
    links: Links
    traffic: ReplicaTraffic
    forward_window_s: Array
    backward_window_s: Array
    tied_s: float
    optimizer_s: Array
    step_host_s: float


def rank_costs(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    plan: Plan,
    seq_length: int,
) -> RankCosts:
    """Return what the ranks of a plan do, from the operator costs the closed form uses."""
    structure = Structure(plan.recompute, plan.sharding, plan.sequence_parallel, plan.schedule)
    tp, cp, pp, dp, mbs, count = (
        np.array([float(value)])
        for value in (plan.tp, plan.cp, plan.pp, plan.dp, plan.micro_batch_size,
                      plan.num_micro_batches)
    )  # fmt: skip
    cost = stage_costs(
        architecture, cluster, stack, site, structure,
        stage_layers(architecture, stack.layer_split, np.array([plan.pp])),
        seq_length=seq_length, tp=tp, cp=cp, pp=pp, dp=dp, micro_batch_size=mbs,
        num_micro_batches=count,
    )  # fmt: skip
    layer = layer_costs(
        Workload(
            architecture=architecture, cluster=cluster, stack=stack, site=site,
            structure=structure, seq_length=seq_length, tp=tp, cp=cp, micro_batch_size=mbs,
        )
    )  # fmt: skip
    totals = layers_of_stages(architecture, stack.layer_split, plan.pp)
    layers = chunk_layers(totals, plan.virtual_stages)
    tables = _tables(architecture, stack, plan)
    accumulate = accumulation_seconds_per_parameter(cluster, stack, site)
    links = plan_links(cluster, stack, plan, cost)
    parts = _parts(cost, layer, layers, tables * accumulate, links, plan.schedule == "zb-h1")

    ranks = np.ones(plan.pp)
    group = ranks * (plan.dp * plan.cp)
    per_layer = architecture.parameters_per_layer / plan.tp
    ends = tables.sum(axis=1)
    traffic = replica_traffic(
        cluster, stack, site, plan.sharding, layers=totals.astype(np.float64),
        layer_parameters=ranks * per_layer, end_parameters=ends, tp=ranks * plan.tp, group=group,
    )  # fmt: skip
    if plan.sharding == "zero3" and plan.pp == 1:
        # Without a pipeline shards move with every micro-batch: layers carry the traffic of
        # theirs in their own times, embedding and head move in the open.
        parts[FORWARD, :, 0, PARTS.index(DATA_PARALLEL)] += traffic.gather_open_s
        parts[BACKWARD, :, 0, PARTS.index(DATA_PARALLEL)] += traffic.reduce_open_s
        traffic = ReplicaTraffic(*(np.zeros(1) for _ in traffic))
    elif plan.sharding == "zero2":
        # Gradients are scattered after every micro-batch.
        shown = exposed_seconds(
            traffic.reduce_s, stack.overlap.dp_reduce, totals * layer.backward_s,
            stack.overlap.slow_down,
        )  # fmt: skip
        chunk = shown[:, None] / plan.virtual_stages
        parts[BACKWARD, :, :, PARTS.index(DATA_PARALLEL)] += chunk
        traffic = traffic._replace(reduce_s=np.zeros(plan.pp))
    tied = 0.0
    if architecture.tied_embeddings:
        tied = tied_table_seconds(
            cluster, stack, site, table_parameters(architecture, stack, tp), tp=tp, group=dp * cp,
            pp=pp,
        ).item()  # fmt: skip
    return RankCosts(
        layers=layers,
        parts_s=parts,
        links=links,
        traffic=traffic,
        forward_window_s=totals * layer.forward_s,
        backward_window_s=totals * layer.backward_s,
        tied_s=tied,
        optimizer_s=optimizer_seconds(
            cluster, stack, site, plan.sharding, totals * per_layer + ends, group
        ),
        step_host_s=stack.host.step_s * site.host,
    )


def chunk_layers(totals: IntArray, chunks: int) -> IntArray:
    """Spread each rank's layers over its chunks, [ranks, chunks].

    Uneven ranks are short where the embedding or the head sits: rank 0 in its first chunks, every
    other rank in its last ones.
    """
    short = -totals % chunks
    place = np.arange(chunks)
    lacks = place[None, :] >= (chunks - short)[:, None]
    lacks[0] = place < short[0]
    return -(-totals[:, None] // chunks) - lacks


def _tables(architecture: Architecture, stack: Stack, plan: Plan) -> Array:
    """Parameters of embedding and head on each rank and chunk, [ranks, chunks]."""
    table = table_parameters(architecture, stack, np.array([float(plan.tp)])).item()
    tables = np.zeros((plan.pp, plan.virtual_stages))
    tables[0, 0] += table
    if plan.pp > 1 or not architecture.tied_embeddings:
        tables[-1, -1] += table
    return tables


def _parts(
    cost: StageCosts,
    layer: LayerCosts,
    layers: IntArray,
    table_accumulation_s: Array,
    links: Links,
    splits_backward: bool,
) -> Array:
    """Seconds of each part of each task, [task kinds, ranks, chunks, parts]."""
    parts = np.zeros((3, *layers.shape, len(PARTS)))
    own = PARTS.index(-1)
    again, traffic, shards, host, send = (
        PARTS.index(kind) for kind in (RECOMPUTE, TENSOR_PARALLEL, DATA_PARALLEL, HOST, SEND)
    )
    forward, backward, weight = parts[FORWARD], parts[BACKWARD], parts[WEIGHT_GRADIENT]
    first, last = (0, 0), (-1, -1)

    forward[..., own] = layers * (layer.forward_s - layer.forward_communication_s)
    forward[..., traffic] = layers * layer.forward_communication_s
    forward[..., shards] = layers * (cost.traffic.layer_forward_s - layer.forward_s)
    forward[..., host] = layers * (cost.layer_forward_s - cost.traffic.layer_forward_s)
    forward[first][own] += cost.embedding_forward_s.item()
    forward[last][own] += cost.head_forward_s.item()
    forward[..., send] = links.forward_blocking_s

    accumulation = layers * cost.layer_accumulation_s + table_accumulation_s
    backward[..., own] = accumulation + layers * (
        layer.backward_s - layer.backward_communication_s - layer.recompute_s
    )
    backward[..., again] = layers * layer.recompute_s
    backward[..., traffic] = layers * layer.backward_communication_s
    extra = layer.recompute_s if splits_backward else 0.0
    backward[..., shards] = layers * (cost.traffic.layer_backward_s - layer.backward_s - extra)
    backward[..., host] = layers * (cost.layer_backward_s - cost.traffic.layer_backward_s)
    backward[first][own] += cost.embedding_backward_s.item()
    backward[last][own] += cost.head_backward_s.item()
    backward[..., send] = links.backward_blocking_s
    if splits_backward:
        weight[..., again] = layers * layer.recompute_s
        weight[..., own] = layers * layer.weight_gradient_s + accumulation
        weight[..., host] = layers * (
            cost.layer_weight_gradient_s - layer.weight_gradient_s - layer.recompute_s
        )
        for part in (own, host):
            backward[..., part] -= weight[..., part]
    # Differences of equal sums leave rounding behind.
    parts[np.abs(parts) < 1e-15] = 0.0
    return parts
