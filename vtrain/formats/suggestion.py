"""Learning rate and batch from a published hyper-parameter law: a starting point, not a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtrain.design import Design

# Step Law, Li et al. 2025 (arXiv 2503.04715), abstract: peak learning rate and batch in tokens
# from non-embedding parameters N and training tokens D.
LEARNING_RATE_SCALE = 1.79
LEARNING_RATE_POWER_N = -0.713
LEARNING_RATE_POWER_D = 0.307
BATCH_SCALE_TOKENS = 0.58
BATCH_POWER_D = 0.571

# Ranges of the released grid of dense runs behind the law.
FITTED_PARAMETERS = (2.1e8, 1.1e9)
FITTED_TOKENS = (4e9, 1e11)

WARMUP_STEPS = 2000
"""Warm-up of the runs behind the law (arXiv 2503.04715), shortened to a tenth of short runs."""
FINAL_LEARNING_RATE = 1e-5
"""Learning rate the runs behind the law decay to (arXiv 2503.04715)."""
SOURCE = "Step Law, arXiv 2503.04715"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """Where to start tuning.

    Attributes:
        learning_rate: peak learning rate of AdamW.
        final_learning_rate: value at the end of the decay.
        warmup_steps: steps of linear warm-up.
        batch_tokens: batch the law prefers, in tokens; the design keeps its own.
        remark: one line to print beside the values: law, source, extrapolation.
    """

    learning_rate: float
    final_learning_rate: float
    warmup_steps: int
    batch_tokens: float
    remark: str


def suggest(design: Design) -> Suggestion | None:
    """Return the law's suggestion, or None for a design without a token count.

    Learning rate = 1.79 N^-0.713 D^0.307 and batch = 0.58 D^0.571 tokens, with N the
    non-embedding parameters and D the training tokens (arXiv 2503.04715).
    """
    if design.tokens is None or design.steps is None:
        return None
    n = float(design.architecture.parameters_non_embedding)
    d = float(design.tokens)
    rate = LEARNING_RATE_SCALE * n**LEARNING_RATE_POWER_N * d**LEARNING_RATE_POWER_D
    batch = BATCH_SCALE_TOKENS * d**BATCH_POWER_D
    outside = not (
        FITTED_PARAMETERS[0] <= n <= FITTED_PARAMETERS[1]
        and FITTED_TOKENS[0] <= d <= FITTED_TOKENS[1]
    )
    return Suggestion(
        learning_rate=float(f"{rate:.3g}"),
        final_learning_rate=min(FINAL_LEARNING_RATE, float(f"{rate / 10:.3g}")),
        warmup_steps=max(1, min(WARMUP_STEPS, design.steps // 10)),
        batch_tokens=batch,
        remark=(
            f"suggestion, tune it: {SOURCE}, at this size prefers a batch of {batch:.3g} tokens "
            f"(this design: {float(design.tokens_per_step):.3g})"
            + ("; outside the runs it was fitted on" if outside else "")
        ),
    )
