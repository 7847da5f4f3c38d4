from __future__ import annotations

import numpy as np
import pytest

from vtrain.validation.judge import rank_correlation, regret_score, time_score


def test_errors_are_relative_to_the_measurement():
    """+10 % and -20 % make 15 % absolute and -5 % bias; intervals are on measured / predicted."""
    measured = np.array([1.0, 2.0])
    predicted = np.array([1.1, 1.6])
    score = time_score(predicted, measured, np.full(2, 0.8), np.full(2, 1.2))
    assert score.mape_pct == pytest.approx(15.0)
    assert score.bias_pct == pytest.approx(-5.0)
    assert score.coverage_pct == 50.0
    assert score.half_width_pct == pytest.approx(20.0)


def test_rank_correlation_is_one_for_any_monotone_prediction():
    """Levels do not matter, order does; ties share their rank."""
    measured = np.array([3.0, 1.0, 2.0, 2.0])
    assert rank_correlation(np.exp(measured), measured) == pytest.approx(1.0)
    assert rank_correlation(-measured, measured) == pytest.approx(-1.0)
    assert rank_correlation(np.ones(4), measured) is None


def test_regret_is_the_price_of_the_plan_we_would_pick():
    """The first-ranked plan against the best measured one; repeats count as their mean."""
    problems = ["p"] * 5 + ["q"] * 2
    plans = ["a", "a", "b", "c", "d", "a", "b"]
    measured = np.array([1.0, 1.2, 1.0, 2.0, 3.0, 1.0, 9.0])
    predicted = np.array([0.9, 0.9, 1.0, 2.0, 3.0, 1.0, 1.0])
    score = regret_score(problems, plans, predicted, measured)
    assert score.groups == 1
    assert score.median_pct == pytest.approx(10.0)
    assert score.random_median_pct == pytest.approx((1.1 + 1.0 + 2.0 + 3.0) / 4.0 * 100.0 - 100.0)


def test_no_problem_with_three_plans_has_no_regret():
    """Two plans are no choice worth judging."""
    score = regret_score(["p", "p"], ["a", "b"], np.ones(2), np.ones(2))
    assert (score.groups, score.median_pct) == (0, None)
