"""One search from request to printed answer; the only place where parts meet."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError, UserInputError
from vtrain_search.build import Request, build_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain_search.case_search import Settings
    from vtrain_search.driver import Found
    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer
    from vtrain_search.storage import RunFolder

_log = logging.getLogger(__name__)

EXIT_FOUND, EXIT_PARTIAL, EXIT_INTERRUPTED = 0, 4, 130
SECONDS_PER_CASE = 10.0
"""Measured work of one budget on one core: about 120 architectures of 60-100 ms."""
RAY_START_S = 10.0
"""What Ray costs: 5 s to start and stop, and imports in every worker (groundwork, Ray 2.60)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How to run and what to print; none of it changes an answer except trials and timeout.

    Attributes:
        workers: "auto" or a number.
        ray_address: Ray cluster to join.
        timeout_s: stop after so many seconds with what there is.
        save_dir: run folder to make.
        resume: run folder to go on with.
        force: replace an earlier run.
        as_json: print JSON instead of the table.
        quiet: no progress.
        report: file to write a report to.
        explain: say why the usual alternatives lost.
        why_not: alternatives to explain.
        dry_run: say what would be searched, and stop.
    """

    workers: str = "auto"
    ray_address: str | None = None
    timeout_s: float | None = None
    save_dir: Path | None = None
    resume: Path | None = None
    force: bool = False
    as_json: bool = False
    quiet: bool = False
    report: Path | None = None
    explain: bool = False
    why_not: tuple[str, ...] = ()
    dry_run: bool = False


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
        folder = _open_folder(request, settings, options, problem)
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


def make_executor(
    problem: Problem, options: RunOptions, *, work_s: float | None = None
) -> Executor:
    """Return the executor that the options ask for; says what `auto` chose.

    Args:
        problem: constants of the search.
        options: workers and address.
        work_s: seconds of work on one core; None takes SECONDS_PER_CASE a case.

    Raises:
        UserInputError: for a number of workers that makes no sense.
    """
    from vtrain_search.executors import InlineExecutor

    if options.ray_address is not None:
        from vtrain_search.ray_executor import RayExecutor

        limit = None if options.workers == "auto" else worker_count(problem, options)
        return RayExecutor(problem, workers=limit, address=options.ray_address)
    workers = worker_count(problem, options, work_s=work_s)
    if workers == 1:
        return InlineExecutor(problem)
    from vtrain_search.ray_executor import RayExecutor

    return RayExecutor(problem, workers=workers)


def worker_count(problem: Problem, options: RunOptions, *, work_s: float | None = None) -> int:
    """Return the number of workers on this machine; says what `auto` chose.

    Args:
        problem: constants of the search.
        options: what the user asked for.
        work_s: seconds of work on one core; None takes SECONDS_PER_CASE a case.

    Raises:
        UserInputError: for a number of workers that makes no sense.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = (len(affinity(0)) if affinity else os.cpu_count()) or 1
    if options.workers != "auto":
        if not options.workers.isdigit() or int(options.workers) < 1:
            raise UserInputError(
                f"--workers {options.workers} must be auto or a whole number of at least 1",
                hint=f"nearest valid: {cores}",
            )
        return int(options.workers)
    seconds = work_s or SECONDS_PER_CASE * len(problem.cases)
    workers = cores if cores > 1 and seconds > RAY_START_S else 1
    if not options.quiet:
        what = f"{workers} Ray workers" if workers > 1 else "one worker in this process"
        _log.info("about %.0f s of work on one core: %s", seconds, what)
    return workers


def fingerprint(problem: Problem) -> dict[str, str]:
    """Return a short hash of each part that decides an answer."""
    law = problem.loss.law
    parts = {
        "budgets": [(c.label, c.usd, c.gpu_hours, c.flop, c.deadline_s, c.max_gpus, c.tokens)
                    for c in problem.cases],
        "offers": [(o.name, o.price_usd_per_gpu_hour, o.cluster) for c in problem.cases
                   for o in c.offers],
        "stack": problem.stack,
        "site": problem.site,
        "space": (problem.space, problem.pins, problem.seq_length),
        "law": (law.name, dict(law.coefficients()), sorted(problem.loss.active_terms),
                problem.loss.unique_tokens),
    }  # fmt: skip
    return {k: hashlib.sha256(repr(v).encode()).hexdigest()[:16] for k, v in parts.items()}


def _open_folder(
    request: Request, settings: Settings, options: RunOptions, problem: Problem
) -> RunFolder | None:
    """Make or reopen the run folder; a resumed run must ask the same question."""
    from vtrain import __version__
    from vtrain_search.storage import RunFolder

    path = options.resume or options.save_dir
    if path is None:
        return None
    hashes = fingerprint(problem)
    if options.resume is not None:
        folder = RunFolder.resume(path)
        stored = folder.read_run()
        _check_same(path, stored, hashes, settings, __version__)
    else:
        folder = RunFolder.create(path, force=options.force)
        folder.write_run(
            {
                "schema_version": 1,
                "version": __version__,
                "argv": sys.argv[1:],
                "seed": settings.seed,
                "settings": asdict(settings),
                "request": asdict(request),
                "hashes": hashes,
            }
        )
    kept = folder.open_journal([case.label for case in problem.cases])
    if folder.dropped_bytes:
        _log.warning(
            "%s was cut in mid-line: dropped its last %d bytes, kept %d whole trials",
            path, folder.dropped_bytes, kept,
        )  # fmt: skip
    if options.resume is not None and not options.quiet:
        sys.stderr.write(f"vtrain-search: {kept} finished trials found in {path}\n")
    return folder


def _check_same(
    path: Path, stored: dict[str, Any], hashes: dict[str, str], settings: Settings, version: str
) -> None:
    """Refuse to go on with a run that was asked something else."""
    differing = [k for k, v in hashes.items() if stored.get("hashes", {}).get(k) != v]
    old = stored.get("settings", {})
    differing += [k for k in ("seed", "sampler", "space") if k in old and
                  old[k] != getattr(settings, k, None)]  # fmt: skip
    if stored.get("version") != version:
        differing.append("version")
    if differing:
        raise UserInputError(
            f"{path} was made with different {', '.join(differing)}",
            hint="resume with the same options, or start in another folder",
        )


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
            [{"budget": a.case.label, **a.outcome_row} for a in answers if a is not None],
        )
    if not any(a is not None for a in answers):
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        if found.stopped:
            raise InfeasibleError(
                f"stopped ({found.stopped}) before any feasible design was found"
            )
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
        text = json.dumps(
            document(answers, assumptions=assumed, run=run, frontier=frontier), indent=2
        )
        sys.stdout.write(text + "\n")
    else:
        _print(render(answers, assumed, exponents=exponents(rows, problem.loss)))
        if options.explain or options.why_not:
            _explain(problem, answers, options)
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


def _diagnosis(problem: Problem, found: Found) -> InfeasibleError:
    from vtrain_search.diagnosis import diagnose

    return diagnose(problem, found)
