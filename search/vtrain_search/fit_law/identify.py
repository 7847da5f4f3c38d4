"""Refuses pilots that cannot tell a law's five coefficients apart, in one sentence."""

from __future__ import annotations

import numpy as np

from vtrain.errors import UserInputError

from .additive import EXPONENTS, AdditiveFit, Points
from .pilots import Pilots

MIN_RUNS = 8
"""Five coefficients and three runs to judge them by."""
MIN_LEVELS = 3
"""A power law plus a constant has three unknowns along each axis."""
MIN_RANGE = 3.0
"""Largest over smallest size, tokens and compute, below which exponents are guesswork."""
MIN_RATIO_SPREAD = 1.5
"""Largest over smallest tokens/parameter, below which size and data move together."""
MIN_EFFECT = 1e-3
"""Share of the loss that size and tokens must each move: about one seed's scatter."""
_SAME = 0.03
"""Sizes or token counts within 3 % are one level."""

# Loss over the default law's prediction, median over runs: 0.60-1.36 in 53 of 57 published
# combinations of training and validation set in nats (outside: Penn Treebank and German text seen
# by English web models, Llama 3's own scale); bits are 1.44 times as much, bits a byte a third.
BITS_ABOVE = 1.36
BITS_PER_BYTE_BELOW = 0.55


def refuse_unidentified(pilots: Pilots) -> None:
    """Refuse too few runs or too little spread before fitting.

    Raises:
        UserInputError: says what is missing and what would identify it.
    """
    count = len(pilots.rows)
    if count < MIN_RUNS:
        raise UserInputError(
            f"{count} runs cannot identify five coefficients; {MIN_RUNS} is the least",
            hint="add runs of other sizes and token counts",
        )
    compute = pilots.parameters * pilots.tokens
    if compute.max() / compute.min() < MIN_RANGE:
        raise UserInputError(
            f"all runs lie at one compute level ({6 * compute.min():.2g}-"
            f"{6 * compute.max():.2g} FLOP), so the irreducible loss cannot be told apart",
            hint=f"add runs with at least {MIN_RANGE:g} times more or less compute",
        )
    ratio = pilots.tokens / pilots.parameters
    for name, values in (("params", pilots.parameters), ("tokens", pilots.tokens)):
        spread = values.max() / values.min()
        if spread < MIN_RANGE or _levels(values) < MIN_LEVELS:
            raise UserInputError(
                f"{name} span only {values.min():.3g}-{values.max():.3g} in {_levels(values)} "
                "level(s), so their exponent cannot be identified",
                hint=f"use at least {MIN_LEVELS} levels over a factor of {MIN_RANGE:g}",
            )
    if ratio.max() / ratio.min() < MIN_RATIO_SPREAD:
        raise UserInputError(
            f"every run has about {np.median(ratio):.3g} tokens a parameter, so size and data "
            "cannot be told apart",
            hint="train some sizes on two or more token counts",
        )


def refuse_other_unit(pilots: Pilots) -> None:
    """Refuse losses that look like bits a token or bits a byte.

    Raises:
        UserInputError: names the unit they look like and how to say it.
    """
    from vtrain_search.laws import load_law
    from vtrain_search.laws.base import LogInputs

    law = load_law()
    inputs = LogInputs(ln_parameters=np.log(pilots.parameters), ln_tokens=np.log(pilots.tokens))
    ratio = float(np.median(pilots.loss / law.evaluate(law.coefficients(), inputs)))
    if BITS_PER_BYTE_BELOW <= ratio <= BITS_ABOVE:
        return
    looks = "bits a token" if ratio > BITS_ABOVE else "bits a byte"
    worst = pilots.rows[int(np.argmax(pilots.loss))]
    raise UserInputError(
        f"losses are {ratio:.2f} times those of {law.name}, as {looks} would be "
        f"(largest: row {worst}, {pilots.loss.max():.4g})",
        hint="add --unit bits to convert bits a token, --unit nats if they are nats a token",
    )


def refuse_degenerate(fitted: AdditiveFit, points: Points) -> None:
    """Refuse a fit that ran to a limit: the data do not hold the coefficient.

    Raises:
        UserInputError: names the coefficient and what would identify it.
    """
    for name, value, axis in (
        ("alpha", fitted.alpha, "sizes"),
        ("beta", fitted.beta, "token counts"),
    ):
        if not EXPONENTS[0] <= value <= EXPONENTS[1]:
            raise UserInputError(
                f"the runs do not identify {name} (the fit runs off to {value:.3g})",
                hint=f"add runs with a wider range of {axis}",
            )
    loss = np.exp(points.ln_loss)
    for name, part, axis in (
        ("size", np.exp(fitted.ln_a - fitted.alpha * points.ln_n), "params"),
        ("data", np.exp(fitted.ln_b - fitted.beta * points.ln_d), "tokens"),
    ):
        if float(np.ptp(part)) < MIN_EFFECT * float(loss.mean()):
            raise UserInputError(
                f"the runs do not identify the {name} term: {axis} move the loss by less than "
                f"{100 * MIN_EFFECT:g} %",
                hint=f"add runs with a wider range of {axis}",
            )
    if np.exp(fitted.ln_e) < 1e-3 * float(loss.min()):
        raise UserInputError(
            "the runs do not identify the irreducible loss E (the fit runs off to 0)",
            hint="add larger runs",
        )


def _levels(values: np.ndarray) -> int:
    """Return the number of distinct values, those within 3 % counted as one."""
    ordered = np.sort(np.log(values))
    return 1 + int(np.count_nonzero(np.diff(ordered) > _SAME))
