"""Answers carry what a careful reader needs; progress says where a search stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from vtrain_search.driver import Found, Progress, search
from vtrain_search.executors import InlineExecutor
from vtrain_search.problem import Problem
from vtrain_search.report import Answer, answer_case, assumptions, document, render
from vtrain_search.report.document import plain
from vtrain_search.report.progress import describe
from vtrain_search.report.table import console
from vtrain_search.search_state import Settings


@pytest.fixture(scope="module")
def answered(quick_problem: Callable[..., Problem]) -> tuple[Problem, Found, Answer]:
    problem = quick_problem("1e4usd")
    found = search(problem, Settings(max_trials=40), InlineExecutor(problem))
    answer = answer_case(problem, problem.cases[0], found.searches[0], seed=0)
    assert answer is not None
    return problem, found, answer


def test_ties_are_within_one_percent_and_smallest_first(
    answered: tuple[Problem, Found, Answer],
) -> None:
    """Every tie costs under 1 % of the budget; they are ordered by size."""
    _, _, answer = answered
    sizes = [t["parameters"] for t in answer.ties]
    assert sizes == sorted(sizes)
    assert all(0.0 <= t["gap_budget_share"] < 0.01 for t in answer.ties)


def test_smaller_models_are_priced(answered: tuple[Problem, Found, Answer]) -> None:
    """Half and quarter size are there, cost more the smaller they are, and see more tokens."""
    _, _, answer = answered
    assert [s["size"] for s in answer.smaller] == ["half", "quarter"]
    half, quarter = answer.smaller
    assert 0.0 < half["gap_budget_share"] < quarter["gap_budget_share"] < 1.0
    assert answer.row["tokens"] < half["tokens"] < quarter["tokens"]
    assert half["parameters"] == pytest.approx(answer.row["parameters"] / 2, rel=0.13)


def test_the_interval_and_the_undecided_sizes_hold_the_answer(
    answered: tuple[Problem, Found, Answer],
) -> None:
    """Loss lies in its interval, the answer's size in the range the law cannot decide."""
    _, _, answer = answered
    row = answer.row
    assert row["loss_low"] < row["loss"] < row["loss_high"]
    low, high = row["undecided_parameters"]
    assert low <= row["parameters"] <= high
    # 10 % more budget buys between 0.1 % and 1 % of the loss at this size.
    assert 0.001 < row["next_tenth_nats"] / row["loss"] < 0.01


def test_the_document_is_strict_json(answered: tuple[Problem, Found, Answer]) -> None:
    """No NaN, no infinity, no NumPy types; assumptions name law, stack, price and limits."""
    problem, _, answer = answered
    made = document([answer, None], assumptions=assumptions(problem), run={"seed": 0})
    text = json.dumps(made, allow_nan=False)
    assert len(json.loads(text)["rows"]) == 1
    assert plain({"a": float("inf"), "b": (1, float("nan"))}) == {"a": None, "b": [1, None]}
    assumed = made["assumptions"]
    assert assumed["clusters"]["h100-sxm-80g"]["price_usd_per_gpu_hour"] == 3.0
    assert {"law", "stack", "sequence", "vocabulary", "deadline_days"} <= set(assumed)


def test_every_table_fits_the_page(
    answered: tuple[Problem, Found, Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    """No cell is cut off where nobody looks at a terminal."""
    problem, _, answer = answered
    out = console()
    for block in render([answer], assumptions(problem)):
        out.print(block)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "What to train" in text
    assert "quarter size" in text


def test_unspent_money_is_explained(quick_problem: Callable[..., Problem]) -> None:
    """A cap that binds is named with what it leaves."""
    problem = quick_problem("1e6usd", max_gpus=16)
    found = search(problem, Settings(max_trials=16), InlineExecutor(problem))
    answer = answer_case(problem, problem.cases[0], found.searches[0], seed=0)
    assert answer is not None
    assert answer.row["unspent_usd"] > 9e5
    assert any("GPU cap" in warning for warning in answer.row["warnings"])


def test_progress_says_what_matters() -> None:
    """Architectures, best loss, feasible share, rate and time left on one line."""
    progress = Progress(trials=60, evaluated=55, feasible=44, plans=2_000_000, best={0: 2.1234})
    text = describe(progress, cases=1, elapsed_s=5.5)
    for part in ("55 architectures", "best loss 2.1234", "80 % feasible", "10.0/s", "6 s left"):
        assert part in text
