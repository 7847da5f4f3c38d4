"""Which part of an architecture table one budget can use, grown until the best row is inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.operators.workload import device_precision
from vtrain_search.grid import CELLS_PER_BLOCK, cell_of, gpu_counts
from vtrain_search.laws import critical_batch_tokens
from vtrain_search.objective import Scored, score, wanted_tokens

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain_search.grid import IntArray
    from vtrain_search.inner import ArchitectureTable
    from vtrain_search.problem import Case, Offer, Problem

TYPICAL_MFU = 0.45
"""Middle of the 36-54 % that tuned public recipes measure; only says where to look first."""
FAST_MFU = 0.65
"""About the most that any plan reaches; fewer GPUs than it needs cannot be in time."""
# Three GPU counts around the one that spends the budget in time, and two octaves of batches from
# half an octave below the critical one: measured to hold nine best rows in ten off the edge, and
# grown for the tenth. Growing costs a second call of the simulator, whose cost is mostly fixed.
_COUNTS_BELOW, _COUNTS_ABOVE = 1, 1
_BLOCKS_BELOW, _BLOCKS_ABOVE = 1, 2
_ROUNDS = 16
_PROBES = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
"""Multiples of the GPUs that the budget needs where few replicas share the optimizer state: more
replicas may free the memory that a lower tensor-parallel degree or no recomputation needs."""
_MANY_REPLICAS = 24
"""From here on the optimizer's 12 bytes a parameter weigh under half a byte a GPU."""
_LAST_RESORT = 9.0
"""Multiple of the GPUs to try when nothing fits at all: a run on more is over in a tenth of the
time."""

Key = tuple[int, int]
"""Position in the GPU counts and batch block."""


def peak_flops(problem: Problem, offer: Offer) -> float:
    """Return the dense peak (FLOP/s a GPU) of the precision in which training would run."""
    device = offer.cluster.device
    return float(device.peak_flops[device_precision(offer.cluster, problem.stack)])


def usable_gpu_hours(
    problem: Problem, case: Case, offer: Offer, flops_per_token: float, tokens: float | None
) -> float:
    """Return the GPU-hours a case can spend: its budget, or what cap and deadline leave of it.

    Args:
        problem: gives the precision.
        case: budget and limits.
        offer: cluster and price.
        flops_per_token: model FLOPs of one token.
        tokens: training tokens where they are given.
    """
    hours = case.searched.affordable_gpu_hours(offer)
    rate = TYPICAL_MFU * peak_flops(problem, offer) * 3600.0
    if case.flop is not None:
        hours = min(hours, case.flop / rate)
    if tokens is not None:
        hours = min(hours, tokens * flops_per_token / rate)
    return float(min(hours, case.gpu_limit(offer) * case.deadline_s / 3600.0))


def search_window(
    problem: Problem, case: Case, offer: Offer, table: ArchitectureTable, *, wide: bool = False
) -> Scored:
    """Return the scored window that holds the best run of one architecture under one budget.

    Fewer GPUs than spend the budget before the deadline leave money, more lose efficiency, and
    batches far from the critical one lose tokens: the best row lies near both. The window starts
    there and grows until every neighbour of its best row has been seen.

    Args:
        problem: stack, sequence length, loss model and sanity limits.
        case: budget and limits.
        offer: cluster and price.
        table: the architecture's table on the offer's cluster.
        wide: start with half to four times the GPUs that the budget needs and two octaves of
            batches on either side, to check the narrow start.
    """
    place = _Place.of(problem, case, offer, table.architecture)
    keys = place.wide() if wide else place.narrow()
    probed = wide
    if case.objective == "time" and (case.usd or case.gpu_hours):
        # A tight budget may afford no plan but the cheapest: the fastest is sought from there too.
        cheapest = search_window(problem, replace(case, objective="cost"), offer, table, wide=wide)
        keys |= _missing(problem, place, cheapest)
    for _ in range(_ROUNDS):
        cells = table.window([(int(place.counts[i]), block) for i, block in sorted(keys)])
        scored = score(problem, case, offer, table.architecture, cells)
        missing = _missing(problem, place, scored) - keys
        if not missing and not probed:
            probed = True
            missing = place.probes(scored) - keys
        if not missing:
            break
        keys |= missing
    return scored


def first_keys(
    problem: Problem, case: Case, offer: Offer, architecture: Architecture
) -> list[tuple[int, int]]:
    """Return the (GPU count, batch block) pairs that `search_window` looks at first.

    Who asks many cases of one table fills it in one go with the keys of all: a call of the
    simulator costs the same for few rows and for many.
    """
    place = _Place.of(problem, case, offer, architecture)
    return [(int(place.counts[i]), block) for i, block in sorted(place.narrow())]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where one budget looks first in the table of one architecture.

    Attributes:
        counts: GPU counts that can be rented.
        needed: GPUs that spend the budget exactly at the deadline.
        first: position of the smallest count that is enough.
        frugal: position of the smallest count that the fastest plans may need, where tokens are
            given: the fewest GPUs that are in time are often the cheapest.
        blocks: first and last batch block to look at.
        fixed_batch: the batch is pinned, so no other block exists.
        hurry: the shortest run is wanted, which may take many more GPUs than the deadline needs.
    """

    counts: IntArray
    needed: float
    first: int
    frugal: int
    blocks: tuple[int, int]
    fixed_batch: bool
    hurry: bool

    @classmethod
    def of(cls, problem: Problem, case: Case, offer: Offer, architecture: Architecture) -> _Place:
        """Find the place from the budget, the deadline and the critical batch."""
        counts = gpu_counts(offer.cluster, max_gpus=case.gpu_limit(offer), pins=problem.pins)
        flops = architecture.training_flops_per_token(problem.seq_length)
        given = wanted_tokens(problem, case, architecture)
        hours = usable_gpu_hours(problem, case, offer, flops, given)
        needed = hours * 3600.0 / case.deadline_s
        first = min(int(np.searchsorted(counts, needed * (1.0 - 1e-9))), len(counts) - 1)
        quick = needed * TYPICAL_MFU / FAST_MFU
        frugal = first if given is None else int(np.searchsorted(counts, quick))
        fixed = "global_batch_size" in problem.pins.exact
        if fixed:
            cells = cell_of(np.array(problem.pins.exact["global_batch_size"], dtype=np.int64))
            blocks = (int(cells.min()) // CELLS_PER_BLOCK, int(cells.max()) // CELLS_PER_BLOCK)
        else:
            tokens = given or TYPICAL_MFU * peak_flops(problem, offer) * hours * 3600 / flops
            tokens = float(np.clip(tokens, 1e6, 1e17))
            batch = critical_batch_tokens(np.asarray(tokens)) / problem.seq_length
            if bounds := problem.pins.bounds("global_batch_size"):
                batch = np.clip(batch, *bounds)
            block = int(cell_of(batch)) // CELLS_PER_BLOCK
            blocks = (max(0, block - _BLOCKS_BELOW), block + _BLOCKS_ABOVE)
        return cls(
            counts=counts, needed=needed, first=first, frugal=frugal, blocks=blocks,
            fixed_batch=fixed, hurry=case.objective == "time",
        )  # fmt: skip

    def narrow(self) -> set[Key]:
        """Return the keys every evaluation starts with."""
        low = max(0, min(self.first - _COUNTS_BELOW, self.frugal))
        high = min(len(self.counts) - 1, self.first + _COUNTS_ABOVE)
        positions = {*range(low, high + 1)}
        if self.hurry:
            steps = np.exp2(np.arange(0.0, np.log2(self.counts[-1] / self.counts[low]) + 1.0, 0.5))
            ladder = np.searchsorted(self.counts, self.counts[low] * steps)
            positions |= {min(int(i), len(self.counts) - 1) for i in ladder}
        return self._rectangle(sorted(positions), *self.blocks)

    def wide(self) -> set[Key]:
        """Return every key from half to four times the GPUs and two octaves of batches around."""
        low = min(max(0, self.first - 1), int(np.searchsorted(self.counts, 0.5 * self.needed)))
        high = max(self.first, int(np.searchsorted(self.counts, 4.0 * self.needed)) - 1)
        more = (0, 0) if self.fixed_batch else (3, 2)
        blocks = (max(0, self.blocks[0] - more[0]), self.blocks[1] + more[1])
        return self._rectangle(range(low, min(high, len(self.counts) - 1) + 1), *blocks)

    def probes(self, scored: Scored) -> set[Key]:
        """Return keys at multiples of the GPUs where more replicas could free memory."""
        if scored.best is not None:
            if scored.cells.plans.dp[scored.best] >= _MANY_REPLICAS:
                return set()
            factors: tuple[float, ...] = _PROBES
        else:
            factors = _PROBES if len(scored.cells) else (*_PROBES, _LAST_RESORT)
        last = len(self.counts) - 1
        smallest = max(self.needed, float(self.counts[0]))
        found = {int(np.searchsorted(self.counts, f * smallest * (1 - 1e-9))) for f in factors}
        low, high = self.blocks
        middle = (low, high) if self.fixed_batch or scored.best is None else (low + 1, high - 1)
        return self._rectangle([i for i in sorted(found) if i <= last], *middle)

    def _rectangle(self, positions: Iterable[int], low: int, high: int) -> set[Key]:
        return {(i, block) for i in positions for block in range(low, high + 1)}


def _missing(problem: Problem, place: _Place, scored: Scored) -> set[Key]:
    """Return the neighbours of the best row, or smaller batches where steps are too few."""
    if scored.best is not None:
        plans = scored.cells.plans
        at = int(np.searchsorted(place.counts, int(plans.gpus[scored.best])))
        block = int(cell_of(plans.global_batch_size[scored.best])) // CELLS_PER_BLOCK
        positions = [i for i in (at - 1, at, at + 1) if 0 <= i < len(place.counts)]
        blocks = [block] if place.fixed_batch else [b for b in (block - 1, block, block + 1)
                                                    if b >= 0]  # fmt: skip
        return {(i, b) for i in positions for b in blocks}
    batch = None if place.fixed_batch else _batch_for_steps(problem, scored)
    if batch is None:
        return set()
    block = int(cell_of(batch)) // CELLS_PER_BLOCK
    return {(place.first, b) for b in (block - 1, block) if 0 <= b < place.blocks[0]}


def _batch_for_steps(problem: Problem, scored: Scored) -> float | None:
    """Return the batch with which the fewest allowed steps are reached; None if they are."""
    run, plans = scored.run, scored.cells.plans
    if not len(run.steps) or bool((run.steps >= problem.min_steps).any()):
        return None
    sequences = float(np.max(run.steps * plans.global_batch_size))
    return max(1.0, sequences / problem.min_steps)
