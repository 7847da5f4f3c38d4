"""The answer to one budget: the recommended design, its interval, ties and smaller models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.design import Design
from vtrain.interval import UNRELIABLE_SHARE
from vtrain.memory import reliable_limit_share
from vtrain_search.evaluator import Evaluator
from vtrain_search.laws import WARN_BEYOND, Designs
from vtrain_search.objective import designs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vtrain_search.problem import Case, Problem
    from vtrain_search.search_state import SearchState, Trial

TIE_SHARE = 0.01
"""Gaps under 1 % of the budget are below any simulator's error."""
SMALLER = {"half": 0.5, "quarter": 0.25}
SIZE_SLACK = 1.12
"""A model counts as half (a quarter) of the size within this factor."""
_UNSPENT_SHARE = 0.01
_TENTH = 1.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer to one case.

    Attributes:
        case: the question.
        row: the best design with all results, as in `--json`.
        outcome_row: the same design as the search stored it.
        ties: designs that cannot be told from the best, smallest first.
        smaller: best designs at a half and a quarter of the size.
        trials: architectures tried.
        problem: what the question is part of.
        tried: rows of every feasible architecture tried, in the order they were told.
    """

    case: Case
    row: Mapping[str, Any]
    outcome_row: Mapping[str, Any]
    ties: Sequence[Mapping[str, Any]]
    smaller: Sequence[Mapping[str, Any]]
    trials: int
    problem: Problem = field(repr=False, compare=False)
    tried: Sequence[Mapping[str, Any]] = field(repr=False, compare=False)


def answer_case(problem: Problem, case: Case, search: SearchState, *, seed: int) -> Answer | None:
    """Return the answer of a finished (or interrupted) search; None when nothing was feasible.

    Args:
        problem: loss model and assumptions.
        case: the question.
        search: its search.
        seed: seed of the run.
    """
    if search.best is None:
        return None
    best = search.best.outcome.row
    found = [t for t in _distinct(search) if t.outcome.feasible]
    rows = [t.outcome.row for t in found]
    own = loss_inputs([best])
    low, _, high = (
        float(v[0]) for v in problem.loss.interval(own, time_log_sd=problem.stack.time_log_sd)
    )
    beyond = {name: float(v[0]) for name, v in problem.loss.extrapolation(own).items()}
    ties = _ties(problem, best, rows)
    smaller = _smaller(problem, best, rows)
    row = {
        "budget": case.label,
        "budget_usd": case.usd,
        "budget_gpu_hours": case.gpu_hours,
        "budget_flop": case.flop,
        "deadline_days": case.deadline_s / 86_400.0,
        **best,
        "mem_limit_share": problem.memory_limit_share,
        "loss_low": low,
        "loss_high": high,
        "law": problem.loss.law.name,
        "extrapolation": beyond,
        "tokens_per_parameter": best["tokens"] / best["parameters"],
        "days": best["wall_s"] / 86_400.0,
        "next_tenth_nats": next_tenth(problem, case, best),
        "target_loss": case.target_loss,
        "seed": seed,
        "warnings": _warnings(problem, case, best, beyond),
        "ties": ties,
        "smaller": smaller,
        "undecided_parameters": _undecided(problem, best, rows),
    }
    return Answer(
        case=case, row=row, outcome_row=best, ties=ties, smaller=smaller,
        trials=len(search.trials), problem=problem, tried=rows,
    )  # fmt: skip


def next_tenth(problem: Problem, case: Case, best: Mapping[str, Any]) -> float | None:
    """Return the loss that 10 % more budget would take off, in nats.

    Where the budget is spent it is the slope in tokens (all of the extra compute spent on tokens of
    the same model is as good as any split, Hoffmann et al. 2022, section 3.3) times ln 1.1. Where
    tokens are pinned the model grows instead. Where money is left the recommended model is planned
    anew under the larger budget.

    Args:
        problem: loss model.
        case: the question.
        best: the answer's row.

    Returns:
        Nats, 0 where more money changes nothing; None with a target loss, where it is no aim.
    """
    if case.target_loss is not None:
        return None
    own = loss_inputs([best])
    if money_left(best) and case.pinned:
        return 0.0
    if money_left(best):
        from vtrain_search.alternatives.setting import point_of

        evaluator = Evaluator(problem)
        now, then = (evaluator.outcome(point_of(best), case.times(f)).loss for f in (1.0, _TENTH))
        return max(0.0, now - then)
    if not case.pinned:
        return float(-problem.loss.dloss_dlntokens(own)[0] * np.log(_TENTH))
    if problem.space.fixed is not None:
        return 0.0
    # Compute grows as size times tokens: as size squared where tokens grow with it.
    both = case.tokens_per_parameter is not None
    factor = _TENTH ** (0.5 if both else 1.0)
    larger = replace(
        own, parameters_non_embedding=own.parameters_non_embedding * factor,
        tokens=own.tokens * (factor if both else 1.0),
    )  # fmt: skip
    return max(0.0, float((problem.loss.loss(own) - problem.loss.loss(larger))[0]))


def money_left(row: Mapping[str, Any]) -> bool:
    """Return whether a run leaves more than a trifle of its budget."""
    spent = row["cost_usd"] + row["unspent_usd"]
    return bool(spent > 0.0 and row["unspent_usd"] > _UNSPENT_SHARE * spent)


def loss_inputs(rows: Sequence[Mapping[str, Any]]) -> Designs:
    """Return what the loss model needs of several rows, one design each."""
    parts = []
    for row in rows:
        design = Design.from_row(row)
        parts.append(
            designs_of(
                design.architecture,
                tokens=np.float64(design.tokens or 0),
                batch=np.float64(design.plan.global_batch_size),
                seq_length=design.seq_length,
            )
        )
    names = Designs.__dataclass_fields__
    return Designs(**{n: np.array([float(getattr(p, n)) for p in parts]) for n in names})


def _distinct(search: SearchState) -> list[Trial]:
    """Return one trial an architecture, in the order they were told."""
    return list({t.point: t for t in reversed(search.trials)}.values())[::-1]


def budget_shares(
    problem: Problem, best: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> NDArray[np.float64]:
    """Return what share of the budget each row is worse than the best one.

    With a target loss it is the share of dollars or days that a row takes on top.
    """
    if best["objective_value"] != best["loss"]:
        values = np.array([r["objective_value"] for r in rows])
        return np.asarray(np.expm1(values - best["objective_value"]))
    gaps = np.array([r["loss"] - best["loss"] for r in rows])
    own = loss_inputs([best])
    return problem.loss.budget_share(gaps, own.take([0] * len(rows)))


def _ties(
    problem: Problem, best: Mapping[str, Any], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the designs within 1 % of the budget of the best, smallest first."""
    others = [r for r in rows if r is not best]
    if not others:
        return []
    share = budget_shares(problem, best, others)
    order = sorted(
        (i for i in range(len(others)) if share[i] < TIE_SHARE),
        key=lambda i: (others[i]["parameters"], others[i]["objective_value"]),
    )
    return [_short(problem, others[i], best, float(share[i])) for i in order]


def _undecided(
    problem: Problem, best: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[int] | None:
    """Return the smallest and largest size that the law's 90 % interval cannot tell from the best.

    Paired: both designs are judged by the same draws of the law, and the interval of the
    difference contains 0. None with a target loss, where every design has the same loss.
    """
    if best["objective_value"] != best["loss"]:
        return None
    low, _, high = problem.loss.paired(loss_inputs(rows), loss_inputs([best]))
    sizes = [r["parameters"] for r, a, b in zip(rows, low, high, strict=True) if a <= 0.0 <= b]
    return [min(sizes), max(sizes)]


def _smaller(
    problem: Problem, best: Mapping[str, Any], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the best design at a half and at a quarter of the size, with its price."""
    found = []
    for name, factor in SMALLER.items():
        target = best["parameters"] * factor
        near = [r for r in rows if target / SIZE_SLACK <= r["parameters"] <= target * SIZE_SLACK]
        if not near:
            continue
        choice = min(near, key=lambda r: (r["objective_value"], r["parameters"]))
        share = float(budget_shares(problem, best, [choice])[0])
        found.append({"size": name, **_short(problem, choice, best, share)})
    return found


def _short(
    problem: Problem, row: Mapping[str, Any], best: Mapping[str, Any], share: float
) -> dict[str, Any]:
    """Return a runner-up: its whole design, its gap in nats and in shares of the budget."""
    return {
        **row,
        "tokens_per_parameter": row["tokens"] / row["parameters"],
        "days": row["wall_s"] / 86_400.0,
        "mem_limit_share": problem.memory_limit_share,
        "gap_nats": row["loss"] - best["loss"],
        "gap_budget_share": share,
    }


def too_full(case: Case, row: Mapping[str, Any]) -> bool:
    """Return whether a design fills its device so far that its step time is not to be trusted."""
    device = next(o for o in case.offers if o.name == row["cluster"]).cluster.device
    return bool(row["mem_peak_bytes"] > UNRELIABLE_SHARE * device.memory_bytes)


def reliable_share(problem: Problem, case: Case) -> float:
    """Return the memory limit under which no design of a case is too full, whatever its GPUs."""
    return min(
        reliable_limit_share(o.cluster.device.memory_bytes, problem.stack) for o in case.offers
    )


def _warnings(
    problem: Problem, case: Case, best: Mapping[str, Any], beyond: Mapping[str, float]
) -> list[str]:
    """Return what a careful reader should know before believing the row."""
    found = []
    for name, factor in beyond.items():
        if factor > WARN_BEYOND:
            what = "the loss law" if name == "law" else f"the {name} term of the loss"
            found.append(f"{what} is used {factor:,.0f} times beyond the data it was fitted to")
    if case.pinned and money_left(best):
        found.append(f"tokens are pinned: ${best['unspent_usd']:,.0f} of the budget is not needed")
    elif case.target_loss is None and money_left(best):
        offer = next(o for o in case.offers if o.name == best["cluster"])
        at_cap = best["gpus"] >= 0.97 * case.gpu_limit(offer)
        binding = "the GPU cap and the deadline leave" if at_cap else "the deadline leaves"
        found.append(f"{binding} ${best['unspent_usd']:,.0f} unspent")
    device = next(o for o in case.offers if o.name == best["cluster"]).cluster.device
    if too_full(case, best):
        full = best["mem_peak_bytes"] / device.memory_bytes
        found.append(
            f"memory: {full:.0%} of the device is allocated; measured runs above "
            f"{UNRELIABLE_SHARE:.0%} were at times several times slower than predicted; "
            f"--memory-limit {reliable_share(problem, case):g} keeps clear of it"
        )
    if best["mfu"] > device.best_measured_mfu:
        found.append(
            f"MFU {best['mfu']:.1%} is beyond the best published on this GPU "
            f"({device.best_measured_mfu:.1%}): plan with the slow end of the interval"
        )
    if problem.longest_sequence is not None and problem.seq_length > problem.longest_sequence:
        found.append(
            f"sequences of {problem.seq_length:,} tokens exceed the {problem.longest_sequence:,} "
            "that this model is made for"
        )
    ratio = best["tokens"] / best["parameters"]
    if ratio > 300.0:
        found.append(f"{ratio:,.0f} tokens a parameter: far from the law's data")
    if problem.loss.law.unit != "nats/token" and "nat" not in problem.loss.law.unit:
        found.append(f"loss is in {problem.loss.law.unit}")
    return found
