"""Where gradient and parameter traffic meets the pipeline: its first and its last tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.replica_traffic import exposed_seconds
from vtrain.schedule.tasks import FORWARD

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.simulation.rank_costs import RankCosts
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]


def first_tasks(costs: RankCosts, stack: Stack, *, contention: bool) -> tuple[Array, Array]:
    """Return how long each rank's first task waits for its parameters, and its message for a NIC.

    Every rank gathers from the start of the step. What its first forward can hide may come later;
    the rest must be there before. A message that arrives through a NIC on which the receiver still
    gathers shares it: both finish later by the shorter of the two.

    Returns:
        Seconds of waiting and of added flight, each [ranks].
    """
    ranks = len(costs.optimizer_s)
    wait, flight = np.zeros(ranks), np.zeros(ranks)
    task_s = costs.parts_s[FORWARD, :, 0].sum(axis=1)
    blocking = costs.links.forward_blocking_s[:, 0]
    flying = costs.links.forward_flight_s[:, 0]
    needed = costs.traffic.gather_open_s + exposed_seconds(
        costs.traffic.gather_s, stack.overlap.dp_gather, costs.forward_window_s,
        stack.overlap.slow_down,
    )  # fmt: skip
    under_way = costs.traffic.gather_open_s + costs.traffic.gather_s
    arrival = 0.0
    for rank in range(ranks):
        wait[rank] = max(needed[rank] - arrival, 0.0)
        end = arrival + wait[rank] + task_s[rank]
        if rank + 1 < ranks:
            if contention and costs.links.shares_nic[rank]:
                left = under_way[rank + 1] - (end - blocking[rank])
                flight[rank] = min(costs.links.wire_s[rank], max(left, 0.0))
                needed[rank + 1] += flight[rank]
            arrival = end + flying[rank] + flight[rank]
    return wait, flight


def last_tasks(
    costs: RankCosts, stack: Stack, sharding: str, *, contention: bool
) -> tuple[Array, Array]:
    """Return how long reduction goes on after each rank's last task, and delays its message.

    Where the stack reduces behind the last backward, what is left of it shares the NIC with the
    gradient that this rank hands to the one before; elsewhere reduction starts after the message.

    Returns:
        Seconds of reduction that show and of added flight, each [ranks].
    """
    overlap = stack.overlap
    share = overlap.dp_gather if sharding == "zero3" else overlap.dp_reduce
    tail = costs.traffic.reduce_open_s + exposed_seconds(
        costs.traffic.reduce_s, share, costs.backward_window_s, overlap.slow_down
    )
    flight = np.zeros_like(tail)
    if contention and share > 0.0:
        shared = np.where(costs.links.shares_nic, costs.links.wire_s, 0.0)
        flight[1:] = np.minimum(shared, tail[1:])
    return tail, flight
