"""Why nothing is feasible, and the nearest change that would make it so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from vtrain.errors import InfeasibleError
from vtrain.units import format_count, format_duration, format_usd
from vtrain_search.evaluator import Evaluator, Outcome
from vtrain_search.scan import scan
from vtrain_search.space import MIN_PARAMETERS, Point

if TYPE_CHECKING:
    from vtrain_search.driver import Found
    from vtrain_search.problem import Case, Problem

_DOUBLINGS = 24
_HALVINGS = 7


def diagnose(problem: Problem, found: Found) -> InfeasibleError:
    """Return the error that names the limit that binds and the nearest way out.

    Args:
        problem: the question.
        found: a search in which no case has a feasible design.
    """
    case, search = problem.cases[0], found.searches[0]
    reasons = Counter(t.outcome.reason for t in search.trials)
    nearest = min((t for t in search.trials), key=lambda t: t.outcome.violation)
    points = _small_points(problem, nearest.point)
    reason = nearest.outcome.reason or reasons.most_common(1)[0][0]
    fix = _nearest_fix(problem, case, points)
    return InfeasibleError(f"no feasible design for {case.label}: {_rule(problem, case, reason)}",
                           hint=fix)  # fmt: skip


def _small_points(problem: Problem, nearest: Point) -> list[Point]:
    """Return architectures that come closest to feasible: the nearest one and the smallest."""
    space = problem.space
    if space.fixed is not None:
        return [nearest]
    sizes = []
    for width in space.hidden_size[:12]:
        for layers in space.layers[:24]:
            point = space.point(hidden_size=float(width), layers=float(layers))
            if space.is_valid(point):
                size = space.architecture(point).parameters
                if size <= 2 * MIN_PARAMETERS or not sizes:
                    sizes.append((size, point))
    return [nearest, *(p for _, p in sorted(sizes)[:3])]


def _rule(problem: Problem, case: Case, reason: str) -> str:
    gpus = max(case.gpu_limit(offer) for offer in case.offers)
    names = ", ".join(dict.fromkeys(offer.name for offer in case.offers))
    return {
        "memory": f"no plan fits into the memory of up to {gpus:,} GPUs of {names}",
        "no valid plan": f"no plan divides the model over up to {gpus:,} GPUs of {names} "
        "under the pinned dimensions",
        "steps": f"fewer than {problem.min_steps:,} optimizer steps are affordable",
        "tokens a parameter": f"fewer than {problem.min_tokens_per_parameter:g} token a parameter "
        "is affordable",
        "budget or deadline": "the pinned tokens cost more than the budget, or take longer than "
        f"{format_duration(case.deadline_s)}",
        "batch": "the batch exceeds 8 times the critical batch, where no data says what happens",
        "architecture": "no architecture of the space is valid",
    }.get(reason, reason)


def _nearest_fix(problem: Problem, case: Case, points: list[Point]) -> str:
    """Return the smallest change of one limit that makes something feasible."""
    label, changed = _smallest_budget(problem, case, points)
    if changed is not None:
        return f"the smallest budget that works is about {label}"
    more_gpus = replace(case, max_gpus=1 << 30)
    if case.max_gpus < 1 << 30 and (outcome := _try(problem, more_gpus, points)) is not None:
        return f"{outcome.row['gpus']:,} GPUs would be enough"
    longer = replace(case, deadline_s=case.deadline_s * 64.0)
    if (outcome := _try(problem, longer, points)) is not None:
        return f"a deadline of {format_duration(outcome.row['wall_s'])} would be enough"
    if problem.space.fixed is not None:
        return "use more GPUs, GPUs with more memory, or a smaller model"
    return "relax --fix, --range, --max-gpus or the deadline"


def _smallest_budget(
    problem: Problem, case: Case, points: list[Point]
) -> tuple[str, Case | None]:
    """Bisect for the smallest budget of the same kind under which a point is feasible."""
    name = next((n for n in ("usd", "gpu_hours", "flop") if getattr(case, n) is not None), None)
    if name is None:
        return "", None
    amount = float(getattr(case, name))

    def works(factor: float) -> bool:
        return _try(problem, replace(case, **{name: amount * factor}), points) is not None

    high = 1.0
    for _ in range(_DOUBLINGS):
        high *= 2.0
        if works(high):
            break
    else:
        return "", None
    low = high / 2.0
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if works(middle) else (middle, high)
    value = amount * high
    text = {
        "usd": format_usd(value),
        "gpu_hours": f"{format_count(value)} GPU-h",
        "flop": f"{value:.2e} FLOP",
    }[name]
    return text, replace(case, **{name: value})


def _try(problem: Problem, case: Case, points: list[Point]) -> Outcome | None:
    """Return a feasible outcome of any of the points, or of the scan's first, else None."""
    changed = replace(problem, cases=(case,))
    evaluator = Evaluator(changed)
    start = scan(changed, case, points=1).start
    for point in dict.fromkeys([*points, *start]):
        outcome = evaluator.outcome(point, case)
        if outcome.feasible:
            return outcome
    return None
