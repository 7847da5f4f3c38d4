"""Reaching a loss is the inverse of spending a budget."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from vtrain_search.driver import search
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
