"""How far beyond its data a design asks the law and each term to reach."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .base import LawFacts
from .designs import Designs, FloatArray
from .effective import Term
from .terms import RepetitionTerm, batch_ratio
from .terms.batch import RATIO_RANGE, TOKENS_MAX
from .terms.head import HEAD_DIM_RANGE
from .terms.repetition import EPOCHS_MAX
from .terms.shape import ASPECT_RANGE, PARAMETERS_RANGE

WARN_BEYOND = 30.0
"""Extrapolation factor from which a warning is due; below it the column is enough."""

FFN_RATIO_RANGE = (2.5, 8.0)
"""Feed-forward over model width, two-matrix equivalent, with no penalty in the dense rows of
Clark et al. 2022 (arXiv 2202.01169); evidence is thin, so outside is reported, not priced."""


def outside(value: FloatArray, bounds: tuple[float, float]) -> FloatArray:
    """Return how many times a value lies outside a range; 1 inside."""
    low, high = bounds
    return np.asarray(np.maximum(np.maximum(value / high, low / value), 1.0))


def beyond_data(
    facts: LawFacts, terms: Mapping[str, Term], designs: Designs, parameters: FloatArray
) -> dict[str, FloatArray]:
    """Return the extrapolation factor of the law and each active term, in the designs' shape.

    A law that is a sum of a function of N and one of D is extrapolated along each separately, so
    its factor is the larger of the two and compute is not a third axis.
    """
    tokens = designs.tokens
    found: dict[str, FloatArray] = {
        "law": np.maximum(
            outside(parameters, facts.parameters_range), outside(tokens, facts.tokens_range)
        )
    }
    if "shape" in terms:
        found["shape"] = np.maximum(
            outside(designs.hidden_size / designs.num_layers, ASPECT_RANGE),
            outside(designs.parameters_non_embedding, PARAMETERS_RANGE),
        )
    if "head" in terms:
        found["head"] = outside(designs.head_dim, HEAD_DIM_RANGE)
    if "batch" in terms:
        found["batch"] = np.maximum(
            outside(batch_ratio(designs.global_batch_tokens, tokens), RATIO_RANGE),
            outside(tokens, (1.0, TOKENS_MAX)),
        )
    repetition = terms.get("repetition")
    if isinstance(repetition, RepetitionTerm):
        found["repetition"] = outside(np.maximum(repetition.epochs(tokens), 1.0), (1.0, EPOCHS_MAX))
    if designs.ffn_ratio is not None:
        found["ffn"] = outside(designs.ffn_ratio, FFN_RATIO_RANGE)
    return {name: np.broadcast_to(value, designs.shape) for name, value in found.items()}


def extrapolation_warnings(extrapolation: Mapping[str, FloatArray], index: int = 0) -> list[str]:
    """Return one sentence for each term that a design uses far beyond its data.

    A feed-forward ratio outside its range is always named, because no term prices it.

    Args:
        extrapolation: as `beyond_data` returns it.
        index: which of the flattened designs.
    """
    found = []
    for name, factors in extrapolation.items():
        factor = float(np.ravel(factors)[index])
        if name == "ffn" and factor > 1.0:
            low, high = FFN_RATIO_RANGE
            found.append(
                f"feed-forward ratio is {factor:.2g} times outside {low:g}-{high:g} "
                "(two-matrix equivalent); its effect on loss is not priced"
            )
        elif factor > WARN_BEYOND:
            what = "loss law" if name == "law" else f"{name} term"
            found.append(f"the {what} is used {factor:.0f} times beyond its data")
    return found
