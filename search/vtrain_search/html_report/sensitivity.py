"""What if: the same architectures re-planned under other prices, speeds and limits.

Tables of step times know nothing of price, deadline or budget, so each question costs little
more than arithmetic. A step that takes f times as long is, exactly, a budget and a deadline
divided by f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain_search.alternatives.setting import point_of
from vtrain_search.evaluator import Evaluator
from vtrain_search.html_report.headline import Z90

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain_search.problem import Case, Problem
    from vtrain_search.report import Answer
    from vtrain_search.space import Point

PRICE_CHANGE = 0.2
_FINALISTS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One question and what becomes of the answer.

    Attributes:
        name: what changes.
        row: the best finalist's design under the change; None where none is feasible.
        gap: its loss less that of the answer, nats; with a target loss the share (0-1) of dollars
            or days on top.
        slowdown: factor on every step time; times and dollars of `row` are to be multiplied.
        other_model: the best finalist is no longer the recommended architecture.
    """

    name: str
    row: Mapping[str, Any] | None
    gap: float
    slowdown: float = 1.0
    other_model: bool = False


def sensitivity(problem: Problem, answer: Answer) -> list[Change]:
    """Return the usual questions: price, speed, deadline, GPU cap.

    The finalists are the answer, its ties and its smaller models; each is planned anew (GPUs,
    batch, degrees) under every change.

    Args:
        problem: the question.
        answer: its answer.
    """
    case = answer.case
    rows = [answer.row, *answer.ties[:_FINALISTS], *answer.smaller]
    points = list(dict.fromkeys(point_of(row) for row in rows))
    if problem.space.fixed is not None:
        points = [problem.space.point()]
    evaluator = Evaluator(problem)
    return [
        _change(evaluator, points, answer, name, changed, slowdown)
        for name, changed, slowdown in _questions(problem, case, answer.row)
    ]


def _questions(
    problem: Problem, case: Case, row: Mapping[str, Any]
) -> list[tuple[str, Case, float]]:
    found: list[tuple[str, Case, float]] = []
    if case.usd is not None or case.objective == "cost":
        for sign in (-1.0, 1.0):
            factor = 1.0 + sign * PRICE_CHANGE
            offers = tuple(
                replace(o, price_usd_per_gpu_hour=o.price_usd_per_gpu_hour * factor)
                for o in case.offers
            )
            name = f"price {100 * sign * PRICE_CHANGE:+.0f} %"
            found.append((name, replace(case, offers=offers), 1.0))
    spread = float(np.exp(Z90 * problem.stack.time_log_sd))
    for factor in (1.0 / spread, spread):
        found.append((f"step time {100 * (factor - 1.0):+.0f} %", slower(case, factor), factor))
    days = case.deadline_s / 86_400.0
    for factor in (0.5, 2.0):
        changed = replace(case, deadline_s=case.deadline_s * factor)
        found.append((f"deadline {days * factor:g} days", changed, 1.0))
    limit = max(case.gpu_limit(o) for o in case.offers)
    node = min(o.cluster.gpus_per_node for o in case.offers)
    for count in (int(row["gpus"]) // (2 * node) * node, 2 * int(row["gpus"])):
        # A cap above what is used changes nothing unless the cap is what binds.
        if count >= node and (count < row["gpus"] or row["gpus"] > limit / 1.03):
            found.append((f"at most {count:,} GPUs", _capped(case, count), 1.0))
    return found


def slower(case: Case, factor: float) -> Case:
    """Return the case that is equivalent to steps `factor` times as long."""

    def less(amount: float | None) -> float | None:
        return None if amount is None else amount / factor

    # A budget in FLOPs buys the same steps whatever they take.
    return replace(
        case, usd=less(case.usd), gpu_hours=less(case.gpu_hours),
        deadline_s=case.deadline_s / factor,
    )  # fmt: skip


def _capped(case: Case, count: int) -> Case:
    offers = tuple(
        replace(o, cluster=replace(o.cluster, max_gpus=max(o.cluster.max_gpus, count)))
        for o in case.offers
    )
    return replace(case, max_gpus=count, offers=offers)


def _change(
    evaluator: Evaluator, points: list[Point], answer: Answer, name: str, case: Case,
    slowdown: float,
) -> Change:  # fmt: skip
    found = {p: o for p in points if (o := evaluator.outcome(p, case)).feasible}
    if not found:
        return Change(name=name, row=None, gap=float("inf"), slowdown=slowdown)
    best = min(found, key=lambda p: found[p].key)
    gap = found[best].value - float(answer.row["objective_value"])
    if case.target_loss is not None:
        # Values are logarithms of dollars or days, which slower steps stretch.
        gap = float(np.expm1(gap + np.log(slowdown)))
    return Change(
        name=name,
        row=found[best].row,
        gap=gap,
        slowdown=slowdown,
        other_model=best != points[0],
    )
