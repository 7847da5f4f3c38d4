"""What if: the same architectures re-planned under other prices, speeds, limits and laws.

Tables of step times know nothing of price, deadline, budget or law, so each question costs little
more than arithmetic; only another limit on memory needs other plans, hence tables of its own. A
step that takes f times as long is, exactly, a budget and a deadline divided by f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.interval import UNRELIABLE_SHARE, interval_multipliers
from vtrain.memory_limit import format_share
from vtrain_search.alternatives.setting import point_of
from vtrain_search.evaluator import Evaluator
from vtrain_search.objective import designs_of_rows
from vtrain_search.report.answer import reliable_share, too_full
from vtrain_search.window import first_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.laws import Designs, LossModel
    from vtrain_search.problem import Case, Problem
    from vtrain_search.report import Answer
    from vtrain_search.space import Point

    Row = Mapping[str, Any]

PRICE_CHANGE = 0.2
NEAR_SIZES = ((0.67, 0.87), (1.15, 1.5))
"""The best architecture tried in each of these ranges of size, relative to the answer, is planned
anew: about three quarters and four thirds, as far as the usual changes move the optimum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One question and what becomes of the answer.

    Attributes:
        name: what changes.
        row: the best finalist's design under the change; None where none is feasible.
        gap: its loss less that of the answer, nats, both judged by the changed law where the law
            changes; with a target loss the share (0-1) of dollars or days on top.
        slowdown: factor on every step time; times and dollars of `row` are to be multiplied.
        other_model: the best finalist is no longer the recommended architecture.
        other_law: it is another law that judges.
        memory_limit_share: of what the context leaves, where the limit on memory changes.
    """

    name: str
    row: Row | None
    gap: float
    slowdown: float = 1.0
    other_model: bool = False
    other_law: bool = False
    memory_limit_share: float | None = None


def sensitivity(problem: Problem, answer: Answer) -> list[Change]:
    """Return the usual questions: price, speed, deadline, GPU cap, memory, law.

    The finalists are the answer, its smallest tie, the best of somewhat smaller and larger models
    tried, and the models of half and a quarter of its size; each is planned anew (GPUs, batch,
    degrees) under every change. Memory is asked about where the answer fills it so far that its
    step time is not to be trusted. Under another law they are the answer and what that law likes
    best among all architectures tried.

    Args:
        problem: the question.
        answer: its answer.
    """
    points = _finalists(problem, answer)
    evaluator = Evaluator(problem)
    questions = _questions(problem, answer.case, answer.row)
    _fill(problem, evaluator, points, [case for _, case, _ in questions])
    changes = [
        _change(evaluator, points, answer, name, changed, slowdown)
        for name, changed, slowdown in questions
    ]
    if too_full(answer.case, answer.row):
        changes.append(_safer_memory(problem, points, answer))
    designs = designs_of_rows(answer.tried)
    for model in _other_laws(problem):
        changes.append(_other_law(evaluator.with_loss(model), model, points, answer, designs))
    return changes


def _finalists(problem: Problem, answer: Answer) -> list[Point]:
    """Return the architectures to plan anew: the answer first, then others of several sizes."""
    if problem.space.fixed is not None:
        return [problem.space.point()]
    rows = [answer.row, *answer.ties[:1]]
    for low, high in NEAR_SIZES:
        size = float(answer.row["parameters"])
        near = [r for r in answer.tried if low <= r["parameters"] / size <= high]
        rows += sorted(near, key=lambda r: float(r["objective_value"]))[:1]
    rows += answer.smaller
    return list(dict.fromkeys(point_of(row) for row in rows))


def _fill(
    problem: Problem, evaluator: Evaluator, points: Sequence[Point], cases: Sequence[Case]
) -> None:
    """Have each table work out in one go what the cases will ask of it; saves time, no more."""
    for point in points:
        asked: dict[int, dict[tuple[int, int], None]] = {}
        for case in cases:
            for i, offer in enumerate(case.offers):
                table = evaluator.table(point, offer)
                keys = first_keys(problem, case, offer, table.architecture)
                asked.setdefault(i, {}).update(dict.fromkeys(keys))
        for i, found in asked.items():
            evaluator.table(point, cases[0].offers[i]).window(list(found))


def _questions(problem: Problem, case: Case, row: Row) -> list[tuple[str, Case, float]]:
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
    for end in interval_multipliers(problem.stack.time_log_sd):
        factor = float(end)
        found.append((f"step time {100 * (factor - 1.0):+.0f} %", slower(case, factor), factor))
    days = case.deadline_s / 86_400.0
    for factor in (0.5, 2.0):
        changed = replace(case, deadline_s=case.deadline_s * factor)
        found.append((f"deadline {days * factor:g} days", changed, 1.0))
    if "gpus" in problem.pins.exact or "gpus" in problem.pins.ranges:
        # Another cap would contradict what the user pinned.
        return found
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
    kept = _still_holds(answer, case)
    if kept and all(o.value > answer.row["objective_value"] for o in found.values()):
        # Each case looks at GPU counts of its own; the answer stays one of them.
        return Change(name=name, row=answer.row, gap=0.0)
    if not found:
        return Change(name=name, row=None, gap=float("inf"), slowdown=slowdown)
    best = min(found, key=lambda p: found[p].key_for(case))
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


def _safer_memory(problem: Problem, points: list[Point], answer: Answer) -> Change:
    """Return what becomes of the answer where memory is kept below what stalls allocators.

    Other plans fit, so the finalists get tables of their own.
    """
    share = reliable_share(problem, answer.case)
    limited = replace(problem, memory_limit_share=share)
    evaluator = Evaluator(limited)
    _fill(limited, evaluator, points, [answer.case])
    name = f"memory under {format_share(UNRELIABLE_SHARE)} of the device"
    change = _change(evaluator, points, answer, name, answer.case, 1.0)
    return replace(change, memory_limit_share=share)


def _still_holds(answer: Answer, case: Case) -> bool:
    """Return whether a case only moves the limits on time and GPUs, and the answer keeps them."""
    if case == answer.case:
        # Nothing moved: it is another law that judges.
        return False
    moved = replace(
        answer.case, deadline_s=case.deadline_s, max_gpus=case.max_gpus, offers=case.offers
    )
    return (
        moved == case
        and [o.price_usd_per_gpu_hour for o in answer.case.offers]
        == [o.price_usd_per_gpu_hour for o in case.offers]
        and answer.row["wall_s"] <= case.deadline_s
        and answer.row["gpus"] <= case.max_gpus
        and any(o.name == answer.row["cluster"] for o in case.offers)
    )


def _other_laws(problem: Problem) -> list[LossModel]:
    """Return the loss model with each shipped law but its own in its place."""
    from vtrain_search.laws import law_names, load_law

    own = problem.loss
    return [replace(own, law=load_law(n)) for n in law_names() if n != own.law.name]


def _other_law(
    evaluator: Evaluator, model: LossModel, points: list[Point], answer: Answer, tried: Designs
) -> Change:
    """Return what another law would choose, and what following it would gain if it is true.

    Laws disagree on the loss of the same run, so both designs are judged by the same one; with a
    target loss dollars and days compare across laws, and the answer's are those of its own law.
    """
    name = f"law {model.law.name}"
    aimed = answer.case.target_loss is not None
    if not aimed and len(points) > 1:
        liked = answer.tried[int(np.argmin(model.loss(tried)))]
        points = list(dict.fromkeys([points[0], point_of(liked)]))
    change = replace(
        _change(evaluator, points, answer, name, answer.case, 1.0), other_law=True
    )  # fmt: skip
    if aimed or change.row is None:
        return change
    kept = evaluator.outcome(points[0], answer.case)
    gap = float(change.row["objective_value"]) - kept.value if kept.feasible else float("-inf")
    return replace(change, gap=gap)
