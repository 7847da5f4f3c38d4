"""Answers carry what a careful reader needs; progress says where a search stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from vtrain_search.driver import Found, Progress, search
from vtrain_search.executors import InlineExecutor
from vtrain_search.focus import focus_label
from vtrain_search.problem import Problem
from vtrain_search.report import Answer, answer_case, assumptions, document, render
from vtrain_search.report.document import plain
from vtrain_search.report.progress import ProgressLine, describe
from vtrain_search.report.table import _next_tenth, assumption_words, console
from vtrain_search.search_state import Settings

from vtrain.errors import UserInputError


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
    over = describe(progress, cases=1, elapsed_s=5.5, over=True)
    assert "left" not in over
    assert over.endswith("6 s in all")
    played = describe(Progress(trials=60, best={0: 2.1}), cases=1, elapsed_s=2.0)
    assert played == "60 trials played back, best loss 2.1000, 30.0/s, 2 s"


def test_the_last_line_of_progress_tells_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A search ends with one line without time left; a quiet or failed one with none."""
    progress = Progress(trials=60, evaluated=55, feasible=44, best={0: 2.1234})
    with ProgressLine(1) as line:
        line(progress)
        line.stop()
    assert capsys.readouterr().err.count("in all\n") == 1
    with ProgressLine(1, quiet=True) as line:
        line(progress)

    def fail() -> None:
        with ProgressLine(1) as line:
            line(progress)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr().err == ""


def test_budgets_are_numbers_too(answered: tuple[Problem, Found, Answer]) -> None:
    """Beside its label a row gives the budget with its unit in the name; the others are null."""
    row = answered[2].row
    assert row["budget"] == "$10.0k"
    assert row["budget_usd"] == 1e4
    assert row["budget_gpu_hours"] is None
    assert row["budget_flop"] is None
    assert row["deadline_days"] == 30.0


def test_assumptions_are_true_and_legible(make_problem: Callable[..., Problem]) -> None:
    """Every width has the key-value heads the line says; token counts are short."""
    problem = make_problem("1e6usd", unique_tokens="1.5T")
    block = assumptions(problem)["block"]
    assert "4 where hidden is below 4,096 or the heads are no multiple of 8" in block
    for width in problem.space.hidden_size:
        heads = width // 128
        expected = 8 if width >= 4096 and heads % 8 == 0 else 4
        assert problem.space.point(hidden_size=float(width)).num_key_value_heads == expected
    assert assumptions(problem)["unique_tokens"] == 1.5e12
    assert assumption_words("unique_tokens", 1.5e12) == "1.50T"
    assert assumption_words("deadline_days", [30.0, 60.0]) == "30, 60"


def test_a_sequence_longer_than_the_model_knows_is_said(
    make_problem: Callable[..., Problem],
) -> None:
    """A fixed model's own length is in the warning; learned positions refuse what they lack."""
    few = ("recompute=none", "micro_batch_size=1", "virtual_stages=1", "tp=1,2")
    problem = make_problem("1e5usd", arch="llama3-8b", seq_length=16_384, fixed=few)
    found = search(problem, Settings(max_trials=1), InlineExecutor(problem))
    answer = answer_case(problem, problem.cases[0], found.searches[0], seed=0)
    assert answer is not None
    assert any("16,384 tokens exceed the 8,192" in text for text in answer.row["warnings"])
    with pytest.raises(UserInputError, match="nearest valid: 1024"):
        make_problem("1e4usd", arch="gpt2-xl", seq_length=2048)


def test_a_focus_is_a_budget_in_any_spelling(quick_problem: Callable[..., Problem]) -> None:
    """Label and spelling name the same budget; anything else is refused with the labels."""
    problem = quick_problem("1e4usd", "1e6usd")
    for word in ("$10.0k", "1e4usd", "10kusd", "$10,000"):
        assert focus_label(problem, word) == "$10.0k"
    assert focus_label(problem, None) is None
    with pytest.raises(UserInputError, match="is not one budget of this search"):
        focus_label(problem, "2e4usd")


def _answer(problem: Problem, trials: int = 16) -> Answer:
    found = search(problem, Settings(max_trials=trials), InlineExecutor(problem))
    answer = answer_case(problem, problem.cases[0], found.searches[0], seed=0)
    assert answer is not None
    return answer


def test_money_that_is_left_buys_nothing_more(quick_problem: Callable[..., Problem]) -> None:
    """Where the cap ends the run, 10 % more money changes nothing; the table shows a dash."""
    answer = _answer(quick_problem("1e6usd", max_gpus=64))
    assert answer.row["unspent_usd"] > 8e5
    assert answer.row["next_tenth_nats"] == 0.0
    assert any("GPU cap and the deadline leave" in w for w in answer.row["warnings"])
    assert _next_tenth(answer.row["next_tenth_nats"]) == "-"
    assert _next_tenth(0.00321) == "-0.0032"


def test_pinned_tokens_of_a_given_model_leave_money(make_problem: Callable[..., Problem]) -> None:
    """More money buys nothing then, the note says that tokens are pinned, the run is cheapest."""
    rows = {}
    for cap in (None, 104):
        problem = make_problem(
            "250kusd", arch="llama3-8b", fixed=("tokens=1e12",), deadline="15d", max_gpus=cap
        )
        rows[cap] = _answer(problem).row
        assert rows[cap]["next_tenth_nats"] == 0.0
        assert any(w.startswith("tokens are pinned") for w in rows[cap]["warnings"])
        assert not any("deadline leaves" in w for w in rows[cap]["warnings"])
    assert rows[None]["cost_usd"] == rows[104]["cost_usd"]


def test_with_a_target_loss_no_nats_are_bought(quick_problem: Callable[..., Problem]) -> None:
    """The loss is given, so more money takes nothing off it: null in JSON, a dash in the table."""
    answer = _answer(quick_problem(target_losses=(2.3,)))
    assert answer.row["next_tenth_nats"] is None
    assert _next_tenth(None) == "-"
