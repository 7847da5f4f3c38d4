"""Peak memory of many plans at once: the ends and the heaviest inner stage of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.memory.stage import Place, Sizes, shared_terms, stage_memory
from vtrain.schedule.stages import stage_layers

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.plan import Structure
    from vtrain.stack import Stack

    Floats = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

STAGES = ("first", "middle", "last")


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakMemory:
    """Peak memory of each plan, shape [n].

    Attributes:
        peak_bytes: allocated on the heaviest rank at its worst moment.
        heaviest_stage: position in STAGES of the stage that rank belongs to.
        first_stage_bytes: allocated on stage 0 at its worst moment.
        reserved_bytes: held by the allocator on the heaviest rank.
    """

    peak_bytes: Floats
    heaviest_stage: npt.NDArray[np.int8]
    first_stage_bytes: Floats
    reserved_bytes: Floats


def peak_memory(
    architecture: Architecture,
    stack: Stack,
    structure: Structure,
    *,
    tp: npt.ArrayLike,
    cp: npt.ArrayLike,
    pp: npt.ArrayLike,
    dp: npt.ArrayLike,
    virtual_stages: npt.ArrayLike,
    micro_batch_size: npt.ArrayLike,
    num_micro_batches: npt.ArrayLike,
    seq_length: int,
) -> PeakMemory:
    """Return the peak memory of plans that share one structure.

    Args:
        architecture: the model.
        stack: the software.
        structure: recompute, sharding, sequence parallelism and schedule of all plans.
        tp: tensor-parallel degrees; this and every further size is a whole number or an array
            of them, and all broadcast together.
        cp: context-parallel degrees.
        pp: pipeline stages.
        dp: data-parallel replicas.
        virtual_stages: chunks of layers a rank holds.
        micro_batch_size: sequences of one micro-batch.
        num_micro_batches: micro-batches of one replica and step.
        seq_length: tokens of one sequence.
    """
    columns = np.broadcast_arrays(
        tp, cp, pp, dp, virtual_stages, micro_batch_size, num_micro_batches
    )
    shape = columns[0].shape
    sizes = Sizes(*(np.asarray(column, dtype=np.float64).ravel() for column in columns))
    stages = np.asarray(columns[2], dtype=np.int64).ravel()
    layers = stage_layers(architecture, stack.layer_split, stages)
    shared = shared_terms(architecture, stack, structure, sizes, seq_length)
    single = (stages == 1).astype(np.float64)

    def place(stage: Floats | float, held: IntArray, ends: tuple[Floats | float, ...]) -> Place:
        return Place(stage, held.astype(np.float64), *ends)

    places = [
        place(0.0, layers.first, (1.0, single)),
        place(1.0, layers.second, (0.0, 0.0)),
        place(sizes.pp - 1.0, layers.last, (single, 1.0)),
    ]
    if np.any(layers.middle != layers.second):
        # Only splits that are not front-loaded have a later inner stage with more layers.
        places.append(place(layers.middle_index.astype(np.float64), layers.middle, (0.0, 0.0)))
    memories = [stage_memory(stack, structure, shared, where) for where in places]
    peaks = [memory.peak() for memory in memories]
    inner = np.where(stages > 2, peaks[1] if len(peaks) == 3 else np.maximum(*peaks[1::2]), 0.0)
    peak_bytes = np.maximum(np.maximum(peaks[0], inner), peaks[2])
    heaviest = np.where(peaks[0] >= peak_bytes, 0, np.where(inner >= peak_bytes, 1, 2))
    if stack.state.step_copies_flat:
        reserved = np.maximum.reduce([memory.reserved(stack) for memory in memories])
    else:
        reserved = peak_bytes * stack.reserved_over_allocated
    return PeakMemory(
        peak_bytes=peak_bytes.reshape(shape),
        heaviest_stage=heaviest.astype(np.int8).reshape(shape),
        first_stage_bytes=peaks[0].reshape(shape),
        reserved_bytes=reserved.reshape(shape),
    )
