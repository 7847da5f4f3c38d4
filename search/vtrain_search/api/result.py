"""What a search found, as an object with frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pathlib import Path

    from pandas import DataFrame

    from vtrain.design import Design
    from vtrain_search.alternatives import Comparison
    from vtrain_search.build import Request
    from vtrain_search.driver import Found
    from vtrain_search.laws import Comparison as LawComparison
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.search_state import Settings

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

    def what_if(self, budget: str | None = None) -> DataFrame:
        """Return the best design under changed prices, speeds, limits and laws, one row each.

        Args:
            budget: label of the budget; the last one when None.
        """
        import pandas as pd

        from vtrain_search.report.what_if import what_if_json
        from vtrain_search.sensitivity import sensitivity

        answer = self.answer(budget)
        return pd.DataFrame(what_if_json(answer, sensitivity(self.problem, answer))["changes"])

    def compare_laws(self, budget: str | None = None) -> LawComparison:
        """Return what every loss law would pick among the designs tried, as `--compare-laws`.

        `.picks` has a record a law, `.rules` one a rule, `.table` the regret, `.text()` says it.

        Args:
            budget: label of the budget; the last one when None.
        """
        from vtrain_search.laws import compare_laws
        from vtrain_search.objective import designs_of_rows

        case = self.answer(budget).case
        trials = next(
            s.trials for c, s in zip(self.problem.cases, self.found.searches, strict=True)
            if c is case
        )  # fmt: skip
        rows = [t.outcome.row for t in trials if t.outcome.feasible]
        return compare_laws(designs_of_rows(rows), unique_tokens=self.problem.loss.unique_tokens)

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
