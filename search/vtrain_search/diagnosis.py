"""Why nothing is feasible, and the nearest change that would make it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, exp, floor, log10
from typing import TYPE_CHECKING

from vtrain.errors import InfeasibleError
from vtrain.memory_limit import SHARE_FITS, format_share
from vtrain.units import format_count, format_duration, format_usd
from vtrain_search.evaluator import TOO_DEAR, Evaluator, Outcome
from vtrain_search.grid import CELLS_PER_BLOCK, CELLS_PER_OCTAVE, gpu_counts
from vtrain_search.joint import JointPoint
from vtrain_search.pins import Pins
from vtrain_search.scan import scan
from vtrain_search.space import MIN_PARAMETERS, Point

if TYPE_CHECKING:
    from vtrain_search.driver import Found
    from vtrain_search.problem import Case, Offer, Problem
    from vtrain_search.search_state import Candidate, SearchState

_DOUBLINGS = 24
_HALVINGS = 6
_ROUNDING = 1e-6
"""More than the rounding of results, so that a run may cost exactly its budget."""
# Batches of 16 to 2,048 sequences: what the memory question is asked with.
_BLOCKS = range(4 * CELLS_PER_OCTAVE // CELLS_PER_BLOCK, 11 * CELLS_PER_OCTAVE // CELLS_PER_BLOCK)


def diagnose(problem: Problem, found: Found) -> InfeasibleError:
    """Return the error that names the limit that binds and the nearest way out.

    Args:
        problem: the question.
        found: a search in which no case has a feasible design.
    """
    case, search = problem.cases[0], found.searches[0]
    if (dear := _too_dear(problem, case, search)) is not None:
        return dear
    nearest = min(search.trials, key=lambda t: t.outcome.violation)
    points = _small_points(problem, architecture_of(nearest.point))
    return InfeasibleError(
        f"no feasible design for {case.label}: {_rule(problem, case, nearest.outcome.reason)}",
        hint=_nearest_fix(problem, case, points, nearest.outcome.reason),
    )


def _too_dear(problem: Problem, case: Case, search: SearchState) -> InfeasibleError | None:
    """Return the error where a way to the loss was found but costs more than the budget."""
    over = [t for t in search.trials if t.outcome.reason in ("budget", TOO_DEAR)]
    name = next((n for n in ("usd", "gpu_hours") if getattr(case, n) is not None), None)
    if case.target_loss is None or name is None or not over:
        return None
    nearest = min(over, key=lambda t: t.outcome.violation)
    amount = float(getattr(case, name)) * exp(nearest.outcome.violation)
    more = _with(case, name, amount * (1.0 + _ROUNDING))
    if not Evaluator(problem).outcome(architecture_of(nearest.point), more).feasible:
        return None
    needed = _amount(name, amount)
    return InfeasibleError(
        f"no feasible design for {case.label}: the cheapest way to that loss takes {needed}",
        hint=f"the smallest budget that works is about {needed}, or choose a higher loss",
    )


def _amount(name: str, value: float) -> str:
    """Return an amount in words of three digits, rounded up so that it is enough."""
    digit = 10.0 ** (floor(log10(value)) - 2)
    value = ceil(value / digit) * digit
    return {
        "usd": format_usd(value), "gpu_hours": f"{format_count(value)} GPU-h",
        "flop": f"{value:.2e} FLOP",
    }[name]  # fmt: skip


def architecture_of(candidate: Candidate) -> Point:
    """Return the architecture of a candidate of either space."""
    return candidate.architecture if isinstance(candidate, JointPoint) else candidate


def _small_points(problem: Problem, nearest: Point) -> list[Point]:
    """Return architectures that come closest to feasible: the nearest one and the smallest."""
    space = problem.space
    if space.fixed is not None:
        return [nearest]
    sizes = []
    for width in space.hidden_size[:3]:
        for layers in space.layers[:12]:
            point = space.point(hidden_size=float(width), layers=float(layers))
            if space.is_valid(point):
                sizes.append((max(space.architecture(point).parameters, MIN_PARAMETERS), point))
    return [nearest, *(p for _, p in sorted(sizes)[:3])]


def _rule(problem: Problem, case: Case, reason: str) -> str:
    gpus = max(case.gpu_limit(offer) for offer in case.offers)
    names = ", ".join(dict.fromkeys(offer.name for offer in case.offers))
    keys = [*problem.pins.exact, *problem.pins.ranges]
    limit = problem.memory_limit_share
    share = "" if limit == SHARE_FITS else f"{format_share(limit)} of "
    pinned = f" with {', '.join(keys)} pinned" if keys else ""
    return {
        "memory": f"no plan fits into {share}the memory of the GPUs that the budget and the limit "
        f"of {gpus:,} GPUs allow on {names}",
        "no valid plan": f"no plan divides the model over the GPUs of {names} that the budget and "
        f"the deadline ask for{pinned}",
        "target": f"no model reaches loss {case.target_loss} under law {problem.loss.law.name}, "
        "however many tokens it sees",
        "steps": f"fewer than {problem.min_steps:,} optimizer steps are affordable in "
        f"{format_duration(case.deadline_s)}",
        "tokens a parameter": f"fewer than {problem.min_tokens_per_parameter:g} token a parameter "
        "is affordable",
        "budget or deadline": "the tokens it takes cost more than the budget, or last longer than "
        f"{format_duration(case.deadline_s)}",
        "batch": "the batch exceeds 8 times the critical batch, where no data says what happens",
        "architecture": "no architecture of the space is valid",
    }.get(reason, reason)


def _nearest_fix(problem: Problem, case: Case, points: list[Point], reason: str) -> str:
    """Return the smallest change of one limit that makes something feasible."""
    if reason == "target":
        return "choose a loss above the law's irreducible one"
    if reason == "memory" and problem.memory_limit_share < SHARE_FITS:
        usual = replace(problem, memory_limit_share=SHARE_FITS)
        if _works(usual, case, points):
            return f"the usual --memory-limit {SHARE_FITS:g} would be enough"
    if reason == "memory" and (fix := _enough_gpus(problem, case, points[0])):
        return fix
    name = next((n for n in ("usd", "gpu_hours", "flop") if getattr(case, n) is not None), None)
    longer = _smallest(
        lambda f: _works(problem, replace(case, deadline_s=case.deadline_s * f), points)
    )
    if name is not None:
        amount = float(getattr(case, name))
        more = _smallest(lambda f: _works(problem, _with(case, name, amount * f), points))
        if more is not None and (longer is None or more <= longer):
            return f"the smallest budget that works is about {_amount(name, amount * more)}"
        # A budget of GPUs for some days is used up by its own deadline: both must grow.
        both = _smallest(
            lambda f: _works(
                problem, _with(replace(case, deadline_s=case.deadline_s * f), name, amount * f),
                points,
            )
        ) if longer is None and more is None else None  # fmt: skip
        if both is not None:
            days = format_duration(case.deadline_s * both)
            return f"a deadline of {days} with a budget of {_amount(name, amount * both)} works"
    if longer is not None:
        return f"a deadline of {format_duration(case.deadline_s * longer)} would be enough"
    if problem.space.fixed is not None:
        what = "GPUs with more memory" if reason == "memory" else "more time, GPUs or money"
        return f"choose {what}, or a smaller model"
    return "relax --fix, --range, --max-gpus or the deadline"


def _with(case: Case, name: str, amount: float) -> Case:
    """Return the case with another budget of the same kind."""
    if name == "usd":
        return replace(case, usd=amount)
    return replace(case, gpu_hours=amount) if name == "gpu_hours" else replace(case, flop=amount)


def _smallest(works: Callable[[float], bool]) -> float | None:
    """Return about the smallest factor above 1 that works, None when no power of two does."""
    high = 1.0
    for _ in range(_DOUBLINGS):
        high *= 2.0
        if works(high):
            break
    else:
        return None
    low = high / 2.0
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def _works(problem: Problem, case: Case, points: list[Point]) -> bool:
    """Return whether any of the points, or the scan's first, is feasible under a changed case."""
    changed = replace(problem, cases=(case,))
    evaluator = Evaluator(changed)
    start = scan(changed, case, points=1).start
    found: list[Outcome] = []
    for point in dict.fromkeys([*points, *start]):
        found.append(evaluator.outcome(point, case))
        if found[-1].feasible:
            return True
    return False


def _enough_gpus(problem: Problem, case: Case, point: Point) -> str:
    """Return the smallest number of GPUs whose memory holds the model, in words."""
    for offer in case.offers:
        count = _smallest_count(problem, offer, point)
        if count is not None:
            if count > case.gpu_limit(offer):
                return f"at least {count:,} GPUs of {offer.name} are needed to hold this model"
            return (
                f"{count:,} GPUs of {offer.name} would hold this model: raise the budget or "
                "choose a smaller model"
            )
    names = ", ".join(offer.name for offer in case.offers)
    return f"no number of GPUs of {names} holds this model: choose GPUs with more memory"


def _smallest_count(problem: Problem, offer: Offer, point: Point) -> int | None:
    """Gallop, then bisect over the GPU counts of a cluster; memory only falls with more GPUs."""
    free = replace(problem, pins=Pins(exact={
        k: v for k, v in problem.pins.exact.items() if k not in ("gpus", "global_batch_size")
    }))  # fmt: skip
    table = Evaluator(free).table(point, offer)
    counts = gpu_counts(offer.cluster, max_gpus=offer.cluster.max_gpus, pins=free.pins)

    def holds(position: int) -> bool:
        return len(table.window([(int(counts[position]), b) for b in _BLOCKS])) > 0

    low, high = -1, 0
    while not holds(high):
        if high == len(counts) - 1:
            return None
        low, high = high, min(len(counts) - 1, 2 * high + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return int(counts[high])
