"""How many layers each pipeline rank holds, as each framework splits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.errors import unknown_name
from vtrain.stack import LAYER_SPLITS

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture

    IntArray = npt.NDArray[np.int64]


class StageLayers(NamedTuple):
    """Layers of the stages that can be the heaviest, one entry a plan.

    Attributes:
        first: layers of stage 0.
        second: layers of stage 1; 0 where pp < 3.
        middle: layers of the heaviest inner stage; 0 where pp < 3.
        middle_index: which stage that is (the earliest of equals).
        last: layers of stage pp - 1; equal to `first` where pp = 1.
    """

    first: IntArray
    second: IntArray
    middle: IntArray
    middle_index: IntArray
    last: IntArray


def layers_of_stages(
    architecture: Architecture, layer_split: str, pp: int, virtual_stages: int = 1
) -> IntArray:
    """Return the layers that each pipeline rank holds, shape [pp], summing to num_layers.

    * "even": the remainder goes to the earliest virtual stages, one layer each (torchtitan
      `distributed/pipeline_parallel.py`, DeepSpeed `partition_uniform`; Megatron-LM accepts no
      remainder unless told how).
    * "counted-ends": embedding and head count as one layer each (BLOOM's
      `type:transformer|embedding`, bigscience tr11-176B-ml chronicles), so the end stages hold
      one layer fewer.
    * "cost-rule": nanotron `src/nanotron/models/base.py`, `build_model`: a block stays on rank r
      until the running cost passes total x (r + 1) / pp; costs of `get_block_compute_costs`
      (layer 4 h^2 + 3 h f, head V h, everything else 0).

    Args:
        architecture: the model.
        layer_split: one of `vtrain.stack.LAYER_SPLITS`.
        pp: pipeline ranks.
        virtual_stages: chunks a rank holds; the rank's total does not depend on it, because
            chunk c of rank r is virtual stage c x pp + r.
    """
    del virtual_stages
    layers = architecture.num_layers
    rank = np.arange(pp, dtype=np.int64)
    if layer_split == "even" or pp == 1:
        return layers // pp + (rank < layers % pp)
    if layer_split == "counted-ends":
        slots = (layers + 2) // pp + (rank < (layers + 2) % pp)
        slots[0] -= 1
        slots[-1] -= 1
        return slots
    if layer_split == "cost-rule":
        h = architecture.hidden_size
        layer_cost = 4 * architecture.query_size * h + 3 * h * architecture.ffn_hidden_size
        total = layers * layer_cost + architecture.vocab_size * h
        # The block that passes the threshold still belongs to the rank; a rank takes at least
        # one block, because the rule moves on by one rank a block.
        ends = (total * (rank + 1)) // (pp * layer_cost) + 1
        ends = np.minimum(np.maximum.accumulate(ends - rank) + rank, layers)
        ends[-1] = layers
        return np.diff(ends, prepend=0)
    raise unknown_name("layer split", layer_split, LAYER_SPLITS)


def stage_layers(architecture: Architecture, layer_split: str, pp: IntArray) -> StageLayers:
    """Return the layers of the stages that can be the heaviest, for many plans at once.

    Args:
        architecture: the model.
        layer_split: one of `vtrain.stack.LAYER_SPLITS`.
        pp: pipeline ranks of each plan, shape [n].
    """
    # A look-up by degree: pp is small, and sorting the plans would cost more than the physics.
    degrees = np.flatnonzero(np.bincount(pp))
    table = np.zeros((5, int(degrees[-1]) + 1 if len(degrees) else 1), dtype=np.int64)
    for degree in degrees:
        layers = layers_of_stages(architecture, layer_split, int(degree))
        inner = layers[1:-1]
        index = int(inner.argmax()) if len(inner) else 0
        table[:, degree] = (
            layers[0],
            inner[0] if len(inner) else 0,
            inner[index] if len(inner) else 0,
            index + 1,
            layers[-1],
        )
    return StageLayers(*table[:, pp])
