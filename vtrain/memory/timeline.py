"""Memory of one rank through one iteration, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.memory.breakdown import every_stage

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.plan import Plan
    from vtrain.stack import Stack

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT_GRADIENT, LOSS, STEP = range(5)
EVENTS = ("forward", "backward", "weight gradient", "loss", "optimizer step")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTimeline:
    """Memory of one rank; arrays have one entry an event, in order.

    Attributes:
        stage: pipeline rank.
        events: positions in EVENTS.
        in_flight: chunks of layers whose activations are held after the event.
        during_bytes: largest allocation while the event runs.
        after_bytes: allocation when it is done.
        standing_bytes: states and buffers, always there.
    """

    stage: int
    events: Ints
    in_flight: Ints
    during_bytes: Floats
    after_bytes: Floats
    standing_bytes: float

    @property
    def peak_bytes(self) -> float:
        """Largest allocation of the iteration."""
        return float(self.during_bytes.max())


def memory_timeline(
    architecture: Architecture, stack: Stack, plan: Plan, *, seq_length: int, stage: int = 0
) -> MemoryTimeline:
    """Return the memory of one pipeline rank through an iteration.

    Chunks are the micro-batches of a plain schedule, or micro-batch and virtual stage of an
    interleaved one; each holds an equal share of what the rank keeps at its peak.

    Args:
        architecture: the model.
        stack: the software.
        plan: how the model is spread.
        seq_length: tokens of one sequence.
        stage: pipeline rank.

    Raises:
        UserInputError: a stage the plan does not have.
    """
    if not 0 <= stage < plan.pp:
        raise UserInputError(
            f"stage={stage} must lie between 0 and pp - 1 = {plan.pp - 1}",
            hint=f"nearest valid: {min(max(stage, 0), plan.pp - 1)}",
        )
    memory, _ = every_stage(architecture, stack, plan, seq_length=seq_length)
    row = memory.row(stage)
    order = stage_events(plan, stage)
    change = np.select([order == FORWARD, order == _frees(plan)], [1, -1], 0)
    held = np.cumsum(change)
    one_chunk = float(row.activations) / max(1, int(held.max(initial=1)))
    standing = float(row.standing)
    base = standing + float(row.backward_gradients)
    before = base + (held - change) * one_chunk
    after = base + held * one_chunk
    spikes = np.array([0.0, float(row.backward), float(row.backward), float(row.loss), 0.0])
    during = np.maximum(before, after) + spikes[order]
    step = order == STEP
    during[step] = standing + float(row.optimizer_step)
    after[step] = standing
    return MemoryTimeline(
        stage=stage,
        events=order,
        in_flight=held,
        during_bytes=during,
        after_bytes=after,
        standing_bytes=standing,
    )


def stage_events(plan: Plan, stage: int) -> Ints:
    """Return the order of work on one rank, as positions in EVENTS.

    1F1B and its interleaved form with Megatron-LM's warm-up counts (`vtrain.memory.stage`),
    GPipe, and ZB-H1, whose weight gradients lag by the rank (arXiv 2401.10241, figure 2).

    Args:
        plan: schedule, stages and micro-batches.
        stage: pipeline rank.
    """
    chunks = plan.num_micro_batches * plan.virtual_stages
    if plan.schedule == "gpipe":
        warm_up = chunks
    elif plan.virtual_stages > 1:
        warm_up = min(chunks, 2 * (plan.pp - stage - 1) + (plan.virtual_stages - 1) * plan.pp)
    else:
        warm_up = min(chunks, plan.pp - stage - 1)
    order: list[int] = []

    def forward(chunk: int) -> None:
        order.append(FORWARD)
        # Micro-batches pass in groups of pp; the last virtual stage computes the loss.
        virtual = chunk % (plan.pp * plan.virtual_stages) // plan.pp
        if stage == plan.pp - 1 and virtual == plan.virtual_stages - 1:
            order.append(LOSS)

    for chunk in range(warm_up):
        forward(chunk)
    lag = stage if plan.schedule == "zb-h1" else 0
    for chunk in range(chunks):
        if chunk + warm_up < chunks:
            forward(chunk + warm_up)
        order.append(BACKWARD)
        if plan.schedule == "zb-h1" and chunk >= lag:
            order.append(WEIGHT_GRADIENT)
    if plan.schedule == "zb-h1":
        order += [WEIGHT_GRADIENT] * min(lag, chunks)
    return np.array([*order, STEP], dtype=np.int64)


def _frees(plan: Plan) -> int:
    return WEIGHT_GRADIENT if plan.schedule == "zb-h1" else BACKWARD
