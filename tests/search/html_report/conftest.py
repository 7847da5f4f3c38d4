"""One small search whose report every test looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from vtrain_search.build import Request, build_problem
from vtrain_search.case_search import Settings
from vtrain_search.driver import Found, search
from vtrain_search.executors import InlineExecutor
from vtrain_search.html_report import write_report
from vtrain_search.problem import Problem
from vtrain_search.report import Answer, answer_case

FEW = ("recompute=none", "micro_batch_size=2", "virtual_stages=1", "tp=1,2,4")


@dataclass(frozen=True)
class Run:
    """A finished search and what is needed to report it."""

    request: Request
    settings: Settings
    problem: Problem
    found: Found
    answers: list[Answer | None]

    def write(self, path: Path, **options: Any) -> str:
        write_report(
            path, self.answers, problem=self.problem, request=self.request,
            settings=self.settings, found=self.found, **options,
        )  # fmt: skip
        return path.read_text(encoding="utf-8")


def run(trials: int = 24, **request: Any) -> Run:
    words = Request(**{"fixed": FEW, **request})
    settings = Settings(max_trials=trials)
    problem = build_problem(words)
    found = search(problem, settings, InlineExecutor(problem))
    answers = [
        answer_case(problem, case, s, seed=0)
        for case, s in zip(problem.cases, found.searches, strict=True)
    ]
    return Run(words, settings, problem, found, answers)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """Search with most of the plan pinned, from the words of a request."""
    return run


@pytest.fixture(scope="session")
def one_budget() -> Run:
    """$30k on H100."""
    return run(budgets=("3e4usd",))


@pytest.fixture(scope="session")
def three_budgets() -> Run:
    """A small scaling table, the last budget with a pipeline."""
    return run(budgets=("1e4usd", "1e5usd", "1e6usd"))


@pytest.fixture(scope="session")
def page(three_budgets: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The HTML report of the scaling table, with two alternatives."""
    pytest.importorskip("plotly")
    path = tmp_path_factory.mktemp("report") / "report.html"
    return three_budgets.write(path, alternatives=["tp=2", "20B"], date="2026-12-01")
