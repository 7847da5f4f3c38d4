"""Itemised memory of every stage of one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.memory.stage import (
    MOMENTS,
    Place,
    Sizes,
    StageMemory,
    in_flight,
    shared_terms,
    stage_memory,
)
from vtrain.plan import Structure
from vtrain.schedule.stages import layers_of_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.plan import Plan
    from vtrain.stack import Stack

STANDING = ("weights", "gradients", "optimizer", "buffers")
AT_MOMENT = {
    "backward": (*STANDING, "backward_gradients", "activations", "backward"),
    "loss": (*STANDING, "backward_gradients", "activations", "loss"),
    "optimizer step": (*STANDING, "optimizer_step"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StageBreakdown:
    """Where the memory of one stage goes at its worst moment.

    Attributes:
        stage: pipeline rank.
        layers: layers it holds.
        parameters: parameters on one of its ranks.
        micro_batches_in_flight: how many it holds activations of.
        moment: when the peak occurs, one of `vtrain.memory.stage.MOMENTS`.
        items_bytes: what is allocated at that moment, by item; sums to peak_bytes.
        moments_bytes: allocated bytes at each moment.
        peak_bytes: allocated at the worst moment.
        reserved_bytes: expected to be held by the allocator.
        context_bytes: held outside the allocator.
        heaviest: no other stage has a higher peak (the first of equals).
    """

    stage: int
    layers: int
    parameters: float
    micro_batches_in_flight: float
    moment: str
    items_bytes: dict[str, float]
    moments_bytes: dict[str, float]
    peak_bytes: float
    reserved_bytes: float
    context_bytes: float
    heaviest: bool

    @property
    def total_bytes(self) -> float:
        """What the driver shows in use (nvidia-smi): reserved and context."""
        return self.reserved_bytes + self.context_bytes


def memory_breakdown(
    architecture: Architecture,
    stack: Stack,
    plan: Plan,
    *,
    seq_length: int,
    layout: Sequence[int] | None = None,
) -> list[StageBreakdown]:
    """Return one itemised breakdown a pipeline stage.

    Args:
        architecture: the model.
        stack: the software.
        plan: how the model is spread.
        seq_length: tokens of one sequence.
        layout: layers of each stage where the user states them; the stack's split when None.

    Raises:
        UserInputError: a layout that does not hold every layer once.
    """
    layers = _layers(architecture, stack, plan, layout)
    memory, depth = every_stage(architecture, stack, plan, seq_length=seq_length, layout=layout)
    moments = np.stack(memory.moments())
    peaks, reserved = moments.max(axis=0), memory.reserved(stack)
    heaviest = int(peaks.argmax())
    result = []
    for stage in range(plan.pp):
        row = memory.row(stage)
        moment = MOMENTS[int(moments[:, stage].argmax())]
        peak = float(peaks[stage])
        result.append(
            StageBreakdown(
                stage=stage,
                layers=int(layers[stage]),
                parameters=float(row.parameters),
                micro_batches_in_flight=float(depth[stage]),
                moment=moment,
                items_bytes={name: float(getattr(row, name)) for name in AT_MOMENT[moment]},
                moments_bytes={
                    name: float(value)
                    for name, value in zip(MOMENTS, moments[:, stage], strict=True)
                },
                peak_bytes=peak,
                reserved_bytes=float(reserved[stage]),
                context_bytes=stack.context_bytes,
                heaviest=stage == heaviest,
            )
        )
    return result


def _layers(
    architecture: Architecture, stack: Stack, plan: Plan, layout: Sequence[int] | None
) -> npt.NDArray[np.int64]:
    if layout is None:
        return layers_of_stages(architecture, stack.layer_split, plan.pp, plan.virtual_stages)
    if len(layout) != plan.pp or sum(layout) != architecture.num_layers or min(layout) < 0:
        raise UserInputError(
            f"layout {list(layout)} must name pp={plan.pp} stages that hold "
            f"num_layers={architecture.num_layers} layers in all"
        )
    return np.asarray(layout, dtype=np.int64)


def every_stage(
    architecture: Architecture,
    stack: Stack,
    plan: Plan,
    *,
    seq_length: int,
    layout: Sequence[int] | None = None,
) -> tuple[StageMemory, npt.NDArray[np.float64]]:
    """Return the memory of all stages as rows, and the micro-batches each holds in flight.

    Args:
        architecture: the model.
        stack: the software.
        plan: how the model is spread.
        seq_length: tokens of one sequence.
        layout: layers of each stage where the user states them.
    """
    structure = Structure(plan.recompute, plan.sharding, plan.sequence_parallel, plan.schedule)
    sizes = Sizes(
        *(
            np.full(plan.pp, float(value))
            for value in (
                plan.tp, plan.cp, plan.pp, plan.dp, plan.virtual_stages,
                plan.micro_batch_size, plan.num_micro_batches,
            )
        )
    )  # fmt: skip
    layers = _layers(architecture, stack, plan, layout)
    index = np.arange(plan.pp, dtype=np.float64)
    place = Place(
        index,
        layers.astype(np.float64),
        (index == 0).astype(np.float64),
        (index == plan.pp - 1).astype(np.float64),
    )
    shared = shared_terms(architecture, stack, structure, sizes, seq_length)
    memory = stage_memory(stack, structure, shared, place)
    _, layer_batches = in_flight(plan.schedule, shared, place)
    return memory, layer_batches / np.maximum(place.layers, 1.0)
