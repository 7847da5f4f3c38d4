"""From a file or a recipe to jobs with speeds, ready to be played."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.tenancy.engine import Simulation
from vtrain.tenancy.generate import generate_jobs
from vtrain.tenancy.job_file import BadRow, read_jobs
from vtrain.tenancy.policies import make_policy

if TYPE_CHECKING:
    from vtrain.tenancy.curve import Curve
    from vtrain.tenancy.engine import Outcome
    from vtrain.tenancy.generate import WorkloadSpec
    from vtrain.tenancy.job import Job
    from vtrain.tenancy.job_file import JobText
    from vtrain.tenancy.speed_book import SpeedBook
    from vtrain.tenancy.upkeep import Upkeep


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Jobs that all can run on the cluster.

    Attributes:
        jobs: in the order handed in.
        curves: how fast each runs.
        bad: rows left out, with the reason.
    """

    jobs: tuple[Job, ...]
    curves: tuple[Curve, ...]
    bad: tuple[BadRow, ...] = ()


def generated(
    spec: WorkloadSpec, book: SpeedBook, upkeep: Upkeep, *, speed: str, seed: int
) -> Workload:
    """Draw a workload and look up its speeds."""
    jobs = generate_jobs(spec, book, upkeep, seed=seed)
    return Workload(
        jobs=tuple(jobs), curves=tuple(book.curve(job, speed, upkeep) for job in jobs)
    )  # fmt: skip


def from_file(
    path: str | Path | JobText, book: SpeedBook, upkeep: Upkeep, *, speed: str, skip_bad: bool
) -> Workload:
    """Read a workload; a job that no plan can run on the cluster is as bad as an unreadable one.

    Args:
        path: CSV, in a file or in memory; see `vtrain.tenancy.job_file`.
        book: speeds on the cluster.
        upkeep: failure and rescaling costs.
        speed: one of `vtrain.tenancy.speed.SPEEDS`.
        skip_bad: go on without bad rows.

    Raises:
        UserInputError: for bad rows, unless they are skipped and others remain.
        InfeasibleError: where all of them are jobs that no plan can run.
    """
    rows, bad = read_jobs(path, book.own_seq_length)
    jobs, curves, infeasible = [], [], 0
    for number, job in rows:
        try:
            _check_size(job, book)
            curve = book.curve(job, speed, upkeep)
        except (UserInputError, InfeasibleError) as error:
            bad.append(BadRow(row=number, reason=str(error)))
            infeasible += isinstance(error, InfeasibleError)
        else:
            jobs.append(job)
            curves.append(curve)
    bad.sort(key=lambda item: item.row)
    if bad and not (skip_bad and jobs):
        more = f" (and {len(bad) - 1} more bad rows)" if len(bad) > 1 else ""
        # Well-formed jobs that no plan can run are another answer than a file with mistakes.
        kind = InfeasibleError if infeasible == len(bad) else UserInputError
        raise kind(
            f"{path} row {bad[0].row}: {bad[0].reason}{more}",
            hint=f"--skip-bad runs the other {len(jobs)}" if jobs else None,
        )
    return Workload(jobs=tuple(jobs), curves=tuple(curves), bad=tuple(bad))


def play(
    workload: Workload, book: SpeedBook, upkeep: Upkeep, *, policy: str, seed: int, record: bool
) -> Outcome:
    """Run a workload under a policy."""
    return Simulation(
        workload.jobs, workload.curves, make_policy(policy), cluster_nodes=book.cluster_nodes,
        gpus_per_node=book.gpus_per_node, upkeep=upkeep, seed=seed, record=record,
    ).run()  # fmt: skip


def _check_size(job: Job, book: SpeedBook) -> None:
    """Refuse jobs that ask for more than there is, or for parts of nodes.

    Raises:
        UserInputError: naming the field.
    """
    node, gpus = book.gpus_per_node, book.cluster_nodes * book.gpus_per_node
    for field in ("gpus", "min_gpus"):
        value = getattr(job, field)
        if value > gpus:
            raise UserInputError(f"{field}={value} exceeds the cluster's {gpus} GPUs")
    for field in ("gpus", "max_gpus"):
        value = getattr(job, field)
        if value % node:
            near = max(1, round(value / node)) * node
            raise UserInputError(
                f"{field}={value} must be whole nodes of {node}", hint=f"nearest valid: {near}"
            )
