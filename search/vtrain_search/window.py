"""Which part of an architecture table one budget can use, grown until the best row is inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.operators.workload import device_precision
from vtrain_search.grid import CELLS_PER_BLOCK, cell_of, gpu_counts
from vtrain_search.laws import critical_batch_tokens
from vtrain_search.objective import Scored, score

if TYPE_CHECKING:
    from vtrain_search.grid import IntArray
    from vtrain_search.inner import ArchitectureTable
    from vtrain_search.problem import Case, Offer, Problem

TYPICAL_MFU = 0.45
"""Middle of the 36-54 % that tuned public recipes measure; only says where to look first."""
# Three GPU counts around the one that spends the budget in time, and two octaves of batches from
# half an octave below the critical one: measured to hold nine best rows in ten off the edge, and
# grown for the tenth. Growing costs a second call of the simulator, whose cost is mostly fixed.
_COUNTS_ABOVE = 1
_BLOCKS_BELOW, _BLOCKS_ABOVE = 1, 2
_ROUNDS = 16
_JUMP, _JUMPS = 3.0, 2


@dataclass(slots=True)
class _Window:
    """Inclusive positions in the GPU counts and inclusive batch blocks."""

    low: int
    high: int
    block_low: int
    block_high: int
    jumps: int = 0


def peak_flops(problem: Problem, offer: Offer) -> float:
    """Return the dense peak (FLOP/s a GPU) of the precision in which training would run."""
    device = offer.cluster.device
    return float(device.peak_flops[device_precision(offer.cluster, problem.stack)])


def usable_gpu_hours(problem: Problem, case: Case, offer: Offer, flops_per_token: float) -> float:
    """Return the GPU-hours a case can spend: its budget, or what cap and deadline leave of it.

    Args:
        problem: gives the precision.
        case: budget and limits.
        offer: cluster and price.
        flops_per_token: model FLOPs of one token, for budgets stated in FLOPs or tokens.
    """
    hours = case.affordable_gpu_hours(offer)
    rate = TYPICAL_MFU * peak_flops(problem, offer) * 3600.0
    if case.flop is not None:
        hours = min(hours, case.flop / rate)
    if case.tokens is not None:
        hours = min(hours, case.tokens * flops_per_token / rate)
    return float(min(hours, case.gpu_limit(offer) * case.deadline_s / 3600.0))


def search_window(
    problem: Problem, case: Case, offer: Offer, table: ArchitectureTable, *, wide: bool = False
) -> Scored:
    """Return the scored window that holds the best run of one architecture under one budget.

    Fewer GPUs than spend the budget before the deadline leave money, more lose efficiency, and
    batches far from the critical one lose tokens: the best row lies near both. The window starts
    there and grows wherever the best row touches its edge.

    Args:
        problem: stack, sequence length, loss model and sanity limits.
        case: budget and limits.
        offer: cluster and price.
        table: the architecture's table on the offer's cluster.
        wide: start with half to four times the GPUs that the budget needs and two octaves of
            batches on either side, to check the narrow start.
    """
    counts = gpu_counts(offer.cluster, max_gpus=case.gpu_limit(offer), pins=problem.pins)
    flops = table.architecture.training_flops_per_token(problem.seq_length)
    hours = usable_gpu_hours(problem, case, offer, flops)
    window = _start(problem, case, offer, counts, hours, flops)
    if wide:
        full = hours * 3600.0 / case.deadline_s
        window.low = min(window.low, int(np.searchsorted(counts, 0.5 * full)))
        window.high = max(window.high, int(np.searchsorted(counts, 4.0 * full)) - 1)
        if "global_batch_size" not in problem.pins.exact:
            window.block_low = max(0, window.block_low - 3)
            window.block_high += 2
    for _ in range(_ROUNDS):
        cells = table.window(
            [int(c) for c in counts[window.low : window.high + 1]],
            range(window.block_low, window.block_high + 1),
        )
        scored = score(problem, case, offer, table.architecture, cells)
        grown = _grow(problem, window, scored, counts)
        if not grown:
            break
    return scored


def _start(
    problem: Problem, case: Case, offer: Offer, counts: IntArray, hours: float, flops: float
) -> _Window:
    full = hours * 3600.0 / case.deadline_s
    first = min(int(np.searchsorted(counts, full * (1.0 - 1e-9))), len(counts) - 1)
    tokens = case.tokens or TYPICAL_MFU * peak_flops(problem, offer) * hours * 3600.0 / flops
    batch = critical_batch_tokens(np.asarray(max(tokens, 1.0))) / problem.seq_length
    if "global_batch_size" in problem.pins.exact:
        cells = cell_of(np.array(problem.pins.exact["global_batch_size"], dtype=np.int64))
        low, high = (int(c) // CELLS_PER_BLOCK for c in (cells.min(), cells.max()))
    else:
        if bounds := problem.pins.bounds("global_batch_size"):
            batch = np.clip(batch, *bounds)
        block = int(cell_of(batch)) // CELLS_PER_BLOCK
        low, high = max(0, block - _BLOCKS_BELOW), block + _BLOCKS_ABOVE
    return _Window(
        low=max(0, first - 1),
        high=min(len(counts) - 1, first + _COUNTS_ABOVE),
        block_low=low,
        block_high=high,
    )


def _grow(problem: Problem, window: _Window, scored: Scored, counts: IntArray) -> bool:
    """Widen the window where its best row touches an edge; return whether it changed."""
    last = len(counts) - 1
    before = (window.low, window.high, window.block_low, window.block_high)
    if scored.best is not None:
        plans = scored.cells.plans
        count = int(plans.gpus[scored.best])
        block = int(cell_of(plans.global_batch_size[scored.best])) // CELLS_PER_BLOCK
        if count == counts[window.high]:
            window.high = min(last, window.high + 2)
        if count == counts[window.low]:
            window.low = max(0, window.low - 1)
        if block == window.block_high:
            window.block_high += 1
        if block == window.block_low:
            window.block_low = max(0, window.block_low - 1)
    elif len(scored.cells) == 0:
        _jump(window, counts)
    elif (batch := _batch_for_steps(problem, scored)) is not None:
        block = int(cell_of(batch)) // CELLS_PER_BLOCK
        if block < window.block_low:
            window.block_low, window.block_high = max(0, block - 1), block
    return before != (window.low, window.high, window.block_low, window.block_high)


def _jump(window: _Window, counts: IntArray) -> None:
    """Nothing fits or divides: try a few times as many GPUs, which hold more of the states.

    Twice only: sharding over replicas stops helping soon, and a run on eight times the GPUs that
    the budget needs is over in an eighth of the time.
    """
    if window.jumps >= _JUMPS or window.high >= len(counts) - 1:
        return
    window.jumps += 1
    first = min(len(counts) - 1, int(np.searchsorted(counts, _JUMP * counts[window.high])))
    window.low, window.high = first, min(len(counts) - 1, first + 1)


def _batch_for_steps(problem: Problem, scored: Scored) -> float | None:
    """Return the batch with which the fewest allowed steps are reached; None if they are."""
    run, plans = scored.run, scored.cells.plans
    if bool((run.steps >= problem.min_steps).any()):
        return None
    sequences = float(np.max(run.steps * plans.global_batch_size))
    return max(1.0, sequences / problem.min_steps)
