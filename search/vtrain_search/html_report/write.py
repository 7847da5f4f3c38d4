"""A report as one HTML file or one Markdown file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.files import write_text
from vtrain_search.html_report.build import build_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from vtrain_search.alternatives import Comparison
    from vtrain_search.build import Request
    from vtrain_search.case_search import Settings
    from vtrain_search.driver import Found
    from vtrain_search.html_report.content import Report
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.sensitivity import Change

FORMATS = {".html": "HTML", ".htm": "HTML", ".md": "Markdown"}


def write_report(
    path: str | Path,
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
) -> None:
    """Write the report of a search, whole or not at all; the same run gives the same bytes.

    Args:
        path: a .html file (self-contained: plotly's JavaScript is in it) or a .md file.
        answers: one a budget; None where nothing was feasible.
        problem: what was asked.
        request: the same in words; becomes the command that reproduces it.
        settings: sampler, seed, number of trials; likewise.
        found: the search itself; adds loss against size.
        alternatives: named alternatives, or comparisons already made, to explain.
        focus: label of the budget whose design is shown in detail; the last one when None.
        changes: the sensitivity of that design, where it is worked out already.
        date: shown as given; nothing else tells when a report was made.

    Raises:
        UserInputError: another file type, a folder that cannot be written, no plotly for HTML.
        InfeasibleError: when no budget has an answer.
    """
    kind = report_format(path)
    report = build_report(
        answers, problem=problem, request=request, settings=settings, found=found,
        alternatives=alternatives, focus=focus, changes=changes, date=date,
    )  # fmt: skip
    write_text(path, html(report) if kind == "HTML" else markdown(report))


def report_format(path: str | Path) -> str:
    """Return HTML or Markdown by the file's name; call it before a long search.

    Raises:
        UserInputError: another file type, or HTML without plotly.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UserInputError(
            f"a report must end in .html or .md, got {str(path)!r}",
            hint=f"nearest valid: {Path(path).stem or 'report'}.html",
        )
    if FORMATS[suffix] == "HTML":
        from vtrain_search.html_report.plots import plotly_js

        plotly_js()
    return FORMATS[suffix]


def html(report: Report) -> str:
    """Return a report as one self-contained page.

    Raises:
        UserInputError: when plotly is not installed.
    """
    from vtrain_search.html_report.plots import figure_json, plotly_js

    charts = {
        f"{section.key}-{i}": figure_json(chart)
        for section in report.sections
        for i, chart in enumerate(section.charts)
    }
    return _environment().get_template("report.html.jinja").render(
        report=report, charts=charts, plotly_js=plotly_js(), style=_text("style.css"),
        script=_text("report.js"),
    )  # fmt: skip


def markdown(report: Report) -> str:
    """Return a report as Markdown for a pull request; charts are left to their tables."""
    return _environment().get_template("report.md.jinja").render(report=report)


def _text(name: str) -> str:
    return (files("vtrain_search.html_report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=lambda name: name is not None and ".html" in name,
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["cell"] = _cell
    return environment


def _cell(text: Any) -> str:
    """Return text that cannot break a Markdown table or become markup."""
    plain = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return plain.replace("<", "&lt;").replace("`", "'")
