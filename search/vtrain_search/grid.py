"""The inner grid: GPU counts a team can rent and global batches on a logarithmic scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.enumeration import default_space, with_values
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.enumeration import PlanSpace
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack
    from vtrain_search.pins import Pins

    IntArray = NDArray[np.int64]

CELLS_PER_OCTAVE = 4
"""Batches a factor 2^(1/4) apart: being half a cell off costs 0.145 ln(2^(1/8))^2 = 0.11 % of the
tokens (batch term of the loss model), less than one plan's rounding."""
CELLS_PER_BLOCK = 2
"""Cells filled together: half an octave."""
CELL_HALF_WIDTH = np.log(2.0) / (2 * CELLS_PER_OCTAVE)
_PRIMES = (2, 3, 5, 7)


def smooth_numbers(limit: int) -> IntArray:
    """Return every whole number up to a limit that has no prime factor above 7, ascending."""
    found = np.array([1], dtype=np.int64)
    for prime in _PRIMES:
        powers = prime ** np.arange(int(np.log(max(limit, 1)) / np.log(prime) + 1e-9) + 1)
        products = np.multiply.outer(found, powers).ravel()
        found = products[products <= limit]
    return np.sort(found)


def gpu_counts(cluster: Cluster, *, max_gpus: int, pins: Pins) -> IntArray:
    """Return the GPU counts worth trying: whole nodes whose number has no factor above 7.

    A count with a large prime factor leaves most degrees of parallelism without a divisor.

    Args:
        cluster: node size and size of the cluster.
        max_gpus: GPUs at most, whatever the cluster has.
        pins: a fixed `gpus` is taken even if it is no product of small primes.

    Raises:
        UserInputError: when no whole node is left.
    """
    node = cluster.gpus_per_node
    limit = min(max_gpus, cluster.max_gpus)
    if "gpus" in pins.exact:
        wanted = np.array(sorted(int(v) for v in pins.exact["gpus"]), dtype=np.int64)
        for count in wanted:
            if count > limit or (count % node and count > node):
                near = max(1, min(limit // node, round(int(count) / node))) * node
                raise UserInputError(
                    f"gpus={count} must be whole nodes of {node} and at most {limit} on "
                    f"{cluster.name}",
                    hint=f"nearest valid: gpus={near}",
                )
        return wanted
    if limit < node:
        raise UserInputError(
            f"at most {limit} GPUs is less than one node of {node} on {cluster.name}",
            hint=f"nearest valid: {node} GPUs",
        )
    counts = smooth_numbers(limit // node) * node
    allowed = np.array([pins.allows("gpus", int(c)) for c in counts])
    if not allowed.any():
        low, high = pins.ranges["gpus"]
        near = int(counts[np.argmin(np.abs(counts - low))])
        raise UserInputError(
            f"--range gpus={low:g}..{high:g} holds no whole number of {node}-GPU nodes up to "
            f"{limit} on {cluster.name}",
            hint=f"nearest valid: gpus={near}",
        )
    return np.asarray(counts[allowed])


def cell_of(batch: NDArray[np.float64] | IntArray | float) -> IntArray:
    """Return the cell on the logarithmic batch scale that a batch (sequences) falls in."""
    logs = np.log2(np.maximum(np.asarray(batch, dtype=np.float64), 1.0))
    return np.floor(CELLS_PER_OCTAVE * logs + 0.5).astype(np.int64)


def cell_batch(cell: IntArray | int) -> IntArray:
    """Return the batch (sequences) in the middle of a cell, at least 1."""
    batches = np.exp2(np.asarray(cell) / CELLS_PER_OCTAVE)
    return np.maximum(1, np.rint(batches)).astype(np.int64)


def plan_space(cluster: Cluster, stack: Stack, pins: Pins) -> PlanSpace:
    """Return the plans to enumerate: what a careful user would consider, less what is pinned.

    Raises:
        UserInputError: when a pinned tensor-parallel degree does not fit into a node.
    """
    space = default_space(cluster, stack, batch_tolerance=2.0 * CELL_HALF_WIDTH)
    fixed = "global_batch_size" in pins.exact
    changes: dict[str, tuple[object, ...] | str] = {}
    for key in ("tp", "cp", "pp", "virtual_stages", "micro_batch_size"):
        if not pins.names(key):
            continue
        if key in pins.exact:
            values = tuple(sorted(int(v) for v in pins.exact[key]))
        else:
            low, high = pins.ranges[key]
            values = tuple(v for v in range(max(1, int(low)), int(high) + 1) if pins.allows(key, v))
            if key == "tp":
                values = tuple(v for v in values if cluster.nvlink_domain % v == 0)
        if not values:
            raise UserInputError(f"--range {key} holds no whole number")
        if key == "tp" and (odd := [v for v in values if cluster.nvlink_domain % v]):
            near = min(
                (d for d in range(1, cluster.nvlink_domain + 1) if cluster.nvlink_domain % d == 0),
                key=lambda d: abs(d - odd[0]),
            )
            raise UserInputError(
                f"tp={odd[0]} must divide the {cluster.nvlink_domain} GPUs of an NVLink domain of "
                f"{cluster.name}",
                hint=f"nearest valid: tp={near}",
            )
        changes[key] = values
    for key in ("recompute", "sharding", "schedule"):
        if key in pins.exact:
            changes[key] = tuple(pins.exact[key])
    on = pins.exact.get("sequence_parallel")
    if on is not None:
        changes["sequence_parallel"] = "both" if len(on) > 1 else ("on" if on[0] else "off")
    space = with_values(space, **changes)
    return with_values(space, batch_tolerance=0.0) if fixed else space  # type: ignore[arg-type]
