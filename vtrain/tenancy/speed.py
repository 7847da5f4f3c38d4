"""Speed tables: the best plan of every node count, or one fixed plan scaled by data parallelism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.enumeration import default_space, enumerate_plans
from vtrain.errors import InfeasibleError
from vtrain.estimate import estimate
from vtrain.goodput import CHECKPOINT_BYTES_PER_PARAMETER
from vtrain.plan import RECOMPUTE
from vtrain.tenancy.curve import SpeedTable
from vtrain.units import GIB

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import PlanTable
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

SPEEDS = ("vtrain", "data-parallel")
_FACTORS = (2, 3, 5, 7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """Every valid plan that fits, with its step time; node counts and plans as columns."""

    plans: PlanTable
    nodes: IntArray
    step_time_s: Array


def node_counts(most: int) -> IntArray:
    """Return the node counts worth planning for: those without prime factors above 7.

    Other counts leave GPUs idle under almost every batch size (the same rule as the search's).
    """
    counts = np.array([1], dtype=np.int64)
    for factor in _FACTORS:
        power = factor ** np.arange(int(np.log2(max(most, 1))) + 1)
        counts = np.unique((counts[:, None] * power[None, :]).ravel())
        counts = counts[counts <= most]
    return counts


def price_plans(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    *,
    seq_length: int,
    global_batch_size: int,
    cluster_nodes: int,
    recompute: tuple[str, ...] = RECOMPUTE,
) -> Priced:
    """Estimate every valid plan on every node count, in one table.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        site: factors of the real machine.
        seq_length: tokens of a sequence.
        global_batch_size: sequences of a step, the same on every node count.
        cluster_nodes: nodes of the shared cluster.
        recompute: kinds of recomputation a plan may use.

    Raises:
        InfeasibleError: when no plan is valid and fits.
    """
    gpus = node_counts(cluster_nodes) * cluster.gpus_per_node
    plans, _ = enumerate_plans(
        architecture, cluster, stack=stack, seq_length=seq_length, gpus=gpus,
        global_batch_size=np.full(len(gpus), global_batch_size),
        space=replace(default_space(cluster, stack), recompute=recompute),
    )  # fmt: skip
    if len(plans):
        result = estimate(architecture, cluster, stack, plans, seq_length=seq_length, site=site)
        rows = np.flatnonzero(result.fits)
        if len(rows):
            plans = plans.take(rows)
            return Priced(
                plans=plans, nodes=plans.gpus // cluster.gpus_per_node,
                step_time_s=result.step_time_s[rows],
            )  # fmt: skip
        need = (
            f"the leanest needs {result.mem_peak_bytes.min() / GIB:.1f} GiB of "
            f"{result.mem_limit_bytes / GIB:.1f} GiB a GPU; more GPUs may hold it"
        )
    else:
        need = "no degrees divide model and batch; take a batch with more divisors"
    raise InfeasibleError(
        f"no plan fits {cluster_nodes * cluster.gpus_per_node} GPUs at global batch "
        f"{global_batch_size}, sequence {seq_length}",
        hint=need,
    )


def best_table(priced: Priced, state_bytes: float) -> SpeedTable:
    """Return the fastest plan of every node count that is faster than all smaller ones."""
    return _climbing(priced, np.arange(len(priced.nodes)), state_bytes)


def fixed_table(priced: Priced, stack: Stack, state_bytes: float) -> SpeedTable:
    """Return one fixed plan scaled by data parallelism, as schedulers assume that profile it.

    The layout follows the published heuristic (Narayanan et al. 2021, arXiv 2104.04473, takeaways
    1 and 2): that of the fewest nodes that train the model at all, tensor parallelism up to the
    node first, then pipeline stages; with the recomputation the stack uses by habit (more where
    that never fits). Micro-batch and interleaving are those with the highest mean speed, relative
    to the fastest of the layout, over all node counts the layout can use. After that only the
    number of replicas changes.
    """
    plans = priced.plans
    for recompute in dict.fromkeys((stack.default_recompute, *RECOMPUTE)):
        rows = np.flatnonzero(plans.recompute == RECOMPUTE.index(recompute))
        if len(rows):
            break
    first = rows[np.lexsort((-plans.tp[rows], priced.nodes[rows]))[0]]
    for column in ("tp", "pp", "cp", "recompute", "sharding", "sequence_parallel", "schedule"):
        values = getattr(plans, column)
        rows = rows[values[rows] == values[first]]
    _, count = np.unique(priced.nodes[rows], return_inverse=True)
    fastest = np.full(count.max() + 1, np.inf)
    np.minimum.at(fastest, count, priced.step_time_s[rows])
    speed = fastest[count] / priced.step_time_s[rows]
    variants = np.stack([plans.virtual_stages[rows], plans.micro_batch_size[rows]])
    _, variant = np.unique(variants, axis=1, return_inverse=True)
    variant = variant.ravel()
    chosen = int(np.argmax(np.bincount(variant, weights=speed)))
    return _climbing(priced, rows[variant == chosen], state_bytes)


def state_bytes_of(architecture: Architecture) -> float:
    """Return the bytes of one checkpoint."""
    return CHECKPOINT_BYTES_PER_PARAMETER * float(architecture.parameters)


def _climbing(priced: Priced, rows: IntArray, state_bytes: float) -> SpeedTable:
    """Return the fastest of some rows for each node count, where more nodes are faster."""
    nodes, time = priced.nodes[rows], priced.step_time_s[rows]
    order = np.lexsort((time, nodes))
    _, first = np.unique(nodes[order], return_index=True)
    best = order[first]
    record = np.minimum.accumulate(time[best])
    keep = best[np.concatenate([[True], time[best][1:] < record[:-1]])]
    return SpeedTable(
        nodes=nodes[keep], step_time_s=time[keep],
        plans=tuple(priced.plans.plan(int(rows[i])) for i in keep), state_bytes=state_bytes,
    )  # fmt: skip
