"""Reaching a loss is the inverse of spending a budget."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from vtrain_search.diagnosis import diagnose
from vtrain_search.driver import Found, search
from vtrain_search.executors import InlineExecutor
from vtrain_search.laws import LossModel, load_law
from vtrain_search.objective import designs_of
from vtrain_search.problem import Problem
from vtrain_search.search_state import Settings
from vtrain_search.target import tokens_for_loss


def test_tokens_invert_the_loss(small_problem: Problem) -> None:
    """Training on the tokens found gives the loss asked for; an impossible loss gives inf."""
    model = LossModel(law=load_law())
    architecture = small_problem.space.architecture(
        small_problem.space.point(hidden_size=4096.0, layers=32.0)
    )

    def designs(tokens: np.ndarray) -> object:
        return designs_of(architecture, tokens=tokens, batch=[256, 1024], seq_length=4096)

    tokens = tokens_for_loss(model, designs, 2.2, (2,))
    assert model.loss(designs(tokens)) == pytest.approx([2.2, 2.2], abs=1e-9)
    assert np.all(np.isinf(tokens_for_loss(model, designs, 1.8, (2,))))


def test_the_cheapest_way_to_a_loss_costs_its_budget(
    quick_problem: Callable[..., Problem],
) -> None:
    """The loss that $10k buys is reached for about $10k."""
    settings = Settings(max_trials=40)
    spend = quick_problem("1e4usd")
    best = search(spend, settings, InlineExecutor(spend)).searches[0].best
    assert best is not None
    aim = quick_problem(budgets=(), target_losses=(best.outcome.loss,))
    cheapest = search(aim, settings, InlineExecutor(aim)).searches[0].best
    assert cheapest is not None
    assert cheapest.outcome.row["loss"] <= best.outcome.loss * (1 + 1e-9)
    assert cheapest.outcome.row["cost_usd"] == pytest.approx(1e4, rel=0.02)


def test_the_fastest_way_is_no_slower_and_no_cheaper(
    quick_problem: Callable[..., Problem],
) -> None:
    """Within a budget, asking for time takes more GPUs and fewer days than asking for cost."""
    rows = {}
    for objective in ("cost", "time"):
        problem = quick_problem(
            "2e4usd", target_losses=(2.3,), objective=objective, max_gpus=128
        )  # fmt: skip
        best = search(problem, Settings(max_trials=24), InlineExecutor(problem)).searches[0].best
        assert best is not None
        rows[objective] = best.outcome.row
    assert rows["time"]["wall_s"] < rows["cost"]["wall_s"]
    assert rows["time"]["gpus"] > rows["cost"]["gpus"]
    assert rows["cost"]["cost_usd"] <= rows["time"]["cost_usd"] <= 2e4


def test_a_budget_only_filters_the_cheapest_way(quick_problem: Callable[..., Problem]) -> None:
    """Just above what the loss costs every budget finds the same design; just below, none."""
    settings = Settings(max_trials=24)

    def found(*budget: str) -> tuple[Problem, Found]:
        problem = quick_problem(*budget, target_losses=(2.3,))
        return problem, search(problem, settings, InlineExecutor(problem))

    free = found()[1].searches[0]
    assert free.best is not None
    cost = free.best.outcome.row["cost_usd"]
    for factor in (1.001, 1.3, 20.0):
        own = found(f"{factor * cost}usd")[1].searches[0]
        assert own.best is not None
        assert own.best.point == free.best.point
        assert own.best.outcome.row["cost_usd"] == cost
        assert own.best.outcome.row["unspent_usd"] == pytest.approx((factor - 1.0) * cost, rel=1e-6)
        assert [t.point for t in own.trials] == [t.point for t in free.trials]
        over = [t for t in own.trials if t.outcome.reason == "budget"]
        assert bool(over) == (factor < 2.0)
    problem, refused = found(f"{0.999 * cost}usd")
    assert refused.searches[0].best is None
    error = diagnose(problem, refused)
    named = re.search(r"takes \$([\d.]+)k", str(error))
    assert named is not None
    assert cost <= float(named[1]) * 1e3 <= 1.01 * cost


def test_the_fastest_way_starts_from_the_cheapest(quick_problem: Callable[..., Problem]) -> None:
    """A budget that affords hardly more than the cheapest way is enough for the fastest one."""
    settings = Settings(max_trials=60)
    free = quick_problem(target_losses=(2.3,))
    cheapest = search(free, settings, InlineExecutor(free)).searches[0].best
    assert cheapest is not None
    cost = cheapest.outcome.row["cost_usd"]
    tight = quick_problem(f"{1.01 * cost}usd", target_losses=(2.3,), objective="time")
    fastest = search(tight, settings, InlineExecutor(tight)).searches[0].best
    assert fastest is not None
    assert fastest.outcome.row["cost_usd"] <= 1.01 * cost
