"""The search from Python: one call, results as frames.

    from vtrain_search.api import search

    result = search("1e6usd")
    result.table            # the scaling table, one row a budget
    result.best["loss"]     # the recommended design, as a row of `vtrain-search --json`
    result.report("plan.html")

What the simulator can do alone is in `vtrain.api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError, UserInputError

if TYPE_CHECKING:
    from pathlib import Path

    from pandas import DataFrame

    from vtrain.design import Design
    from vtrain_search.alternatives import Comparison
    from vtrain_search.build import Request
    from vtrain_search.driver import Found
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.search_state import Settings

__all__ = ["SearchResult", "laws", "search"]

Words = str | float | Sequence[str]
_SHOWN = (
    "budget", "parameters", "tokens", "loss", "loss_low", "loss_high", "cluster", "gpus", "tp",
    "pp", "dp", "micro_batch_size", "global_batch_size", "mfu", "days", "cost_usd",
)  # fmt: skip
_LISTS = ("ties", "smaller", "warnings", "extrapolation")


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        problem: the question, as every part of the search sees it.
        request: the same in words.
        settings: sampler, seed, number of trials.
        found: the search itself.
        answers: one a budget that has a feasible design, in the order asked.
    """

    problem: Problem
    request: Request
    settings: Settings
    found: Found
    answers: tuple[Answer, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `vtrain-search --json`, one a budget."""
        return [dict(answer.row) for answer in self.answers]

    @property
    def best(self) -> dict[str, Any]:
        """The row of the last budget: the only one, or the largest of a range."""
        return self.rows[-1]

    @property
    def stopped(self) -> str:
        """Why the search ended early: "timeout", "interrupted", or "" when it did not."""
        return self.found.stopped

    @property
    def table(self) -> DataFrame:
        """The scaling table, one row a budget; nested fields (ties, warnings) are left out."""
        import pandas as pd

        return pd.DataFrame([{k: v for k, v in r.items() if k not in _LISTS} for r in self.rows])

    @property
    def alternatives(self) -> DataFrame:
        """Ties and smaller models of every budget, each with its price."""
        import pandas as pd

        rows = [
            {"budget": answer.row["budget"], "choice": choice, **row}
            for answer in self.answers
            for choice, row in [
                *(("tie", tie) for tie in answer.ties),
                *((f"{small['size']} size", small) for small in answer.smaller),
            ]
        ]
        return pd.DataFrame(rows)

    @property
    def trials(self) -> DataFrame:
        """Every trial of every budget: its architecture, and its design where one is feasible."""
        import pandas as pd

        rows = [
            {"budget": case.label, "batch": t.batch, "position": t.position, "phase": t.phase,
             **t.point._asdict(), "feasible": t.outcome.feasible, "reason": t.outcome.reason,
             **t.outcome.row}
            for case, search in zip(self.problem.cases, self.found.searches, strict=True)
            for t in search.trials
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def answer(self, budget: str | None = None) -> Answer:
        """Return one answer by the label of its budget; the last one when None.

        Raises:
            UserInputError: no such budget.
        """
        for answer in self.answers:
            if answer.row["budget"] == budget:
                return answer
        if budget is None:
            return self.answers[-1]
        labels = ", ".join(str(a.row["budget"]) for a in self.answers)
        raise UserInputError(f"no budget {budget!r} in this result", hint=f"one of {labels}")

    def design(self, budget: str | None = None) -> Design:
        """Return the recommended design, for `vtrain.api.simulate_design` and `export`."""
        from vtrain.design import Design

        return Design.from_row(self.answer(budget).row)

    def why_not(self, *names: str, budget: str | None = None) -> list[Comparison]:
        """Return how much worse named alternatives are, and why, in `.lines`.

        Args:
            names: `tp=4`, `70B`, `256 GPUs`, `A100`, `llama3-70b`, ...; the usual ones if none.
            budget: label of the budget; the last one when None.
        """
        from vtrain_search.alternatives import compare, usual_alternatives

        answer = self.answer(budget)
        fixed = self.problem.space.fixed is not None
        wanted = names or usual_alternatives(answer.case, answer.row, fixed=fixed)
        return [compare(self.problem, answer, name) for name in wanted]

    def report(
        self,
        path: str | Path,
        *,
        alternatives: Sequence[str] = (),
        budget: str | None = None,
        date: str = "",
    ) -> None:
        """Write the report as .html or .md; see `vtrain_search.html_report.write_report`."""
        from vtrain_search.html_report import write_report

        by_case = {id(a.case): a for a in self.answers}
        write_report(
            path, [by_case.get(id(case)) for case in self.problem.cases], problem=self.problem,
            request=self.request, settings=self.settings, found=self.found,
            alternatives=alternatives, focus=budget, date=date,
        )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `vtrain-search --json`."""
        from vtrain import __version__
        from vtrain_search.frontier import exponents, pareto
        from vtrain_search.report import assumptions, document

        trials = [t for s in self.found.searches for t in s.trials if t.outcome.feasible]
        run = {"version": __version__, "seed": self.settings.seed, "stopped": self.stopped or None}
        return document(
            self.answers, assumptions=assumptions(self.problem), run=run,
            frontier={
                "exponents": exponents(self.rows, self.problem.loss),
                "pareto": pareto([t.outcome.row for t in trials]),
            },
        )  # fmt: skip

    def _repr_html_(self) -> str:
        from vtrain_search.html_report.headline import recommendation

        head = f"<p><b>{escape(recommendation(self.answers[-1].row))}</b></p>"
        return head + str(self.table[list(_SHOWN)].to_html(index=False))


def search(
    budget: str | Sequence[str] = (),
    *,
    cluster: str | Sequence[str] = (),
    price: Words = (),
    deadline: str = "",
    max_gpus: int | None = None,
    target_loss: float | Sequence[float] = (),
    objective: str = "",
    model: str = "",
    fix: Mapping[str, Any] | None = None,
    limit: Mapping[str, tuple[float, float]] | None = None,
    seq_length: int | None = None,
    vocab_size: int | None = None,
    unique_tokens: float | str = "",
    stack: str = "",
    site: str | Path = "",
    law: str | Path = "",
    sampler: str = "tpe",
    space: str = "bilevel",
    seed: int = 0,
    trials: int | None = None,
    timeout: str = "",
    workers: int | str = 1,
    quiet: bool = True,
) -> SearchResult:
    """Find the lowest-loss design a budget can train, as `vtrain-search` does.

    The same words mean the same as on the command line, and the same seed finds the same.

    Args:
        budget: `1e6usd`, `2M gpu-hours`, `512xH100x30d`, a range `1e4usd..1e7usd:13`; or several.
        cluster: names or files; several are compared.
        price: dollars a GPU-hour, one a cluster.
        deadline: wall time at most, such as `30d`.
        max_gpus: GPUs at most.
        target_loss: reach this loss instead, for least cost or time.
        objective: "cost" or "time", with a target loss.
        model: a fixed model by name or file: only how to train it is searched.
        fix: pinned dimensions, such as `{"tp": 8, "micro_batch_size": (1, 2)}`.
        limit: ranges, such as `{"hidden_size": (4096, 8192)}`.
        seq_length: tokens of a sequence.
        vocab_size: vocabulary before padding.
        unique_tokens: distinct training tokens there are.
        stack: training software.
        site: file of site factors.
        law: loss law, by name or file.
        sampler: tpe, cmaes, nsga2, random.
        space: bilevel or joint.
        seed: seed of the search.
        trials: trials of one budget at most.
        timeout: stop after so long with what there is, such as `10min`.
        workers: processes; 1 searches in this one, "auto" and more use Ray.
        quiet: no progress on stderr.

    Raises:
        UserInputError: for words that cannot be read.
        InfeasibleError: when no budget has a feasible design; names the nearest way out.
    """
    from vtrain.units import parse_duration_s
    from vtrain_search.build import build_problem
    from vtrain_search.driver import search as run
    from vtrain_search.report import answer_case
    from vtrain_search.report.progress import ProgressLine
    from vtrain_search.run_options import RunOptions
    from vtrain_search.samplers import quiet_optuna
    from vtrain_search.search_state import Settings
    from vtrain_search.workers import make_executor

    losses = (target_loss,) if isinstance(target_loss, int | float) else tuple(target_loss)
    request = _request(
        budgets=_words(budget), clusters=_words(cluster), prices=_words(price), deadline=deadline,
        max_gpus=max_gpus, target_losses=losses, objective=objective, arch=model,
        fixed=_pins(fix), ranged=_ranges(limit), seq_length=seq_length, vocab_size=vocab_size,
        unique_tokens=str(unique_tokens), stack=stack, site=str(site), law=str(law),
    )  # fmt: skip
    quiet_optuna()
    problem = build_problem(request)
    settings = Settings(sampler=sampler, seed=seed, space=space, max_trials=trials)
    options = RunOptions(workers=str(workers), quiet=quiet)
    timeout_s = parse_duration_s(timeout) if timeout else None
    executor = make_executor(problem, options)
    try:
        with ProgressLine(len(problem.cases), quiet=quiet) as progress:
            found = run(problem, settings, executor, timeout_s=timeout_s, on_progress=progress)
    finally:
        executor.close()
    answers = [
        answer_case(problem, case, own, seed=seed)
        for case, own in zip(problem.cases, found.searches, strict=True)
    ]
    there = tuple(answer for answer in answers if answer is not None)
    if not there:
        raise _nothing(problem, found)
    return SearchResult(
        problem=problem, request=request, settings=settings, found=found, answers=there
    )


def laws() -> DataFrame:
    """Return the shipped loss laws with formula, convention, data and source, one row each."""
    import pandas as pd

    from vtrain_search.laws import law_names, load_law
    from vtrain_search.laws.cli import law_record

    return pd.DataFrame([law_record(load_law(name)) for name in law_names()]).set_index("name")


def _request(**words: Any) -> Request:
    """Return a request of what was stated; the rest keeps its default."""
    from vtrain_search.build import Request

    return Request(**{k: v for k, v in words.items() if v not in (None, "")})


def _words(value: Words) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, str | int | float) else tuple(map(str, value))


def _pins(fix: Mapping[str, Any] | None) -> tuple[str, ...]:
    found = []
    for key, value in (fix or {}).items():
        several = value if isinstance(value, list | tuple) else (value,)
        found.append(f"{key}={','.join(map(str, several))}")
    return tuple(found)


def _ranges(limit: Mapping[str, tuple[float, float]] | None) -> tuple[str, ...]:
    return tuple(f"{key}={low}..{high}" for key, (low, high) in (limit or {}).items())


def _nothing(problem: Problem, found: Found) -> InfeasibleError:
    from vtrain_search.diagnosis import diagnose

    if found.stopped:
        return InfeasibleError(f"stopped ({found.stopped}) before any feasible design was found")
    return diagnose(problem, found)
