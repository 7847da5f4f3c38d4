"""Which executor a search runs on."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from vtrain_search.executors import Executor
    from vtrain_search.problem import Problem
    from vtrain_search.run_options import RunOptions

_log = logging.getLogger(__name__)

SECONDS_PER_CASE = 10.0
"""Measured work of one budget on one core: about 120 architectures of 60-100 ms."""
SECONDS_OF_A_FIXED_MODEL = 0.1
RAY_START_S = 10.0
"""What Ray costs: 5 s to start and stop, and imports in every worker (groundwork, Ray 2.60)."""


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
    each_s = SECONDS_PER_CASE if problem.space.axes() else SECONDS_OF_A_FIXED_MODEL
    seconds = work_s or each_s * len(problem.cases)
    workers = cores if cores > 1 and seconds > RAY_START_S else 1
    if not options.quiet:
        what = f"{workers} Ray workers" if workers > 1 else "one worker in this process"
        _log.info("about %.0f s of work on one core: %s", seconds, what)
    return workers
