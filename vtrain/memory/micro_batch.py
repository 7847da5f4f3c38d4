"""The largest micro-batch that fits and the fastest one; they need not be the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vtrain.memory.breakdown import every_stage
from vtrain.memory.verdict import Verdict, safe_limit_bytes, verdict

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.plan import Plan
    from vtrain.stack import Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """One micro-batch size of a plan.

    Attributes:
        size: sequences.
        peak_bytes: allocated peak of the heaviest rank.
        safe: peak under the limit of a recommendation.
        verdict: the judgement.
        step_time_s: step time, None where nobody could tell.
    """

    size: int
    peak_bytes: float
    safe: bool
    verdict: Verdict
    step_time_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatches:
    """Every micro-batch size that divides the batch of a plan.

    Attributes:
        options: by rising size.
        largest: the largest that is safe; None where none is.
        fastest: the fastest that is safe; None where none is or times are unknown.
    """

    options: tuple[MicroBatch, ...]
    largest: MicroBatch | None
    fastest: MicroBatch | None


def max_micro_batch(
    architecture: Architecture,
    stack: Stack,
    plan: Plan,
    *,
    device_memory_bytes: float,
    seq_length: int,
    is_valid: Callable[[Plan], bool] = lambda plan: True,
    step_time_s: Callable[[Plan], float | None] = lambda plan: None,
    largest_tried: int = 256,
) -> MicroBatches:
    """Try every micro-batch size that divides a replica's share of the global batch.

    Args:
        architecture: the model.
        stack: the software.
        plan: how the model is spread; its micro-batch size is replaced.
        device_memory_bytes: memory of one device.
        seq_length: tokens of one sequence.
        is_valid: whether the framework would start a plan.
        step_time_s: step time of a plan.
        largest_tried: sizes above are not looked at.
    """
    share = plan.global_batch_size // plan.dp
    limit = safe_limit_bytes(device_memory_bytes, stack)
    options = []
    for size in range(1, min(share, largest_tried) + 1):
        if share % size:
            continue
        candidate = replace(plan, micro_batch_size=size)
        if not is_valid(candidate):
            continue
        memory, _ = every_stage(architecture, stack, candidate, seq_length=seq_length)
        peak = float(memory.peak().max())
        options.append(
            MicroBatch(
                size=size,
                peak_bytes=peak,
                safe=peak <= limit,
                verdict=verdict(peak, device_memory_bytes, stack),
                step_time_s=step_time_s(candidate),
            )
        )
    safe = [option for option in options if option.safe]
    timed = [option for option in safe if option.step_time_s is not None]
    return MicroBatches(
        options=tuple(options),
        largest=safe[-1] if safe else None,
        fastest=min(timed, key=lambda option: option.step_time_s or 0.0) if timed else None,
    )
