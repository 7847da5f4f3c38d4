"""How fast one job runs on how many nodes: the only thing a scheduler sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import InfeasibleError, UserInputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.plan import Plan
    from vtrain.tenancy.upkeep import Upkeep

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedTable:
    """Step time at every node count worth using, fewer nodes first.

    Attributes:
        nodes: node counts, ascending, [n].
        step_time_s: seconds of one step while nothing fails, strictly falling, [n].
        plans: the plan behind each entry.
        state_bytes: bytes of one checkpoint.
    """

    nodes: IntArray
    step_time_s: Array
    plans: tuple[Plan, ...]
    state_bytes: float

    def __post_init__(self) -> None:
        """Refuse tables a scheduler cannot climb.

        Raises:
            UserInputError: when empty or not monotonic.
        """
        falling = bool(np.all(np.diff(self.step_time_s) < 0.0))
        if not len(self.nodes) or not falling or not np.all(np.diff(self.nodes) > 0):
            raise UserInputError("a speed table needs more nodes to mean less step time")

    def limited(self, least: int, most: int) -> SpeedTable | None:
        """Return the entries within limits on the nodes, None when none is left."""
        rows = np.flatnonzero((self.nodes >= least) & (self.nodes <= most))
        if not len(rows):
            return None
        return SpeedTable(
            nodes=self.nodes[rows], step_time_s=self.step_time_s[rows],
            plans=tuple(self.plans[i] for i in rows), state_bytes=self.state_bytes,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A speed table with its upkeep; level 0 is "not running", level k the k-th entry.

    Arrays have one element a level. The tuples repeat them for scalar code, which reads single
    values many times faster from a tuple than from an array.

    Attributes:
        nodes: nodes held.
        planned: steps a second that a scheduler expects.
        real: steps a second between simulated failures.
        pause: seconds without training after a move to the level.
        level_at: largest level that fits a number of free nodes, [cluster nodes + 1].
        interval: seconds of training between checkpoints.
        restart_s: seconds from a failure to training again.
        thriftiest_node_s: node-seconds of a step at the level that needs fewest.
    """

    nodes: IntArray
    planned: Array
    real: Array
    pause: Array
    level_at: IntArray
    interval: tuple[float, ...]
    restart_s: float
    thriftiest_node_s: float
    nodes_of: tuple[int, ...]
    planned_of: tuple[float, ...]
    real_of: tuple[float, ...]
    pause_of: tuple[float, ...]
    level_of: tuple[int, ...]

    @property
    def top(self) -> int:
        """The highest level."""
        return len(self.nodes_of) - 1


def make_curve(
    table: SpeedTable, upkeep: Upkeep, *, cluster_nodes: int, gpus_per_node: int
) -> Curve:
    """Attach upkeep to a speed table.

    Args:
        table: step times; entries beyond the cluster are left out.
        upkeep: checkpoints, failures, rescaling.
        cluster_nodes: nodes of the cluster.
        gpus_per_node: GPUs of a node.

    Raises:
        InfeasibleError: when no entry fits the cluster.
    """
    fitting = table.limited(1, cluster_nodes)
    if fitting is None:
        raise InfeasibleError(
            f"needs {int(table.nodes[0]) * gpus_per_node} GPUs at least, the cluster has "
            f"{cluster_nodes * gpus_per_node}"
        )
    gpus = (fitting.nodes * gpus_per_node).astype(np.float64)
    rate: Array = 1.0 / fitting.step_time_s
    planned = rate * upkeep.planned_share(gpus, table.state_bytes)
    # Failures may eat what more nodes bring: a level that is no faster is no level.
    keep = np.concatenate([[True], planned[1:] > np.maximum.accumulate(planned)[:-1]])
    gpus, rate, planned = gpus[keep], rate[keep], planned[keep]
    nodes = np.concatenate([[0], fitting.nodes[keep]]).astype(np.int64)
    real = np.concatenate([[0.0], rate * upkeep.real_share(gpus, table.state_bytes)])
    pause = np.concatenate([[0.0], upkeep.pause_s(gpus, table.state_bytes)])
    planned = np.concatenate([[0.0], planned])
    interval = upkeep.interval_s(gpus, table.state_bytes)
    level_at = np.searchsorted(nodes, np.arange(cluster_nodes + 1), side="right") - 1
    return Curve(
        nodes=nodes, planned=planned, real=real, pause=pause, level_at=level_at,
        interval=(1.0, *interval.tolist()), restart_s=upkeep.restart_s,
        thriftiest_node_s=float((nodes[1:] / planned[1:]).min()),
        nodes_of=tuple(nodes.tolist()), planned_of=tuple(planned.tolist()),
        real_of=tuple(real.tolist()), pause_of=tuple(pause.tolist()),
        level_of=tuple(level_at.tolist()),
    )  # fmt: skip
