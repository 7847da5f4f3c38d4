"""Many seeds of one recipe, on one core or on Ray, and what they say together."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.tenancy.outcome import summarise
from vtrain.tenancy.workload import generated, play

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.tenancy.generate import WorkloadSpec
    from vtrain.tenancy.speed_book import SpeedBook
    from vtrain.tenancy.upkeep import Upkeep

_OBJECT_STORE_BYTES = 100 * 2**20
_LOCAL_ENVIRONMENT = {
    # A private Ray of this machine: no token file in HOME, no reports, one thread a worker.
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One recipe under one policy and one kind of speed; seeds make it runs."""

    spec: WorkloadSpec
    policy: str
    speed: str
    upkeep: Upkeep
    price_usd_per_gpu_hour: float


def run_case(case: Case, book: SpeedBook, seed: int) -> dict[str, Any]:
    """Return the figures of one seed."""
    workload = generated(case.spec, book, case.upkeep, speed=case.speed, seed=seed)
    outcome = play(workload, book, case.upkeep, policy=case.policy, seed=seed, record=False)
    return summarise(
        outcome, gpus_per_node=book.gpus_per_node,
        price_usd_per_gpu_hour=case.price_usd_per_gpu_hour,
    )  # fmt: skip


def run_seeds(
    case: Case, book: SpeedBook, seeds: Sequence[int], *, workers: int = 1
) -> list[dict[str, Any]]:
    """Return the figures of every seed, in order; the same for any number of workers.

    Args:
        case: what to run.
        book: speeds; its tables are computed before they are sent to workers.
        seeds: one run each.
        workers: processes; more than one starts a private Ray, unless this process is connected to
            one already: that one is used, and left running.
    """
    if workers <= 1 or len(seeds) <= 1:
        return [run_case(case, book, seed) for seed in seeds]
    for name, value in _LOCAL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    generated(case.spec, book, case.upkeep, speed=case.speed, seed=seeds[0])
    connected = ray.is_initialized()
    if not connected:
        ray.init(
            address="local", num_cpus=workers, num_gpus=0, include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES, log_to_driver=False, logging_level="ERROR",
        )  # fmt: skip
    try:
        task = ray.remote(num_cpus=1)(run_case)
        sent_case, sent_book = ray.put(case), ray.put(book)
        results: list[dict[str, Any]] = ray.get(
            [task.remote(sent_case, sent_book, seed) for seed in seeds]
        )
    finally:
        if not connected:
            ray.shutdown()
    return results


def interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return mean and half-width of the 95 % interval of the mean (Student's t); None if empty.

    Values of None are left out; a single one has an infinite half-width.
    """
    known: npt.NDArray[np.float64] = np.array([v for v in values if v is not None], dtype=float)
    if not len(known):
        return None
    if len(known) == 1:
        return float(known[0]), math.inf
    return float(known.mean()), student_t(len(known) - 1) * float(
        known.std(ddof=1) / math.sqrt(len(known))
    )


def student_t(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
