"""From answers to a report: which sections there are and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.units import format_count
from vtrain_search.alternatives import Comparison, compare
from vtrain_search.html_report.answer_tables import TIES_SHOWN, choices_table, how_table, what_table
from vtrain_search.html_report.binding import binding_lines
from vtrain_search.html_report.content import Chart, Report, Section, Table
from vtrain_search.html_report.frontier import frontier_section, size_section
from vtrain_search.html_report.headline import figures, recommendation
from vtrain_search.html_report.provenance import assumption_section, command_line
from vtrain_search.html_report.step_section import step_sections
from vtrain_search.report.what_if import explanation, gap_unit, memory_notes, what_if_cells
from vtrain_search.sensitivity import Change, sensitivity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.build import Request
    from vtrain_search.case_search import Settings
    from vtrain_search.driver import Found
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer


def build_report(
    answers: Sequence[Answer | None],
    *,
    problem: Problem,
    request: Request,
    settings: Settings,
    found: Found | None = None,
    alternatives: Sequence[str | Comparison] = (),
    focus: str | None = None,
    changes: Sequence[Change] | None = None,
    date: str = "",
) -> Report:
    """Return everything a report says; arguments as `write_report`.

    Raises:
        InfeasibleError: when no budget has an answer.
        UserInputError: for a focus that is no budget of the search, or an unreadable alternative.
    """
    from vtrain import __version__
    from vtrain_search.report import assumptions

    positions = [i for i, answer in enumerate(answers) if answer is not None]
    there = [answer for answer in answers if answer is not None]
    if not there:
        raise InfeasibleError("no budget has a feasible design, so there is nothing to report")
    at = _focus(there, focus)
    answer = there[at]
    asked = sensitivity(problem, answer) if changes is None else list(changes)
    compared = [
        a if isinstance(a, Comparison) else compare(problem, answer, a) for a in alternatives
    ]
    tried = _tried(found, positions[at])
    optional = [frontier_section(problem, there), size_section(answer, tried)]
    sections = [
        _answer_section(there, at),
        *(section for section in optional if section is not None),
        _choices_section(answer),
        Section(key="binds", title="What binds", bullets=True,
                lines=tuple(binding_lines(problem, answer, asked))),
        _sensitivity_section(answer, asked),
        *([_compared_section(compared)] if compared else []),
        *step_sections(problem, answer.case, answer.row),
        assumption_section(problem, assumptions(problem)),
    ]  # fmt: skip
    return Report(
        title=f"Pre-training plan for {answer.row['budget']} on {answer.row['cluster']}",
        recommendation=recommendation(answer.row),
        figures=figures(problem, answer.row),
        notes=tuple(answer.row["warnings"]),
        sections=tuple(sections),
        command=command_line(
            request,
            settings,
            why_not=[c.text for c in compared],
            focus=str(answer.row["budget"]) if at < len(there) - 1 else "",
        ),
        version=__version__,
        date=date,
    )


def _focus(answers: Sequence[Answer], focus: str | None) -> int:
    labels = [str(a.row["budget"]) for a in answers]
    if focus is None:
        return len(labels) - 1
    if focus not in labels:
        raise UserInputError(
            f"focus {focus!r} is no budget of this search", hint=f"one of {', '.join(labels)}"
        )
    return labels.index(focus)


def _tried(found: Found | None, position: int) -> list[Mapping[str, Any]]:
    if found is None:
        return []
    trials = found.searches[position].trials
    return [t.outcome.row for t in {t.point: t for t in trials}.values() if t.outcome.feasible]


def _answer_section(answers: Sequence[Answer], at: int) -> Section:
    lines: tuple[str, ...] = ()
    if len(answers) > 1:
        lines = (f"The design shown in detail below is that of {answers[at].row['budget']}.",)
    return Section(
        key="answer", title="The answer", lines=lines,
        tables=(what_table(answers, at), how_table(answers, at)),
    )  # fmt: skip


def _choices_section(answer: Answer) -> Section:
    ties = len(answer.ties)
    listed = f" The first {TIES_SHOWN} of {ties} are listed." if ties > TIES_SHOWN else ""
    lines = [
        f"{ties} other architecture{'s' if ties != 1 else ''} lie{'s' if ties == 1 else ''} within "
        "1 % of the budget of the answer: no simulator can tell them apart, so take the one that "
        f"suits you.{listed} Smaller models cost loss now and save money at every token served."
    ]
    undecided = answer.row["undecided_parameters"]
    if undecided is not None and undecided[0] < undecided[1]:
        low, high = (format_count(size) for size in undecided)
        lines.append(
            f"The loss law itself cannot tell the sizes from {low} to {high} apart: its 90 % "
            "interval of their difference to the answer contains zero."
        )
    if not answer.smaller:
        lines.append("No model of half or a quarter of the size was found feasible.")
    return Section(
        key="choices", title="Ties and smaller models", lines=tuple(lines),
        tables=(choices_table(answer),),
    )  # fmt: skip


def _sensitivity_section(answer: Answer, changes: Sequence[Change]) -> Section:
    heads, rows = what_if_cells(answer, changes)
    aimed = answer.case.target_loss is not None
    unit = gap_unit(answer)
    # Bars are about one law; another law's gap has another meaning and stays in the table.
    drawn = [c for c in changes if c.row is not None and not c.other_law]
    return Section(
        key="sensitivity",
        title="What if",
        lines=(explanation(answer), *(f"{_sentence(note)}." for note in memory_notes(changes))),
        charts=(
            Chart(
                kind="tornado",
                caption=f"Change of the {answer.case.objective} in {unit}; less is better.",
                data={
                    "names": [c.name for c in drawn],
                    "gaps": [100.0 * c.gap if aimed else c.gap for c in drawn],
                    "unit": unit,
                },
            ),
        ),
        tables=(Table(heads=heads, rows=tuple(rows), left=("change",)),),
    )  # fmt: skip


def _compared_section(compared: Sequence[Comparison]) -> Section:
    return Section(
        key="alternatives",
        title="Why not something else",
        lines=tuple(". ".join(_sentence(line) for line in c.lines) + "." for c in compared),
        bullets=True,
    )


def _sentence(line: str) -> str:
    # Names such as tp=8 stay as they are; sentences begin with a capital.
    first = line.split(" ", 1)[0]
    return line if "=" in first or not line[:1].islower() else line[0].upper() + line[1:]
