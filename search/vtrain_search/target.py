"""Tokens that reach a wanted loss: the inverse of the loss model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vtrain_search.laws import Designs, LossModel

    FloatArray = NDArray[np.float64]

_TOKENS = (1e7, 1e17)
_HALVINGS = 44
"""Of ten decades: leaves 2e-12 relative, below the rounding of results."""


def tokens_for_loss(
    model: LossModel,
    designs: Callable[[FloatArray], Designs],
    target: float,
    shape: tuple[int, ...],
) -> FloatArray:
    """Return the fewest training tokens with which designs reach a loss.

    Loss falls in tokens at fixed architecture and batch (`laws`, with every term on), so bisection
    in ln D finds them; a refused batch counts as too high a loss.

    Args:
        model: loss model.
        designs: the designs as a function of their tokens, an array of `shape`.
        target: wanted loss in nats a token.
        shape: shape of the answer.

    Returns:
        Tokens; inf where even 1e17 do not reach the loss.
    """
    low, high = (np.full(shape, np.log(t)) for t in _TOKENS)
    reachable = model.loss(designs(np.exp(high))) <= target
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = model.loss(designs(np.exp(middle))) <= target
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reachable, np.exp(high), np.inf)
