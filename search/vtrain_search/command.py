"""One search from request to printed answer; the only place where parts meet."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError, UserInputError
from vtrain_search.build import Request, build_problem
from vtrain_search.executors import LateExecutor
from vtrain_search.focus import focus_label, focused
from vtrain_search.run_record import open_folder
from vtrain_search.workers import make_executor, worker_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vtrain_search.alternatives import Comparison
    from vtrain_search.driver import Found
    from vtrain_search.executors import Executor
    from vtrain_search.laws.compare import Comparison as LawComparison
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.run_options import RunOptions
    from vtrain_search.search_state import Settings
    from vtrain_search.sensitivity import Change
    from vtrain_search.storage import RunFolder

EXIT_FOUND, EXIT_PARTIAL, EXIT_INTERRUPTED = 0, 4, 130


def run_search(request: Request, settings: Settings, options: RunOptions) -> int:
    """Search, print, and return the exit code.

    Raises:
        UserInputError: for a request that cannot be read.
        InfeasibleError: when no design satisfies it.
    """
    from vtrain_search.driver import search
    from vtrain_search.dry_run import dry_run
    from vtrain_search.interrupt import interruptible
    from vtrain_search.report.progress import ProgressLine
    from vtrain_search.samplers import quiet_optuna

    quiet_optuna()
    problem = build_problem(request)
    focus = focus_label(problem, options.focus)
    _check_extras(options)
    if options.dry_run:
        # What `auto` says of its own guess is less than what the dry run measures.
        workers = worker_count(problem, replace(options, quiet=True))
        for line in dry_run(problem, workers=workers):
            sys.stdout.write(line + "\n")
        return EXIT_FOUND
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        folder = open_folder(request, settings, options, problem)
        if folder is not None:
            stack.callback(folder.close)
        executor: Executor
        if options.resume is None:
            executor = make_executor(problem, options)
        else:
            # Nothing may be left to evaluate: starting Ray would cost more than the rest.
            executor = LateExecutor(lambda: make_executor(problem, options))
        with contextlib.closing(executor):
            progress = stack.enter_context(ProgressLine(len(problem.cases), quiet=options.quiet))
            found = search(
                problem, settings, executor, recorder=folder, timeout_s=options.timeout_s,
                on_progress=progress,
            )  # fmt: skip
            progress.stop()
        return _finish(request, problem, settings, options, found, folder, focus)


def _check_extras(options: RunOptions) -> None:
    """Refuse a report or an alternative that cannot be made, before a long search."""
    if options.report is not None:
        from vtrain_search.html_report import report_format

        report_format(options.report)
        folder = options.report.absolute().parent
        if not os.access(folder, os.W_OK) or not folder.is_dir() or options.report.is_dir():
            raise UserInputError(
                f"cannot write the report {options.report}: "
                + (
                    "it is a folder"
                    if options.report.is_dir()
                    else "no such folder, or not writable"
                ),
                hint="choose a file in a folder that exists",
            )
    for word in options.why_not:
        from vtrain_search.alternatives import parse_alternative

        parse_alternative(word)


def _finish(
    request: Request,
    problem: Problem,
    settings: Settings,
    options: RunOptions,
    found: Found,
    folder: RunFolder | None,
    focus: str | None,
) -> int:
    from vtrain_search.report import answer_case
    from vtrain_search.sensitivity import sensitivity

    answers = [
        answer_case(problem, case, s, seed=settings.seed)
        for case, s in zip(problem.cases, found.searches, strict=True)
    ]
    if folder is not None:
        folder.write_results(
            [case.label for case in problem.cases],
            [s.trials for s in found.searches],
            [a.row for a in answers if a is not None],
        )
    if not any(a is not None for a in answers):
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        if found.stopped:
            raise InfeasibleError(f"stopped ({found.stopped}) before any feasible design was found")
        raise _diagnosis(problem, found)
    shown = focused(answers, focus)
    # Who presses Ctrl-C wants what there is at once.
    whole = found.stopped != "interrupted"
    changes = sensitivity(problem, shown) if whole else []
    compared: dict[str, list[Comparison]] = {}
    if options.as_json:
        for label, comparison in _comparisons(problem, answers, options, clusters=whole):
            compared.setdefault(label, []).append(comparison)
        _print_json(problem, settings, options, found, answers, (shown, changes), compared)
    else:
        _print_tables(problem, answers, (shown, changes))
        for label, comparison in _comparisons(problem, answers, options, clusters=whole):
            if label not in compared:
                _print(["", f" why not, for {label}"])
            compared.setdefault(label, []).append(comparison)
            _print([f"   {line}" for line in comparison.lines])
        if options.compare_laws:
            for label, laws in _law_comparisons(problem, found):
                _print(["", f" laws, among the designs tried for {label}", laws.text()])
    if options.report is not None:
        from vtrain_search.html_report import write_report

        label = str(shown.row["budget"])
        write_report(
            options.report, answers, problem=problem, request=request, settings=settings,
            found=found, alternatives=compared.get(label, ()), focus=label,
            changes=changes or None,
        )  # fmt: skip
    missing = [c.label for c, a in zip(problem.cases, answers, strict=True) if a is None]
    if missing:
        sys.stderr.write(f"vtrain-search: no feasible design for {', '.join(missing)}\n")
    if found.stopped == "interrupted":
        sys.stderr.write("vtrain-search: interrupted; the table holds what was found so far\n")
        return EXIT_INTERRUPTED
    if found.stopped:
        sys.stderr.write(f"vtrain-search: stopped early ({found.stopped}); partial result\n")
        return EXIT_PARTIAL
    return EXIT_PARTIAL if missing else EXIT_FOUND


def _print_json(
    problem: Problem,
    settings: Settings,
    options: RunOptions,
    found: Found,
    answers: Sequence[Answer | None],
    what_if: tuple[Answer, list[Change]],
    compared: Mapping[str, Sequence[Comparison]],
) -> None:
    from vtrain import __version__
    from vtrain_search.frontier import exponents, pareto
    from vtrain_search.report import assumptions, document
    from vtrain_search.report.what_if import what_if_json

    rows = [a.row for a in answers if a is not None]
    run = {"version": __version__, "seed": settings.seed, "stopped": found.stopped or None}
    frontier = {
        "exponents": exponents(rows, problem.loss),
        "pareto": pareto([t.outcome.row for s in found.searches for t in s.trials
                          if t.outcome.feasible]),
    }  # fmt: skip
    whole = document(
        answers, assumptions=assumptions(problem), run=run, frontier=frontier,
        what_if=what_if_json(*what_if) if what_if[1] else {},
    )  # fmt: skip
    if compared:
        whole["why_not"] = {
            label: [comparison.as_json() for comparison in of_budget]
            for label, of_budget in compared.items()
        }
    if options.compare_laws:
        whole["law_comparison"] = {
            label: comparison.as_json() for label, comparison in _law_comparisons(problem, found)
        }
    sys.stdout.write(json.dumps(whole, indent=2) + "\n")


def _print_tables(
    problem: Problem, answers: Sequence[Answer | None], what_if: tuple[Answer, list[Change]]
) -> None:
    from vtrain_search.frontier import exponents
    from vtrain_search.report import assumptions, render

    growth = exponents([a.row for a in answers if a is not None], problem.loss)
    _print(render(answers, assumptions(problem), exponents=growth,
                  what_if=what_if if what_if[1] else None))  # fmt: skip


def _print(blocks: Sequence[Any]) -> None:
    from vtrain_search.report.table import console

    out = console()
    for block in blocks:
        out.print(block)


def _comparisons(
    problem: Problem, answers: Sequence[Answer | None], options: RunOptions, *, clusters: bool
) -> Iterator[tuple[str, Comparison]]:
    """Yield, budget by budget, why alternatives lost.

    First those the user names and the usual ones, then the clusters that were searched and not
    chosen, in one line each: from the answer, its ties and the coarse scan, without a search.
    """
    from vtrain_search.alternatives import (
        Alternative,
        compare,
        distinct_alternatives,
        usual_alternatives,
    )

    fixed = problem.space.fixed is not None
    for answer in answers:
        if answer is None:
            continue
        label = str(answer.row["budget"])
        usual = usual_alternatives(answer.case, answer.row, fixed=fixed)
        named = distinct_alternatives([*options.why_not, *(usual if options.explain else ())])
        asked = {wanted.cluster.name for wanted in named if wanted.cluster is not None}
        for wanted in named:
            yield label, compare(problem, answer, wanted)
        for offer in answer.case.offers if clusters else ():
            if offer.name != answer.row["cluster"] and offer.cluster.name not in asked:
                other = Alternative(text=offer.name, cluster=offer.cluster)
                found = compare(problem, answer, other, sweeps=0)
                yield label, replace(found, lines=found.lines[:1])


def _law_comparisons(problem: Problem, found: Found) -> Iterator[tuple[str, LawComparison]]:
    """Yield each budget with what every law would pick among the designs tried for it."""
    from vtrain_search.laws import compare_laws
    from vtrain_search.objective import designs_of_rows

    for case, state in zip(problem.cases, found.searches, strict=True):
        rows = [t.outcome.row for t in state.trials if t.outcome.feasible]
        if rows:
            yield (
                case.label,
                compare_laws(designs_of_rows(rows), unique_tokens=problem.loss.unique_tokens),
            )


def _diagnosis(problem: Problem, found: Found) -> InfeasibleError:
    from vtrain_search.diagnosis import diagnose

    return diagnose(problem, found)
