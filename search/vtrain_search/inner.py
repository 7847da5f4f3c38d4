"""The architecture table: the fastest plan for every GPU count and batch of one architecture.

It knows nothing of price, budget, deadline or loss. Blocks of it are filled when somebody asks
and kept, so one table serves every budget and every what-if question about the same memory limit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from vtrain.enumeration import enumerate_plans
from vtrain.estimate import estimate
from vtrain.memory import memory_limit_bytes
from vtrain.memory_limit import SHARE_FITS
from vtrain.plan import PlanTable, concatenate
from vtrain.site import SHIPPED, SiteFactors
from vtrain_search.grid import CELLS_PER_BLOCK, cell_batch, cell_of, plan_space
from vtrain_search.rounding import round_relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack
    from vtrain_search.pins import Pins

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """The fastest plan that fits, one row a (GPU count, batch cell) that has any.

    Attributes:
        plans: one plan a row.
        step_time_s: seconds of one optimizer step.
        mem_peak_bytes: peak of the heaviest rank.
        mfu: model FLOPs utilisation.
        plans_seen: plans enumerated for the whole window, fitting or not.
        plans_fit: those that fit.
        mem_over_limit: smallest peak memory over the limit of any plan in the window; below 1
            when something fits, inf when no plan is valid at all.
        mem_limit_bytes: the limit.
    """

    plans: PlanTable
    step_time_s: FloatArray
    mem_peak_bytes: FloatArray
    mfu: FloatArray
    plans_seen: int
    plans_fit: int
    mem_over_limit: float
    mem_limit_bytes: float

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.step_time_s)


class ArchitectureTable:
    """Lazily filled table of one architecture on one cluster; the same request, the same rows."""

    def __init__(
        self,
        architecture: Architecture,
        cluster: Cluster,
        stack: Stack,
        *,
        seq_length: int,
        pins: Pins,
        site: SiteFactors = SHIPPED,
        memory_limit_share: float = SHARE_FITS,
    ) -> None:
        """Prepare an empty table.

        Args:
            architecture: the model.
            cluster: the hardware.
            stack: the software.
            seq_length: tokens of a sequence.
            pins: limits on single dimensions of a plan.
            site: factors that adapt shipped constants to one real cluster.
            memory_limit_share: of what the context leaves, that a plan may allocate.
        """
        self.architecture = architecture
        self._cluster = cluster
        self._stack = stack
        self._seq_length = seq_length
        self._pins = pins
        self._site = site
        self._limit_share = memory_limit_share
        self._space = plan_space(cluster, stack, pins)
        self._blocks: dict[tuple[int, int], Cells] = {}

    def window(self, keys: Sequence[tuple[int, int]]) -> Cells:
        """Return the rows of some (GPU count, batch block) pairs, in their order.

        Args:
            keys: block b is a half-octave of the batch scale: the cells from b x CELLS_PER_BLOCK
                on.
        """
        missing = [key for key in keys if key not in self._blocks]
        if missing:
            self._fill(missing)
        return _merge([self._blocks[key] for key in keys])

    def _fill(self, keys: list[tuple[int, int]]) -> None:
        gpus, targets, owner = [], [], []
        for position, (count, block) in enumerate(keys):
            for batch in self._batches(block):
                gpus.append(count)
                targets.append(batch)
                owner.append(position)
        if not gpus:
            self._blocks.update(dict.fromkeys(keys, self._nothing()))
            return
        plans, pair = enumerate_plans(
            self.architecture,
            self._cluster,
            stack=self._stack,
            seq_length=self._seq_length,
            gpus=np.array(gpus, dtype=np.int64),
            global_batch_size=np.array(targets, dtype=np.int64),
            space=self._space,
        )
        keep = self._in_cell(plans, np.array(targets, dtype=np.int64)[pair])
        plans, pair = plans.take(keep), pair[keep]
        if np.any(np.diff(pair) < 0):
            order = np.argsort(pair, kind="stable")
            plans, pair = plans.take(order), pair[order]
        found = estimate(
            self.architecture, self._cluster, self._stack, plans,
            seq_length=self._seq_length, site=self._site, memory_limit_share=self._limit_share,
        )  # fmt: skip
        leaders = _leaders(pair, found.fits, found.step_time_s, plans)
        block_of_row = np.array(owner, dtype=np.int64)[pair]
        block_of_leader = block_of_row[leaders]
        over = np.full(len(keys), np.inf)
        np.minimum.at(over, block_of_row, found.mem_peak_bytes / found.mem_limit_bytes)
        seen = np.bincount(block_of_row, minlength=len(keys))
        fit = np.bincount(block_of_row[found.fits], minlength=len(keys))
        for position, key in enumerate(keys):
            rows = leaders[block_of_leader == position]
            self._blocks[key] = Cells(
                plans=plans.take(rows),
                step_time_s=found.step_time_s[rows],
                mem_peak_bytes=found.mem_peak_bytes[rows],
                mfu=found.mfu[rows],
                plans_seen=int(seen[position]),
                plans_fit=int(fit[position]),
                mem_over_limit=float(over[position]),
                mem_limit_bytes=float(found.mem_limit_bytes),
            )

    def _nothing(self) -> Cells:
        """Return a block without rows."""
        none = np.empty(0)
        return Cells(
            plans=PlanTable.from_plans([]), step_time_s=none, mem_peak_bytes=none, mfu=none,
            plans_seen=0, plans_fit=0, mem_over_limit=float(np.inf),
            mem_limit_bytes=memory_limit_bytes(
                self._cluster.device.memory_bytes, self._stack, self._limit_share
            ),
        )  # fmt: skip

    def _batches(self, block: int) -> list[int]:
        """Return the target batches of a block; small batches share a cell and appear once."""
        cells = np.arange(block * CELLS_PER_BLOCK, (block + 1) * CELLS_PER_BLOCK)
        if "global_batch_size" in self._pins.exact:
            wanted = (int(v) for v in self._pins.exact["global_batch_size"])
            return [b for b in sorted(wanted) if cell_of(b) in cells]
        batches = cell_batch(cells)
        own = (cell_of(batches) == cells) & np.array(
            [self._pins.allows("global_batch_size", int(b)) for b in batches]
        )
        return [int(b) for b in batches[own]]

    def _in_cell(self, plans: PlanTable, targets: IntArray) -> NDArray[np.bool_]:
        """Keep plans whose rounded batch is in their target's cell, so no plan appears twice."""
        keep = cell_of(plans.global_batch_size) == cell_of(targets)
        if self._pins.names("dp"):
            allowed = np.array([self._pins.allows("dp", int(d)) for d in np.unique(plans.dp)])
            keep &= allowed[np.searchsorted(np.unique(plans.dp), plans.dp)]
        if "global_batch_size" in self._pins.ranges:
            low, high = self._pins.ranges["global_batch_size"]
            keep &= (plans.global_batch_size >= low) & (plans.global_batch_size <= high)
        return np.asarray(keep)


def _leaders(
    pair: IntArray, fits: NDArray[np.bool_], step_time_s: FloatArray, plans: PlanTable
) -> IntArray:
    """Return the best row of each pair that has one that fits: fastest a sequence, simplest.

    Times are rounded before they are compared, so that the last bit of a sum never decides; equal
    ones are ordered by the plan itself. Rows of one pair stand together.
    """
    usable = np.flatnonzero(fits)
    if not len(usable):
        return usable
    owner = pair[usable]
    per_sequence = round_relative(step_time_s[usable] / plans.global_batch_size[usable])
    starts = np.flatnonzero(np.diff(owner, prepend=owner[0] - 1))
    fastest = np.minimum.reduceat(per_sequence, starts)
    lengths = np.diff(np.append(starts, len(owner)))
    equal = usable[per_sequence == np.repeat(fastest, lengths)]
    ties = [getattr(plans, f.name)[equal] for f in fields(PlanTable)]
    order = equal[np.lexsort((*reversed(ties), pair[equal]))]
    return np.asarray(order[np.diff(pair[order], prepend=-1) != 0])


def _merge(parts: Sequence[Cells]) -> Cells:
    """Stack blocks into one window."""
    return Cells(
        plans=concatenate([p.plans for p in parts]),
        step_time_s=np.concatenate([p.step_time_s for p in parts]),
        mem_peak_bytes=np.concatenate([p.mem_peak_bytes for p in parts]),
        mfu=np.concatenate([p.mfu for p in parts]),
        plans_seen=sum(p.plans_seen for p in parts),
        plans_fit=sum(p.plans_fit for p in parts),
        mem_over_limit=min(p.mem_over_limit for p in parts),
        mem_limit_bytes=parts[0].mem_limit_bytes,
    )
