"""What binds: which limits hold the answer where it is, and what each is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.design import Design
from vtrain.units import GIB, format_count, format_duration, format_usd
from vtrain_search.alternatives.setting import offer_of, setting_of
from vtrain_search.laws import critical_batch_tokens
from vtrain_search.report.answer import loss_inputs

if TYPE_CHECKING:
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.sensitivity import Change

_NEAR = 0.97
_MEMORY_NEAR = 0.9
_NO_GAIN = 0.001


def binding_lines(problem: Problem, answer: Answer, changes: list[Change]) -> list[str]:
    """Return one line a limit: how close the answer is to it and what more would buy.

    Args:
        problem: the question.
        answer: its answer.
        changes: from `sensitivity`.
    """
    by_name = {change.name: change for change in changes}
    return [
        _budget(answer),
        _deadline(answer, by_name),
        _gpus(answer),
        _memory(problem, answer),
        _batch(problem, answer),
    ]


def _budget(answer: Answer) -> str:
    case, row = answer.case, answer.row
    if case.target_loss is not None:
        return f"The loss to reach binds: {case.target_loss:g} for {format_usd(row['cost_usd'])}"
    gain = float(row["next_tenth_nats"])
    more = (
        f"10 % more of it would lower the loss by about {gain:.4f} nats" if gain
        else "10 % more of it would not lower the loss"
    )  # fmt: skip
    if case.tokens is not None:
        return f"Tokens are fixed at {format_count(case.tokens)}; the run costs " + format_usd(
            row["cost_usd"]
        )
    if case.tokens_per_parameter is not None:
        return f"Tokens are fixed at {case.tokens_per_parameter:g} a parameter: " + more
    used = row["cost_usd"] / (row["cost_usd"] + row["unspent_usd"])
    if row["unspent_usd"] > 0.0 and used < _NEAR:
        return (
            f"The budget does not bind: {format_usd(row['unspent_usd'])} of it is left; cap and "
            "deadline end the run first"
        )
    return f"The budget binds; {more}"


def _deadline(answer: Answer, changes: dict[str, Change]) -> str:
    limit, used = answer.case.deadline_s, float(answer.row["wall_s"])
    name = f"deadline {2.0 * limit / 86_400.0:g} days"
    change = changes.get(name)
    longer = ""
    if change is not None and change.row is not None:
        what = f"the loss by {change.gap:+.4f} nats"
        if answer.case.target_loss is not None:
            what = f"the {answer.case.objective} by {100 * change.gap:+.1f} %"
        longer = f"; twice the time would change {what} with {change.row['gpus']:,} GPUs"
    state = "binds" if used >= _NEAR * limit else "leaves room, in steps of whole GPU counts"
    return f"The deadline {state}: {format_duration(used)} of {format_duration(limit)}{longer}"


def _gpus(answer: Answer) -> str:
    row = answer.row
    limit = answer.case.gpu_limit(offer_of(answer.case, row))
    state = "binds" if row["gpus"] >= _NEAR * limit else "does not bind"
    return f"The number of GPUs {state}: {row['gpus']:,} of at most {limit:,}"


def _memory(problem: Problem, answer: Answer) -> str:
    """Price memory: the fastest plan of the same model, GPUs and batch that does not fit."""
    from vtrain.ranking import rank_plans

    row = answer.row
    setting = setting_of(problem, answer.case, row)
    ranked = rank_plans(
        setting, gpus=(int(row["gpus"]),), global_batch_size=int(row["global_batch_size"]),
        price_usd_per_gpu_hour=float(row["price_usd_per_gpu_hour"]), keep_misfits=True,
    )  # fmt: skip
    share = float(row["mem_peak_bytes"] / row["mem_limit_bytes"])
    used = f"{row['mem_peak_bytes'] / GIB:.1f} of {row['mem_limit_bytes'] / GIB:.1f} GiB"
    state = "is nearly full" if share >= _MEMORY_NEAR else "has room"
    # Plans are in order of step time; twice the memory is the most a next GPU might bring.
    near = np.flatnonzero(ranked.estimate.mem_peak_bytes <= 2.0 * row["mem_limit_bytes"])
    first = int(near[0]) if len(near) else 0
    gain = 1.0 - float(ranked.estimate.step_time_s[first]) / float(row["step_time_s"])
    if gain <= _NO_GAIN:
        return f"Memory {state} ({used}); twice of it would make no plan of this model faster"
    plan = ranked.plans.plan(first)
    need = float(ranked.estimate.mem_peak_bytes[first]) / GIB
    return (
        f"Memory {state} ({used}); TP {plan.tp}, PP {plan.pp}, micro-batch "
        f"{plan.micro_batch_size}, recompute {plan.recompute} would save {100 * gain:.1f} % of "
        f"the step but needs {need:.0f} GiB"
    )


def _batch(problem: Problem, answer: Answer) -> str:
    row = answer.row
    design = Design.from_row(row)
    critical = float(critical_batch_tokens(np.asarray(row["tokens"], dtype=np.float64)))
    ratio = design.tokens_per_step / critical
    text = (
        f"The batch is {format_count(design.tokens_per_step)} tokens, {ratio:.2f} times the "
        "critical one"
    )
    costs = problem.loss.term_costs(loss_inputs([row]))
    said = [f"{name} {float(value[0]):.4f}" for name, value in sorted(costs.items())]
    return f"{text}; terms of the loss model cost, in nats: {', '.join(said)}" if said else text
