"""Budget, price and deadline turn step times into runs that add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from vtrain_search.evaluator import Evaluator, Task
from vtrain_search.problem import Problem
from vtrain_search.rounding import round_relative

from vtrain.design import Design


def outcome_row(problem: Problem, hidden: int = 4096, layers: int = 32) -> dict[str, float]:
    point = problem.space.point(hidden_size=float(hidden), layers=float(layers))
    (outcome,) = Evaluator(problem).evaluate(Task(point, (0,)))
    assert outcome.feasible
    return outcome.row


def test_a_row_adds_up(small_problem: Problem) -> None:
    """Cost = GPUs x wall hours x price, tokens = steps x batch x sequence, MFU from the row."""
    row = outcome_row(small_problem)
    assert row["gpu_hours"] == pytest.approx(row["gpus"] * row["wall_s"] / 3600, rel=1e-9)
    assert row["cost_usd"] == pytest.approx(
        row["gpu_hours"] * row["price_usd_per_gpu_hour"], rel=1e-9
    )
    assert row["tokens"] == row["steps"] * row["global_batch_size"] * row["seq_length"]
    assert row["cost_usd"] + row["unspent_usd"] == pytest.approx(1e4, rel=1e-9)
    assert row["wall_s"] <= 30 * 86_400
    design = Design.from_row(row)
    peak = small_problem.cases[0].offers[0].cluster.device.peak_flops["bf16"]
    flops = design.architecture.training_flops_per_token(4096)
    rate = row["global_batch_size"] * 4096 / row["step_time_s"]
    assert row["mfu"] == pytest.approx(rate * flops / (peak * row["gpus"]), rel=1e-9)


def test_more_money_time_or_gpus_never_raise_the_loss(small_problem: Problem) -> None:
    """For one architecture every limit that is loosened can only help."""
    case = small_problem.cases[0]
    base = outcome_row(small_problem)["loss"]
    assert case.usd is not None
    looser = {
        "usd": replace(case, usd=2 * case.usd),
        "deadline": replace(case, deadline_s=2 * case.deadline_s),
        "cheaper": replace(
            case, offers=(replace(case.offers[0], price_usd_per_gpu_hour=2.0),)
        ),
    }  # fmt: skip
    for name, changed in looser.items():
        loss = outcome_row(replace(small_problem, cases=(changed,)))["loss"]
        assert loss <= base * (1 + 1e-6), name
    capped = outcome_row(replace(small_problem, cases=(replace(case, max_gpus=8),)))
    assert capped["gpus"] <= 8
    assert capped["loss"] >= base


def test_all_budgets_of_a_task_share_one_table(make_problem: Callable[..., Problem]) -> None:
    """Several cases in one task give what each gives alone."""
    table = make_problem("1e4usd", "3e4usd")
    alone = make_problem("3e4usd")
    point = table.space.point(hidden_size=4096.0, layers=40.0)
    both = Evaluator(table).evaluate(Task(point, (0, 1)))
    (one,) = Evaluator(alone).evaluate(Task(point, (0,)))
    assert both[1] == one
    assert both[1].value < both[0].value


def test_gpu_hours_and_dollars_agree(make_problem: Callable[..., Problem]) -> None:
    """The same GPU-hours stated in dollars give the same design."""
    dollars = outcome_row(make_problem("3000usd", prices=("3.0",)))
    hours = outcome_row(make_problem("1000gpuh", prices=("3.0",)))
    keys = ("gpus", "tp", "pp", "dp", "global_batch_size", "tokens", "loss")
    assert [dollars[k] for k in keys] == [hours[k] for k in keys]


def test_a_flop_budget_buys_its_flops(make_problem: Callable[..., Problem]) -> None:
    """Model FLOPs of the run are at most the budget and within one step of it."""
    row = outcome_row(make_problem("1e21flop"))
    design = Design.from_row(row)
    flop = row["tokens"] * design.architecture.training_flops_per_token(4096)
    assert flop <= 1e21 * (1 + 1e-9)
    assert flop > 1e21 * (1 - 2 / row["steps"])


def test_several_clusters_compete(make_problem: Callable[..., Problem]) -> None:
    """With two clusters the better of the two alone is taken."""
    both = outcome_row(make_problem("1e4usd", clusters=("a100", "h100")))
    alone = [
        outcome_row(make_problem("1e4usd", clusters=(name,))) for name in ("a100", "h100")
    ]  # fmt: skip
    best = min(alone, key=lambda row: row["loss"])
    assert (both["cluster"], both["loss"]) == (best["cluster"], best["loss"])


def test_an_impossible_request_names_its_limit(make_problem: Callable[..., Problem]) -> None:
    """An infeasible outcome carries a reason and how far it is from feasible."""
    problem = make_problem("1e4usd", arch="llama3-405b", clusters=("v100",), max_gpus=8)
    (outcome,) = Evaluator(problem).evaluate(Task(problem.space.point(), (0,)))
    assert outcome.reason == "memory"
    assert outcome.violation > 0
    assert not outcome.row


def test_rounding_keeps_ten_digits() -> None:
    """Rounding moves a value by less than 1e-9 and is idempotent."""
    values = np.array([1.97553122812345, 0.0, np.inf, 123456.789012345, 1e-30])
    once = round_relative(values)
    assert np.array_equal(once, round_relative(once))
    finite = np.isfinite(values)
    assert np.all(np.abs(once[finite] - values[finite]) <= 1e-9 * np.abs(values[finite]))
    assert np.isinf(once[2])
