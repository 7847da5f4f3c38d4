"""Gradient and parameter traffic of one rank over its replicas, and how much of it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.latency.collectives import collective_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.hardware import Cluster
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]

# Share of a compute window that collectives can really use: they start with the first finished
# bucket and the last bucket starts when compute ends (time model prototype, measured 0.8).
WINDOW = 0.8


class ReplicaTraffic(NamedTuple):
    """Seconds of traffic, as if nothing ran beside it; arrays over rows.

    Attributes:
        gather_s: parameters, may hide behind a forward pass.
        gather_open_s: parameters that nothing hides.
        reduce_s: gradients, may hide behind a backward pass.
        reduce_open_s: gradients that nothing hides.
    """

    gather_s: Array
    gather_open_s: Array
    reduce_s: Array
    reduce_open_s: Array


def replica_traffic(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    sharding: str,
    *,
    layers: Array,
    layer_parameters: Array,
    end_parameters: Array,
    tp: Array,
    group: Array,
) -> ReplicaTraffic:
    """Return the traffic of one pass over the parameters of a rank.

    Fully sharded parameters move layer by layer, embedding and head on their own and exposed
    (they are the root unit, gathered before anything can run); everything else in buckets.

    Args:
        cluster: where.
        stack: dtypes, buckets, collectives.
        site: factors of the real machine.
        sharding: one of `vtrain.plan.SHARDING`.
        layers: layers on the rank, [n].
        layer_parameters: parameters of one layer on one tensor-parallel rank, [n].
        end_parameters: parameters of embedding and head on the rank, [n].
        tp: stride of the group, [n].
        group: ranks that hold the same parameters, [n].
    """
    factor = site.communication
    if sharding == "zero3":

        def move(op: str, bytes_: Array) -> Array:
            return collective_seconds(cluster, op, bytes_, group, tp) * factor

        gather, reduce = stack.parameter_gather_bytes, stack.gradient_reduce_bytes
        return ReplicaTraffic(
            gather_s=layers * move("all_gather", layer_parameters * gather),
            gather_open_s=move("all_gather", end_parameters * gather),
            reduce_s=layers * move("reduce_scatter", layer_parameters * reduce),
            reduce_open_s=move("reduce_scatter", end_parameters * reduce),
        )
    parameters = layers * layer_parameters + end_parameters
    bucket = stack.bucket_bytes or None
    zero = np.zeros_like(parameters)
    reduce_with = {"none": "all_reduce", "zero1": stack.zero1_reduces_with}.get(
        sharding, "reduce_scatter"
    )
    reduce_s = collective_seconds(
        cluster, reduce_with, parameters * stack.gradient_reduce_bytes, group, tp,
        bucket_bytes=bucket,
    ) * factor  # fmt: skip
    gather_s = zero
    if sharding != "none":
        gather_s = collective_seconds(
            cluster, "all_gather", parameters * stack.parameter_gather_bytes, group, tp,
            bucket_bytes=bucket,
        ) * factor  # fmt: skip
    return ReplicaTraffic(gather_s, zero, reduce_s, zero)


def exposed_seconds(traffic_s: Array, share: float, window_s: Array, slow_down: float) -> Array:
    """Return how much traffic lengthens a step in which `window_s` of compute could hide it.

    Args:
        traffic_s: the traffic alone, [n].
        share: part of it that is issued early enough to hide.
        window_s: seconds of compute it may run beside, [n].
        slow_down: factor on compute while a collective runs beside it.
    """
    hidden = np.minimum(traffic_s * share, WINDOW * window_s)
    exposed: Array = traffic_s - hidden + (slow_down - 1.0) * hidden
    return exposed
