"""The boundaries between virtual stages: what a message costs and what it shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.hardware import group_span
from vtrain.schedule.boundaries import far_boundaries

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.stack import Stack
    from vtrain.stage_costs import StageCosts

    Array = npt.NDArray[np.float64]


class Links(NamedTuple):
    """Messages between virtual stages; the ends of the pipeline send 0 seconds.

    Attributes:
        forward_blocking_s: seconds a forward task's send holds its rank, [ranks, chunks].
        forward_flight_s: seconds the message needs after that, [ranks, chunks].
        backward_blocking_s: the same for the backward task's send.
        backward_flight_s: the same.
        shares_nic: whether rank r and rank r + 1 exchange messages through the NICs that their
            replicas' traffic uses, [ranks - 1].
        wire_s: seconds of one message from rank r to rank r + 1, nothing hidden, [ranks - 1].
    """

    forward_blocking_s: Array
    forward_flight_s: Array
    backward_blocking_s: Array
    backward_flight_s: Array
    shares_nic: npt.NDArray[np.bool_]
    wire_s: Array


def plan_links(cluster: Cluster, stack: Stack, plan: Plan, cost: StageCosts) -> Links:
    """Return the boundaries of a plan.

    Args:
        cluster: where.
        stack: what of a message runs on by itself (interleaved schedules only).
        plan: the plan.
        cost: seconds of one message inside and outside an NVLink domain, arrays [1].
    """
    far = far_boundaries(cluster.nvlink_domain, plan.pp, plan.tp * plan.cp * plan.dp)
    # Entry r: from rank r to its successor; the last one leads back to rank 0, to the next chunk.
    seconds = np.where(far, cost.far_hop_s, cost.near_hop_s)
    forward = np.tile(seconds[:, None], (1, plan.virtual_stages))
    backward = np.tile(np.roll(seconds, 1)[:, None], (1, plan.virtual_stages))
    forward[-1, -1] = backward[0, 0] = 0.0
    flying = stack.overlap.send_recv if plan.virtual_stages > 1 else 0.0
    _, replica_domains = group_span(cluster, np.array([plan.dp * plan.cp]), np.array([plan.tp]))
    return Links(
        forward_blocking_s=(1.0 - flying) * forward,
        forward_flight_s=flying * forward,
        backward_blocking_s=(1.0 - flying) * backward,
        backward_flight_s=flying * backward,
        shares_nic=far[:-1] & bool(replica_domains.item() > 1.0),
        wire_s=seconds[:-1],
    )
