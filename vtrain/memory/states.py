"""Bytes each parameter of a rank costs, by sharding: weights, gradients, optimizer, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.plan import SHARDING

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.plan import Structure
    from vtrain.stack import Stack

    Floats = npt.NDArray[np.float64]


class StateRates(NamedTuple):
    """Bytes a parameter, one entry a plan or the same for all.

    Attributes:
        weights: computing copy.
        gradients: accumulation buffer.
        optimizer: master weights and moments.
        backward_gradients: gradients alive only from forward to the end of backward.
        optimizer_step: copies made during the step.
    """

    weights: Floats | float
    gradients: Floats | float
    optimizer: Floats | float
    backward_gradients: float
    optimizer_step: Floats | float

    @property
    def standing(self) -> Floats | float:
        """What is there all the time."""
        return self.weights + self.gradients + self.optimizer

    def at(self, row: int) -> StateRates:
        """Return the rates of one row."""
        return StateRates(
            *(float(value if np.ndim(value) == 0 else np.asarray(value)[row]) for value in self)
        )


def state_rates(stack: Stack, structure: Structure, shards: Floats) -> StateRates:
    """Return what sharding leaves of the stack's bytes a parameter.

    zero1 divides the optimizer, zero2 (or what the stack names) the gradients, zero3 the weights
    (Rajbhandari et al. 2020, arXiv 1910.02054).

    Args:
        stack: the software.
        structure: its sharding counts.
        shards: ranks that share one set of states.
    """
    state = stack.state
    level = SHARDING.index(structure.sharding)
    share: Floats | float = 1.0 / shards if level else 1.0
    divided = level >= SHARDING.index(state.gradients_sharded_from)
    return StateRates(
        weights=state.sharded_weights * share if level == 3 else state.weights,
        gradients=state.gradients * share if divided else state.gradients,
        optimizer=state.optimizer * share,
        backward_gradients=state.transient_gradients,
        optimizer_step=state.step_copies * share if state.step_copies else 0.0,
    )
