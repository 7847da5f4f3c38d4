"""The sentences of a comparison: what the alternative is, what it costs, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.units import format_count, format_usd
from vtrain_search.alternatives.setting import offer_of, setting_of
from vtrain_search.alternatives.step_parts import IDEAL, WORDS, step_shares
from vtrain_search.report.answer import TIE_SHARE, loss_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain_search.evaluator import Outcome
    from vtrain_search.problem import Case, Problem

    Row = Mapping[str, Any]

_SAME_SIZE = 0.03
_NOTABLE = 0.01
_SHARE_NOTABLE = 0.005
_NO_CHANGE = 5e-5


def design_words(row: Row) -> str:
    """Return a design in one phrase: size, tokens, GPUs, degrees."""
    degrees = " x ".join(
        f"{name} {row[key]}"
        for name, key in (("TP", "tp"), ("CP", "cp"), ("PP", "pp"), ("DP", "dp"))
        if row[key] > 1
    )
    recompute = "" if row["recompute"] == "none" else f", {row['recompute']} recomputation"
    return (
        f"{format_count(row['parameters'])} on {format_count(row['tokens'])} tokens, "
        f"{row['gpus']:,} GPUs{f' as {degrees}' if degrees else ''}{recompute}"
    )


def verdict(
    text: str, case: Case, row: Row, gap: float, share: float, *, searched: bool = True
) -> str:
    """Return the first sentence: the alternative's best design and what it costs.

    Args:
        text: the alternative as it was named.
        case: the question that was answered.
        row: its best design.
        gap: its loss less that of the answer, nats.
        share: share of the budget the gap is worth, or of dollars or days with a target loss.
        searched: it lies in the space that was searched.
    """
    why = "the search had missed it" if searched else "it was not among what was searched"
    percent = f"{100 * abs(share):.1f} %"
    head = f"{text}: at best {design_words(row)}; "
    if case.target_loss is not None:
        head += f"it takes {format_usd(row['cost_usd'])} and {row['days']:.1f} days, {percent} "
        what = "cost" if case.objective == "cost" else "time"
        head += f"{'more' if share > 0.0 else 'less'} {what}"
        worse = ""
    else:
        side = "above" if gap > 0.0 else "below"
        apart = "as good as" if abs(gap) < _NO_CHANGE else f"{abs(gap):.4f} nats {side}"
        head += f"loss {row['loss']:.4f}, {apart} the answer"
        worse = f", like losing {percent} of the budget"
    if abs(share) < TIE_SHARE:
        return f"{head}, a tie (under 1 % of the budget)"
    return f"{head}{worse}" if share > 0.0 else f"{head}: better, {why}"


def reasons(
    problem: Problem,
    case: Case,
    other_case: Case,
    best: Row,
    row: Row,
    same: Outcome | None,
    *,
    of_size: bool,
) -> list[str]:
    """Return at most two sentences that say where the gap comes from.

    Args:
        problem: loss model, stack, sequence length.
        case: the question that was answered.
        other_case: the question with the alternative held fixed.
        best: the answer's row.
        row: the alternative's best row.
        same: what the recommended architecture itself reaches with the alternative; None where
            the alternative is another architecture.
        of_size: the alternative is a model of another size.
    """
    tokens = _tokens_line(problem, case, other_case, best, row)
    if of_size:
        return [line for line in (_size_line(problem, best, row), tokens) if line]
    if same is not None and not same.feasible:
        return [_unfit_line(best, same), tokens]
    speed = float(row["mfu"]) / float(best["mfu"])
    if row["cluster"] != best["cluster"] or abs(np.log(speed)) <= _NOTABLE:
        return [tokens]
    return [line for line in (tokens, _time_line(problem, case, other_case, best, row)) if line]


def _size_line(problem: Problem, best: Row, row: Row) -> str:
    """Split the gap into what the size does and what the tokens do."""
    ratio = row["parameters"] / best["parameters"]
    if abs(np.log(ratio)) <= _SAME_SIZE:
        return ""
    at_same_tokens = dict(row) | {"tokens": _whole_steps(best["tokens"], row)}
    moved = float(problem.loss.loss(loss_inputs([at_same_tokens]))[0]) - float(best["loss"])
    rest = float(row["loss"]) - float(best["loss"]) - moved
    if abs(moved) < _NO_CHANGE:
        return ""
    kind = "larger" if ratio > 1.0 else "smaller"
    tokens = row["tokens"] / best["tokens"]
    return (
        f"the {kind} model alone would change the loss by {moved:+.4f} nats, its "
        f"{tokens:.2f} times the tokens change it by {rest:+.4f}"
    )


def _whole_steps(tokens: float, row: Row) -> int:
    step = int(row["global_batch_size"]) * int(row["seq_length"])
    return max(1, round(tokens / step)) * step


def _tokens_line(problem: Problem, case: Case, other_case: Case, best: Row, row: Row) -> str:
    """Say why the budget buys other tokens: hours, speed of a GPU, work a token."""
    parts = []
    hours = row["gpu_hours"] / best["gpu_hours"]
    if abs(np.log(hours)) > _NOTABLE:
        unspent = row["unspent_usd"] - best["unspent_usd"]
        if unspent > _NOTABLE * best["cost_usd"]:
            parts.append(
                f"{hours:.2f} times the GPU-hours ({format_usd(row['unspent_usd'])} are left "
                f"after {row['days']:.1f} days)"
            )
        else:
            price = row["price_usd_per_gpu_hour"]
            parts.append(f"{hours:.2f} times the GPU-hours (at ${price:.2f} each)")
    speed = _useful_flops(problem, other_case, row) / _useful_flops(problem, case, best)
    if abs(np.log(speed)) > _NOTABLE:
        parts.append(
            f"{speed:.2f} times the speed of a GPU (MFU {100 * row['mfu']:.1f} % instead of "
            f"{100 * best['mfu']:.1f} %)"
        )
    work = _flops_per_token(problem, other_case, row) / _flops_per_token(problem, case, best)
    if abs(np.log(work)) > _NOTABLE:
        parts.append(f"{work:.2f} times the work a token")
    tokens = row["tokens"] / best["tokens"]
    if not parts:
        return f"it sees {tokens:.3f} times the tokens; hours, speed and work hardly differ"
    return f"it sees {tokens:.2f} times the tokens: {', '.join(parts)}"


def _useful_flops(problem: Problem, case: Case, row: Row) -> float:
    from vtrain_search.window import peak_flops

    return float(row["mfu"] * row["goodput"]) * peak_flops(problem, offer_of(case, row))


def _flops_per_token(problem: Problem, case: Case, row: Row) -> float:
    setting = setting_of(problem, case, row)
    return float(setting.architecture.training_flops_per_token(problem.seq_length))


def _time_line(problem: Problem, case: Case, other_case: Case, best: Row, row: Row) -> str:
    """Name the parts of the step that grew (or shrank) most, as shares of the step."""
    ours, theirs = step_shares(problem, case, best), step_shares(problem, other_case, row)
    slower = row["mfu"] < best["mfu"]
    change = {k: (theirs[k] - ours[k]) * (1 if slower else -1) for k in WORDS if k != IDEAL}
    top = sorted((k for k in change if change[k] > _SHARE_NOTABLE), key=lambda k: -change[k])[:2]
    if not top:
        return ""
    said = " and ".join(
        f"{WORDS[k]} {100 * theirs[k]:.1f} % instead of {100 * ours[k]:.1f} %" for k in top
    )
    return f"of the step, {said}"


def _unfit_line(best: Row, same: Outcome) -> str:
    size = format_count(best["parameters"])
    if same.reason == "memory":
        return f"the recommended {size} does not fit in memory with it"
    if same.reason == "no valid plan":
        return f"the recommended {size} cannot be divided like that"
    return f"the recommended {size} breaks a limit with it: {same.reason}"
