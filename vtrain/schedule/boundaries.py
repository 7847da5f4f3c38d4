"""Where a pipeline crosses NVLink domains, and which rank that makes the slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.schedule.stages import layers_of_stages

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture

    Array = npt.NDArray[np.float64]


class PipelineShape(NamedTuple):
    """What sets inner ranks apart; arrays over plans [n]. "Far" steps leave the NVLink domain.

    The pace rank is the inner rank with most layers, the latest of equals, because fewer faster
    ranks follow it; where all inner ranks hold equally many, the latest of those with most far
    steps. With fewer than three ranks everything about inner ranks is 0.

    Attributes:
        far: far steps between neighbours, of pp - 1.
        first_far: whether rank 0's step to rank 1 is far (0 or 1).
        last_far: whether the step to the last rank is far.
        wrap_far: whether the way back from the last rank to rank 0 is far.
        inner_far: far steps of all inner ranks, both sides counted.
        pace_far: far steps of the pace rank, of 2.
        behind: inner ranks behind the pace rank.
        behind_layers: their layers.
        behind_far: their far steps.
    """

    far: Array
    first_far: Array
    last_far: Array
    wrap_far: Array
    inner_far: Array
    pace_far: Array
    behind: Array
    behind_layers: Array
    behind_far: Array


def far_boundaries(domain: int, ranks: int, stride: int) -> npt.NDArray[np.bool_]:
    """Return which steps from a pipeline rank to the next leave the NVLink domain, [ranks].

    Pipelines are laid out outermost, so the first rank starts a domain. A stage waits for its
    slowest member, so one GPU that leaves is enough. The last entry is the way back from the last
    rank to the first.

    Args:
        domain: GPUs that share NVLink.
        ranks: pipeline ranks.
        stride: GPUs of one stage.
    """
    if stride >= domain:
        return np.full(ranks, ranks > 1)
    place = np.arange(ranks * stride) // domain
    leaves = place != np.roll(place, -stride)
    return np.asarray(leaves.reshape(ranks, stride).any(axis=1))


def pipeline_shapes(
    architecture: Architecture, layer_split: str, domain: int, pp: Array, stride: Array
) -> PipelineShape:
    """Return the shape of many pipelines; each distinct one is looked at once.

    Args:
        architecture: the model.
        layer_split: one of `vtrain.stack.LAYER_SPLITS`.
        domain: GPUs that share NVLink.
        pp: pipeline ranks, [n].
        stride: GPUs of one stage, [n].
    """
    # Beyond the domain all strides are alike. A look-up by whole number: sorting the plans would
    # cost more than the physics.
    key = (pp * (domain + 1.0) + np.minimum(stride, domain)).astype(np.int64)
    present = np.flatnonzero(np.bincount(key)) if len(key) else np.empty(0, dtype=np.int64)
    table = np.zeros((len(PipelineShape._fields), int(present[-1]) + 1 if len(present) else 1))
    for value in present.tolist():
        table[:, value] = _shape(architecture, layer_split, domain, *divmod(value, domain + 1))
    return PipelineShape(*table[:, key])


def _shape(
    architecture: Architecture, layer_split: str, domain: int, pp: int, stride: int
) -> tuple[float, ...]:
    inner_count = max(pp - 2, 0)
    alike = stride >= domain or pp * stride <= domain
    ends = {"even": 0, "counted-ends": 2}.get(layer_split)
    if alike and (pp < 3 or (ends is not None and (architecture.num_layers + ends) % pp == 0)):
        away = float(stride >= domain and pp > 1)
        return (
            away * (pp - 1), away, away, away, 2.0 * away * inner_count,
            2.0 * away * (pp > 2), 0.0, 0.0, 0.0,
        )  # fmt: skip
    far = far_boundaries(domain, pp, stride).astype(np.int64)
    steps = (far[:-2] + far[1:-1]) if pp > 2 else np.zeros(0, dtype=np.int64)
    layers = layers_of_stages(architecture, layer_split, pp)[1:-1]
    pace = 0
    if pp > 2:
        load = steps if np.all(layers == layers[0]) else layers
        pace = inner_count - 1 - int(load[::-1].argmax())
    return (
        float(far[:-1].sum()), float(far[0] if pp > 1 else 0), float(far[-2] if pp > 1 else 0),
        float(far[-1]), float(steps.sum()), float(steps[pace] if pp > 2 else 0),
        float(max(inner_count - 1 - pace, 0)), float(layers[pace + 1 :].sum()),
        float(steps[pace + 1 :].sum()),
    )  # fmt: skip
