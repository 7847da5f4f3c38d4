"""Search again with the alternative held fixed, and price the gap to the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vtrain.design import Design
from vtrain.errors import UserInputError, VtrainError
from vtrain.units import format_count
from vtrain_search.alternatives.reasons import design_words, reasons, verdict
from vtrain_search.alternatives.setting import point_of
from vtrain_search.alternatives.words import Alternative, merged, parse_alternative
from vtrain_search.evaluator import Evaluator
from vtrain_search.grid import gpu_counts, plan_space
from vtrain_search.polish import neighbours
from vtrain_search.problem import Offer
from vtrain_search.report.answer import TIE_SHARE, budget_shares
from vtrain_search.scan import points_of_size, scan
from vtrain_search.space import outer_space

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vtrain_search.evaluator import Outcome
    from vtrain_search.problem import Case, Problem
    from vtrain_search.report import Answer
    from vtrain_search.space import Point

SIZE_SLACK = 1.06
"""A model counts as "70B" within this factor."""
SWEEPS = 5
_STARTS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An alternative set beside the answer.

    Attributes:
        text: the alternative as it was named.
        row: its best design with all results; None where nothing is feasible.
        gap_nats: its loss less that of the answer; inf where nothing is feasible.
        gap_budget_share: share of the budget (0-1) the gap is worth, with a target loss the share
            of dollars or days on top; 1 where nothing is feasible.
        lines: plain sentences: what, how much worse, why.
    """

    text: str
    row: Mapping[str, Any] | None
    gap_nats: float
    gap_budget_share: float
    lines: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON document."""
        feasible = self.row is not None
        return {
            "alternative": self.text,
            "feasible": feasible,
            "gap_nats": self.gap_nats if feasible else None,
            "gap_budget_share": self.gap_budget_share if feasible else None,
            "lines": list(self.lines),
        }


def compare(
    problem: Problem, answer: Answer, alternative: Alternative | str, *, sweeps: int = SWEEPS
) -> Comparison:
    """Return how much worse than the answer a named alternative is, and why.

    The alternative is searched for under the same budget and limits, every valid plan of each
    architecture: from the answer's own architecture, its ties and smaller models and the coarse
    scan, then from neighbour to neighbour until none is better.

    Args:
        problem: the question that was answered.
        answer: its answer.
        alternative: what to hold fixed, parsed or in words.
        sweeps: neighbourhoods looked at, at most; 0 looks at the starting points only.

    Raises:
        UserInputError: words that cannot be read.
    """
    wanted = parse_alternative(alternative) if isinstance(alternative, str) else alternative
    best = answer.row
    try:
        changed, case = _changed(problem, answer.case, wanted)
    except VtrainError as error:
        return _nothing(wanted.text, f"cannot be: {error}")
    known = _search(changed, case, _starts(changed, case, answer, wanted), wanted, sweeps)
    feasible = [outcome for outcome in known.values() if outcome.feasible]
    if not feasible:
        return _nothing(wanted.text, _why_nothing(changed, case, known))
    outcome = min(feasible, key=lambda o: o.key_for(case))
    row = {**outcome.row, "days": outcome.row["wall_s"] / 86_400.0}
    gap = outcome.loss - float(best["loss"])
    share = float(budget_shares(problem, best, [row])[0])
    text = wanted.text
    if wanted.parameters is not None:
        sizes = (wanted.parameters / SIZE_SLACK, wanted.parameters * SIZE_SLACK)
        text += f" ({' to '.join(format_count(size) for size in sizes)} parameters)"
    if _has_answer(known, best) and abs(share) < TIE_SHARE:
        line = f"{text}: that is the recommended design, {design_words(best)}"
        if Design.from_row(row) != Design.from_row(best):
            line += f"; as good (a tie) is {design_words(row)}"
        return Comparison(
            text=wanted.text, row=row, gap_nats=gap, gap_budget_share=share, lines=(line,)
        )
    same = known.get(point_of(best)) if wanted.architecture is None else None
    offered = [o.cluster.name for o in answer.case.offers]
    searched = wanted.architecture is None and (
        wanted.cluster is None or wanted.cluster.name in offered
    )
    lines = [verdict(text, answer.case, row, gap, share, searched=searched)]
    if share > 0.0:
        of_size = wanted.parameters is not None or wanted.architecture is not None
        lines += reasons(problem, answer.case, case, best, row, same, of_size=of_size)
    return Comparison(
        text=wanted.text, row=row, gap_nats=gap, gap_budget_share=share, lines=tuple(lines)
    )


def _has_answer(known: Mapping[Point, Outcome], best: Mapping[str, Any]) -> bool:
    """Return whether the alternative allows the recommended design, plan and all."""
    own = known.get(point_of(best))
    return own is not None and own.feasible and Design.from_row(own.row) == Design.from_row(best)


def _nothing(text: str, why: str) -> Comparison:
    return Comparison(
        text=text, row=None, gap_nats=float("inf"), gap_budget_share=1.0, lines=(f"{text}: {why}",)
    )


def _changed(problem: Problem, case: Case, wanted: Alternative) -> tuple[Problem, Case]:
    """Return the question with the alternative pinned.

    Raises:
        UserInputError: when the alternative contradicts itself, the hardware or a fixed model.
    """
    if wanted.cluster is not None:
        case = replace(case, offers=(_offer(case, wanted),))
    pins = merged(problem.pins, wanted.pins)
    fixed = wanted.architecture or problem.space.fixed
    if problem.space.fixed is not None and wanted.parameters is not None:
        raise UserInputError("the model is fixed", hint="ask again without --arch")
    space = outer_space(pins, vocab_size=problem.space.vocab_size, fixed=fixed)
    for offer in case.offers:
        gpu_counts(offer.cluster, max_gpus=case.gpu_limit(offer), pins=pins)
        plan_space(offer.cluster, problem.stack, pins)
    return replace(problem, cases=(case,), pins=pins, space=space), case


def _offer(case: Case, wanted: Alternative) -> Offer:
    from vtrain.prices import default_price

    assert wanted.cluster is not None
    name = wanted.cluster.name
    for offer in case.offers:
        if offer.cluster.name == name:
            return offer
    price = default_price(name)
    return Offer(
        name=name, cluster=wanted.cluster, price_usd_per_gpu_hour=price.usd_per_gpu_hour,
        price_source=price.describe(),
    )  # fmt: skip


def _starts(problem: Problem, case: Case, answer: Answer, wanted: Alternative) -> list[Point]:
    """Return where the search begins; the answer's own architecture comes first."""
    if problem.space.fixed is not None:
        return [problem.space.point()]
    seen = _seen(answer, wanted)
    if wanted.parameters is not None:
        sized = points_of_size(problem, case, wanted.parameters, slack=SIZE_SLACK, count=8)
        return list(dict.fromkeys([*seen, *sized]))
    rows = [answer.row, *answer.ties[:_STARTS], *answer.smaller]
    # The pins may ask for other widths or heads than the answer has: take the nearest there are.
    near = [
        problem.space.point(**{k: float(v) for k, v in point_of(row)._asdict().items()})
        for row in rows
    ]
    own = [p for p in [point_of(answer.row)] if p in near]
    return list(dict.fromkeys([*own, *seen, *near, *scan(problem, case, points=_STARTS).start]))


def _seen(answer: Answer, wanted: Alternative) -> list[Point]:
    """Return the best architectures tried that had it: nothing shown may beat "at best".

    A cluster or a model of its own was not among what was tried.
    """
    if wanted.cluster is not None or wanted.architecture is not None:
        return []
    keys = [*wanted.pins.exact, *wanted.pins.ranges]
    rows = [
        r for r in answer.tried
        if all(key in r and wanted.pins.allows(key, r[key]) for key in keys)
        and (wanted.parameters is None or _is_near(float(r["parameters"]), wanted.parameters))
    ]  # fmt: skip
    return [point_of(r) for r in sorted(rows, key=lambda r: r["objective_value"])[:_STARTS]]


def _search(
    problem: Problem, case: Case, starts: Iterable[Point], wanted: Alternative, sweeps: int
) -> dict[Point, Outcome]:
    """Evaluate the starting points, then neighbourhoods of the best, until none is better."""
    evaluator = Evaluator(problem)
    known: dict[Point, Outcome] = {}
    queue = list(starts)
    for _ in range(sweeps + 1):
        new = [
            p for p in queue
            if p not in known and problem.space.is_valid(p) and _has_size(problem, p, wanted)
        ]  # fmt: skip
        before = min((o.key_for(case) for o in known.values() if o.feasible), default=None)
        known.update((p, evaluator.outcome(p, case)) for p in new)
        found = [p for p in known if known[p].feasible]
        if not new or not found:
            break
        best = min(found, key=lambda p: known[p].key_for(case))
        if before is not None and known[best].key_for(case) >= before:
            break
        queue = neighbours(problem.space, best)
    return known


def _has_size(problem: Problem, point: Point, wanted: Alternative) -> bool:
    if wanted.parameters is None:
        return True
    return _is_near(problem.space.architecture(point).parameters, wanted.parameters)


def _is_near(parameters: float, wanted: float) -> bool:
    return 1.0 / SIZE_SLACK <= parameters / wanted <= SIZE_SLACK


def _why_nothing(problem: Problem, case: Case, known: Mapping[Point, Outcome]) -> str:
    """Say which limit every design breaks."""
    if not known:
        return (
            f"no shape of that size gets {problem.min_tokens_per_parameter:g} token a parameter "
            "from this budget in time"
        )
    nearest = min(known.values(), key=lambda o: o.violation)
    limits = {
        "memory": "no plan of it fits in memory on the GPUs that budget and deadline ask for",
        "no valid plan": "no plan divides a model like that over the GPUs that budget and deadline "
        "ask for",
        "steps": f"fewer than {problem.min_steps:,} steps are affordable in "
        f"{case.deadline_s / 86_400.0:g} days",
        "tokens a parameter": f"fewer than {problem.min_tokens_per_parameter:g} token a parameter "
        "is affordable",
        "budget or deadline": "it breaks the budget or the deadline",
        "batch": "its batch exceeds 8 times the critical batch",
    }
    return f"nothing feasible: {limits.get(nearest.reason, nearest.reason)}"
