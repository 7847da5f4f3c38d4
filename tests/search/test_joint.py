"""The joint space: every sample is a valid plan, and the search over it works."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vtrain_search.build import Request, build_problem
from vtrain_search.driver import search
from vtrain_search.evaluator import Evaluator, Task
from vtrain_search.executors import InlineExecutor
from vtrain_search.joint import FRACTIONS, decode, plan_of
from vtrain_search.journal import Journal, Place
from vtrain_search.problem import Problem
from vtrain_search.search_state import Settings

from vtrain.validity import Context, check_plan

PROBLEM = build_problem(Request(budgets=("1e5usd",)))
FRACTION = st.floats(0.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(4, 24), st.integers(4, 100),
    st.lists(FRACTION, min_size=len(FRACTIONS), max_size=len(FRACTIONS)), st.floats(0.5, 1.0),
)  # fmt: skip
def test_every_sample_is_a_valid_plan(
    width: int, layers: int, fractions: list[float], share: float
) -> None:
    """Whatever the fractions, the plan passes its framework's own checks."""
    point = PROBLEM.space.point(hidden_size=512.0 * width, layers=float(layers))
    params = {**dict(zip(FRACTIONS, fractions, strict=True)), "token_share": share}
    design = decode(PROBLEM, PROBLEM.cases[0], point, params)
    assert design is not None
    plan = plan_of(PROBLEM, design)
    assert plan.gpus == design.gpus
    cluster = PROBLEM.cases[0].offers[0].cluster
    context = Context(
        architecture=PROBLEM.space.architecture(point), cluster=cluster, stack=PROBLEM.stack,
        seq_length=PROBLEM.seq_length,
    )  # fmt: skip
    check_plan(context, plan)


def test_a_joint_design_is_worth_what_its_plan_is() -> None:
    """One joint design evaluates to at most what the enumerated best of its architecture does."""
    case = PROBLEM.cases[0]
    point = PROBLEM.space.point(hidden_size=6144.0, layers=48.0)
    params = {**dict.fromkeys(FRACTIONS, 0.4), "recompute": 0.9, "token_share": 1.0}
    design = decode(PROBLEM, case, point, params)
    assert design is not None
    evaluator = Evaluator(PROBLEM)
    (joint,) = evaluator.evaluate(Task(design, (0,)))
    (best,) = evaluator.evaluate(Task(point, (0,)))
    assert joint.feasible
    assert joint.row["tp"] == design.tp
    assert joint.value >= best.value
    (half,) = evaluator.evaluate(Task(design._replace(token_share=0.5), (0,)))
    assert half.row["tokens"] == pytest.approx(0.5 * joint.row["tokens"], rel=0.01)


def test_the_joint_search_runs_and_repeats(quick_problem: Callable[..., Problem]) -> None:
    """Same seed, same trials; the best one is feasible and in the journal's reach."""
    problem = quick_problem("1e4usd")
    runs = [
        search(problem, Settings(space="joint", max_trials=40), InlineExecutor(problem))
        for _ in range(2)
    ]
    first, second = (f.searches[0] for f in runs)
    assert [t.point for t in first.trials] == [t.point for t in second.trials]
    assert first.best is not None
    assert np.isfinite(first.best.outcome.value)


def test_joint_trials_survive_the_journal(
    tmp_path: object, quick_problem: Callable[..., Problem]
) -> None:
    """A stored joint trial reads back as the same design and outcome."""
    from pathlib import Path

    problem = quick_problem("1e4usd")
    found = search(problem, Settings(space="joint", max_trials=8), InlineExecutor(problem))
    trials = found.searches[0].trials
    path = Path(str(tmp_path)) / "trials.journal"
    Journal(path, ["a"]).add(0, trials)
    again = Journal(path, ["a"])
    for trial in trials:
        assert again.get(Place(0, trial.batch, trial.position)) == (trial.point, trial.outcome)
