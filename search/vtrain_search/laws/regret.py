"""What it costs to trust one law when another is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtrain.errors import InfeasibleError, UserInputError

from .designs import Designs, FloatArray
from .model import LossModel


@dataclass(frozen=True, kw_only=True, slots=True)
class RegretTable:
    """Regret of the design that law i picks, judged by law j."""

    names: tuple[str, ...]
    chosen: NDArray[np.intp]
    """Index into the flattened designs of each law's pick [laws]."""
    nats: FloatArray
    """[picked by, judged by]: loss above the judge's best, nats a token; 0 on the diagonal."""
    budget_share: FloatArray
    """The same as a share of compute (0-1), at the judge's own slope."""

    def worst(self) -> tuple[FloatArray, FloatArray]:
        """Return each law's largest regret over the judges: nats, share of compute [laws]."""
        return self.nats.max(axis=1), self.budget_share.max(axis=1)

    def rows(self) -> list[dict[str, float | str]]:
        """Return one record a pair of laws, for tables and JSON."""
        return [
            {
                "picked_by": picker,
                "judged_by": judge,
                "regret_nats": float(self.nats[i, j]),
                "regret_compute_pct": 100.0 * float(self.budget_share[i, j]),
            }
            for i, picker in enumerate(self.names)
            for j, judge in enumerate(self.names)
        ]


def regret(models: Sequence[LossModel], designs: Designs) -> RegretTable:
    """Return the regret matrix of several laws over designs that one budget can buy.

    Args:
        models: loss models to compare, each with its own law.
        designs: candidate designs of equal cost; every law picks the one it finds best.

    Raises:
        UserInputError: no model is given.
        InfeasibleError: a law allows none of the designs (batch beyond 8 B*).
    """
    if not models:
        raise UserInputError("comparing laws needs at least one law")
    flat = designs.flat()
    losses = np.array([model.loss(flat) for model in models])
    best = losses.min(axis=1)
    if not np.isfinite(best).all():
        raise InfeasibleError(
            "no candidate has a batch within 8 times the critical one", hint="lower the batch"
        )
    chosen = losses.argmin(axis=1)
    nats = (losses[:, chosen] - best[:, None]).T
    share = np.column_stack(
        [
            model.budget_share(nats[:, j], flat.take(np.array([chosen[j]])))
            for j, model in enumerate(models)
        ]
    )
    return RegretTable(
        names=tuple(model.law.name for model in models),
        chosen=chosen,
        nats=nats,
        budget_share=share,
    )
