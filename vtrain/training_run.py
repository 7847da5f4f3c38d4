"""From one step to a whole training run: steps, tokens, days, GPU-hours, dollars.

Pure arithmetic on arrays, one element a design. Only whole steps are trained. Wall time includes
failures, restarts and checkpoints by way of goodput; every GPU-hour of wall time is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

BINDING = ("budget", "deadline", "tokens")
"""What ends the run, by code in `TrainingRun.binding`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """One run a row; counts are whole numbers held in float64 (exact below 2^53).

    Attributes:
        steps: optimizer steps.
        tokens: steps x global batch x sequence length.
        wall_s: seconds from start to end, failures included.
        gpu_hours: GPUs x wall hours.
        cost_usd: gpu_hours x price.
        unspent_usd: what is left of the budget; below the price of one step where the budget
            binds; negative where fixed tokens cost more than the budget; 0 without a budget.
        binding: position in BINDING.
        feasible: at least one step, within budget and deadline.
    """

    steps: FloatArray
    tokens: FloatArray
    wall_s: FloatArray
    gpu_hours: FloatArray
    cost_usd: FloatArray
    unspent_usd: FloatArray
    binding: NDArray[np.int8]
    feasible: NDArray[np.bool_]


def training_run(
    *,
    step_time_s: ArrayLike,
    global_batch_size: ArrayLike,
    seq_length: ArrayLike,
    gpus: ArrayLike,
    goodput: ArrayLike,
    price_usd_per_gpu_hour: ArrayLike,
    deadline_s: float,
    budget_usd: float | None = None,
    budget_gpu_hours: float | None = None,
    budget_flop: float | None = None,
    model_flops_per_token: ArrayLike | None = None,
    tokens: float | None = None,
) -> TrainingRun:
    """Train as long as budget and deadline allow, or until a given number of tokens.

    Several budgets hold together: the smallest ends the run.

    Args:
        step_time_s: seconds of one optimizer step while nothing fails.
        global_batch_size: sequences of one step.
        seq_length: tokens of one sequence.
        gpus: GPUs of the run.
        goodput: share of wall time that advances training (`vtrain.goodput`).
        price_usd_per_gpu_hour: price of one GPU for one hour.
        deadline_s: seconds of wall time at most; inf for none.
        budget_usd: dollars at most.
        budget_gpu_hours: GPU-hours at most.
        budget_flop: model FLOPs at most, forward and backward.
        model_flops_per_token: needed with `budget_flop`.
        tokens: fixed number of tokens, rounded up to whole steps; budget and deadline then only
            decide `feasible`.

    Returns:
        Arrays of the broadcast shape of all inputs.

    Raises:
        UserInputError: when nothing limits the run, or `budget_flop` lacks FLOPs a token.
    """
    step_tokens = np.asarray(global_batch_size, dtype=np.float64) * np.asarray(seq_length)
    step_wall_s = np.asarray(step_time_s, dtype=np.float64) / np.asarray(goodput)
    step_gpu_hours = step_wall_s * np.asarray(gpus, dtype=np.float64) / 3600.0
    step_usd = step_gpu_hours * np.asarray(price_usd_per_gpu_hour, dtype=np.float64)

    limits: list[FloatArray] = []
    if budget_usd is not None:
        limits.append(budget_usd / step_usd)
    if budget_gpu_hours is not None:
        limits.append(budget_gpu_hours / step_gpu_hours)
    if budget_flop is not None:
        if model_flops_per_token is None:
            raise UserInputError("budget_flop needs model_flops_per_token")
        step_flop = step_tokens * np.asarray(model_flops_per_token, dtype=np.float64)
        limits.append(budget_flop / step_flop)
    if not limits and tokens is None and not np.isfinite(deadline_s):
        raise UserInputError("nothing limits the run", hint="give a budget, deadline or tokens")

    affordable = np.asarray(np.inf)
    for limit in limits:
        affordable = np.minimum(affordable, limit)
    in_time = deadline_s / step_wall_s
    affordable, in_time = np.broadcast_arrays(affordable, in_time, step_usd, step_tokens)[:2]
    limit = np.minimum(affordable, in_time)
    if tokens is None:
        steps = np.floor(limit)
        binding = (in_time < affordable).astype(np.int8)
    else:
        steps = np.broadcast_to(np.ceil(tokens / step_tokens), limit.shape).copy()
        binding = np.full(limit.shape, BINDING.index("tokens"), dtype=np.int8)
    gpu_hours = steps * step_gpu_hours
    unspent = (affordable - steps) * step_usd if limits else np.zeros_like(steps)
    return TrainingRun(
        steps=steps,
        tokens=steps * step_tokens,
        wall_s=steps * step_wall_s,
        gpu_hours=gpu_hours,
        cost_usd=gpu_hours * np.asarray(price_usd_per_gpu_hour, dtype=np.float64),
        unspent_usd=unspent,
        binding=binding,
        feasible=(steps >= 1.0) & (steps <= limit),
    )
