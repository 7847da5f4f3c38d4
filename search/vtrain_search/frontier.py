"""Along the budget axis: fitted exponents, and the designs that nothing beats on every count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.laws import LossModel

_LEAST_ROWS = 4
_LEAST_SPAN = 10.0
PARETO_KEYS = ("loss", "cost_usd", "wall_s")
_SHOWN_KEYS = (
    "loss", "cost_usd", "days", "cluster", "parameters", "tokens", "layers", "hidden_size", "gpus",
    "tp", "pp", "dp",
)  # fmt: skip


def exponents(rows: Sequence[Mapping[str, Any]], model: LossModel) -> dict[str, float] | None:
    """Return how parameters and tokens grow with compute along a scaling table.

    Least squares of ln N and ln D on ln C, C = 6 N D. Beside them stands what the bare law says:
    for L = E + A/N^alpha + B/D^beta the optimum is N ~ C^(beta / (alpha + beta)) (Hoffmann et al.
    2022, arXiv 2203.15556, eq. 4).

    Args:
        rows: best designs of several budgets.
        model: loss model, for the law's own exponents.

    Returns:
        None with fewer than four rows, or less than a factor of ten in compute.
    """
    if len(rows) < _LEAST_ROWS:
        return None
    n = np.log([float(r["parameters"]) for r in rows])
    d = np.log([float(r["tokens"]) for r in rows])
    c = np.log(6.0) + n + d
    if c.max() - c.min() < np.log(_LEAST_SPAN):
        return None
    found = {
        "parameters": float(np.polyfit(c, n, 1)[0]),
        "tokens": float(np.polyfit(c, d, 1)[0]),
    }
    own = model.law.facts.coefficients
    if {"alpha", "beta"} <= set(own):
        found["law_parameters"] = own["beta"] / (own["alpha"] + own["beta"])
        found["law_tokens"] = own["alpha"] / (own["alpha"] + own["beta"])
    return found


def pareto(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that no other beats in loss, dollars and wall time at once.

    Args:
        rows: designs of any budgets.

    Returns:
        Short rows, the cheapest first.
    """
    if not rows:
        return []
    points = np.array([[float(r[k]) for k in PARETO_KEYS] for r in rows])
    values, first = np.unique(points, axis=0, return_index=True)
    keep = []
    for i, point in enumerate(values):
        no_worse = np.all(values <= point, axis=1)
        better = np.any(values < point, axis=1)
        if not bool(np.any(no_worse & better)):
            keep.append(int(first[i]))
    chosen = sorted((rows[i] for i in keep), key=lambda r: (r["cost_usd"], r["loss"]))
    return [
        {k: r["wall_s"] / 86_400.0 if k == "days" else r[k] for k in _SHOWN_KEYS} for r in chosen
    ]
