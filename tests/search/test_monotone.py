"""Looser limits never hurt: more money, lower price, more time, more GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from vtrain_search.build import Request, build_problem
from vtrain_search.driver import share_of
from vtrain_search.evaluator import Evaluator
from vtrain_search.problem import Case

FEW = ("recompute=none", "micro_batch_size=1,2", "virtual_stages=1")
PROBLEM = build_problem(Request(budgets=("1e5usd",), fixed=FEW))
EVALUATOR = Evaluator(PROBLEM)
BOUND = 0.03
"""Share of the budget: the regret that one search may have. Of 3,000 random draws three lost more
than 0.2 %, the worst 1.9 % (2026-12-01): a model far too large for its budget."""


def loosened(case: Case, what: str, factor: float) -> Case:
    """Return the case with one limit loosened by a factor."""
    assert case.usd is not None
    offer = case.offers[0]
    if what == "budget":
        return replace(case, usd=case.usd * factor)
    if what == "price":
        price = offer.price_usd_per_gpu_hour / factor
        return replace(case, offers=(replace(offer, price_usd_per_gpu_hour=price),))
    if what == "deadline":
        return replace(case, deadline_s=case.deadline_s * factor)
    return replace(case, max_gpus=int(case.max_gpus * factor))


@settings(max_examples=60, deadline=None)
@given(
    st.floats(3.7, 6.0), st.floats(0.0, 1.4), st.sampled_from((16, 64, 256, 8192)),
    st.sampled_from(("budget", "price", "deadline", "GPUs")),
    st.sampled_from(((2048, 24), (4096, 40), (6144, 48), (8192, 80))),
)  # fmt: skip
def test_a_looser_limit_never_raises_the_loss(
    log_usd: float, log_factor: float, cap: int, what: str, shape: tuple[int, int]
) -> None:
    """For any architecture, budget and cap: loosening one limit does not raise the best loss."""
    point = PROBLEM.space.point(hidden_size=float(shape[0]), layers=float(shape[1]))
    tight = replace(PROBLEM.cases[0], usd=10.0**log_usd, max_gpus=cap)
    before = EVALUATOR.outcome(point, tight)
    after = EVALUATOR.outcome(point, loosened(tight, what, float(np.exp(log_factor))))
    if before.feasible:
        assert after.feasible
        assert share_of(PROBLEM)(after, before) <= BOUND
