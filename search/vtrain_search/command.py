"""One search from request to printed answer; the only place where parts meet."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError
from vtrain_search.build import Request, build_problem
from vtrain_search.run_record import open_folder
from vtrain_search.workers import make_executor, worker_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vtrain_search.driver import Found
    from vtrain_search.laws.compare import Comparison
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.run_options import RunOptions
    from vtrain_search.search_state import Settings
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
    _check_extras(options)
    if options.dry_run:
        for line in dry_run(problem, workers=worker_count(problem, options)):
            sys.stdout.write(line + "\n")
        return EXIT_FOUND
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        folder = open_folder(request, settings, options, problem)
        if folder is not None:
            stack.callback(folder.close)
        executor = make_executor(problem, options)
        with contextlib.closing(executor), interruptible():
            # Twice: starting Ray installs a SIGTERM handler of its own.
            progress = stack.enter_context(ProgressLine(len(problem.cases), quiet=options.quiet))
            found = search(
                problem, settings, executor, recorder=folder, timeout_s=options.timeout_s,
                on_progress=progress,
            )  # fmt: skip
            progress.stop()
        return _finish(request, problem, settings, options, found, folder)


def _check_extras(options: RunOptions) -> None:
    """Refuse a report or an alternative that cannot be made, before a long search."""
    if options.report is not None:
        from vtrain_search.html_report import report_format

        report_format(options.report)
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
) -> int:
    from vtrain_search.frontier import exponents, pareto
    from vtrain_search.report import answer_case, assumptions, document, render

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
    assumed = assumptions(problem)
    rows = [a.row for a in answers if a is not None]
    if options.as_json:
        from vtrain import __version__

        run = {"version": __version__, "seed": settings.seed, "stopped": found.stopped or None}
        frontier = {
            "exponents": exponents(rows, problem.loss),
            "pareto": pareto([t.outcome.row for s in found.searches for t in s.trials
                              if t.outcome.feasible]),
        }  # fmt: skip
        whole = document(answers, assumptions=assumed, run=run, frontier=frontier)
        if options.compare_laws:
            whole["law_comparison"] = {
                label: comparison.as_json()
                for label, comparison in _law_comparisons(problem, found)
            }
        sys.stdout.write(json.dumps(whole, indent=2) + "\n")
    else:
        _print(render(answers, assumed, exponents=exponents(rows, problem.loss)))
        if options.explain or options.why_not:
            _explain(problem, answers, options)
        if options.compare_laws:
            for label, comparison in _law_comparisons(problem, found):
                _print(["", f" laws, among the designs tried for {label}", comparison.text()])
    if options.report is not None:
        from vtrain_search.html_report import write_report

        write_report(
            options.report, answers, problem=problem, request=request, settings=settings,
            found=found, alternatives=options.why_not,
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


def _print(blocks: Sequence[Any]) -> None:
    from vtrain_search.report.table import console

    out = console()
    for block in blocks:
        out.print(block)


def _explain(problem: Problem, answers: Sequence[Answer | None], options: RunOptions) -> None:
    """Print why each alternative lost, budget by budget."""
    from vtrain_search.alternatives import compare, usual_alternatives

    fixed = problem.space.fixed is not None
    for answer in answers:
        if answer is None:
            continue
        usual = usual_alternatives(answer.case, answer.row, fixed=fixed) if options.explain else []
        _print(["", f" why not, for {answer.row['budget']}"])
        for word in [*usual, *options.why_not]:
            _print([f"   {line}" for line in compare(problem, answer, word).lines])


def _law_comparisons(problem: Problem, found: Found) -> Iterator[tuple[str, Comparison]]:
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
