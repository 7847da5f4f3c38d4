"""What-if another law is true: picks, allocation rules and regret for `--compare-laws`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .designs import Designs
from .model import LossModel
from .registry import law_names, load_law
from .regret import RegretTable, regret
from .rules import load_rule, rule_names
from .terms import Terms


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Every law's pick among designs of one budget, the rules' advice, and the regret matrix."""

    table: RegretTable
    picks: tuple[dict[str, Any], ...]
    """One record a law: its design's index, N, D, its own loss, its worst regret."""
    rules: tuple[dict[str, Any], ...]
    """One record a rule: N and D at the compute of the default pick; for comparison only."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON document."""
        return {
            "picks": list(self.picks),
            "rules": list(self.rules),
            "regret": self.table.rows(),
        }

    def text(self) -> str:
        """Return three small tables for a terminal."""
        lines = [f"{'law':<16}{'N':>9}{'D':>9}{'D/N':>7}{'loss':>8}  worst regret"]
        lines += [
            f"{p['law']:<16}{_count(p['parameters']):>9}{_count(p['tokens']):>9}"
            f"{p['tokens_per_parameter']:>7.1f}{p['loss']:>8.4f}"
            f"  {1e3 * p['worst_regret_nats']:.1f} mNat, {p['worst_regret_compute_pct']:.1f} %"
            " of compute"
            for p in self.picks
        ]
        lines += ["", "allocation rules at the same compute (no loss, for comparison)"]
        lines += [
            f"{r['rule']:<16}{_count(r['parameters']):>9}{_count(r['tokens']):>9}"
            f"{r['tokens_per_parameter']:>7.1f}"
            for r in self.rules
        ]
        width = max(len(name) for name in self.table.names) + 2
        head = "".join(f"{name:>{width}}" for name in self.table.names)
        lines += ["", "regret in % of compute: picked by the row's law, if the column's is true"]
        lines.append(f"{'':<16}{head}")
        lines += [
            f"{name:<16}" + "".join(f"{100 * share:>{width}.1f}" for share in shares)
            for name, shares in zip(self.table.names, self.table.budget_share, strict=True)
        ]
        return "\n".join(lines)


def compare_laws(
    designs: Designs,
    *,
    laws: Sequence[str] = (),
    terms: Terms | None = None,
    unique_tokens: float | None = None,
) -> Comparison:
    """Return what each law would train with one budget, and what that costs if another is true.

    Args:
        designs: candidates that the same budget buys; the pick of each law must be among them,
            so give a wide set of sizes and not only those that the default law likes.
        laws: names or files; default every shipped law.
        terms: switches of the terms, the same for all laws (a contained term stays off).
        unique_tokens: distinct training tokens there are.

    Raises:
        UserInputError: an unknown law.
        InfeasibleError: no candidate has an allowed batch.
    """
    models = [
        LossModel(
            law=load_law(name),
            terms=Terms() if terms is None else terms,
            unique_tokens=unique_tokens,
        )
        for name in (laws or law_names())
    ]
    flat = designs.flat()
    table = regret(models, flat)
    worst_nats, worst_share = table.worst()
    picks: list[dict[str, Any]] = []
    for i, model in enumerate(models):
        index = int(table.chosen[i])
        n, d = float(flat.parameters_non_embedding[index]), float(flat.tokens[index])
        picks.append(
            {
                "law": model.law.name,
                "index": index,
                "parameters": n,
                "tokens": d,
                "tokens_per_parameter": d / n,
                "loss": float(model.loss(flat.take(np.array([index])))[0]),
                "worst_regret_nats": float(worst_nats[i]),
                "worst_regret_compute_pct": 100.0 * float(worst_share[i]),
            }
        )
    compute_flop = 6.0 * picks[0]["parameters"] * picks[0]["tokens"]
    rules = []
    for name in rule_names():
        n, d = (float(v) for v in load_rule(name).allocate(compute_flop))
        rules.append(
            {
                "rule": name,
                "compute_flop": compute_flop,
                "parameters": n,
                "tokens": d,
                "tokens_per_parameter": d / n,
            }
        )
    return Comparison(table=table, picks=tuple(picks), rules=tuple(rules))


def _count(value: float) -> str:
    """Return 1.2T, 76.0B or 350M."""
    for unit, size in (("T", 1e12), ("B", 1e9)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value / 1e6:.3g}M"
