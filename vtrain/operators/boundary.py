"""Seconds of handing a micro-batch from one pipeline stage to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.collectives import collective_seconds, send_recv_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.hardware import Cluster
    from vtrain.plan import Structure
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]


def boundary_seconds(
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    structure: Structure,
    boundary_bytes: Array,
    *,
    tp: Array,
    cp: Array,
    pp: Array,
    dp: Array,
) -> Array:
    """Return the seconds one hand-over between stages takes in one direction, [n].

    The activation is whole on every tensor-parallel rank unless sequence parallelism splits it.
    Frameworks that split it for the way send 1/tp through each NIC and gather on arrival
    (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).

    Args:
        cluster: where.
        stack: how the framework sends.
        site: factors of the real machine.
        structure: sequence parallelism of the group.
        boundary_bytes: activation that one rank holds at the boundary, [n].
        tp: tensor-parallel degree, float64 [n]; the other degrees likewise.
        cp: context-parallel degree.
        pp: pipeline ranks.
        dp: replicas.
    """
    whole = boundary_bytes
    split = stack.splits_boundary and not structure.sequence_parallel
    sent = whole / tp if split else whole
    seconds = send_recv_seconds(cluster, sent, tp * cp * dp, group_size=pp)
    seconds = seconds * stack.boundary_messages
    if split and bool(np.any(tp > 1.0)):
        seconds = seconds + collective_seconds(cluster, "all_gather", whole, tp, 1.0)
    return np.where(pp > 1.0, seconds * site.communication, 0.0)
