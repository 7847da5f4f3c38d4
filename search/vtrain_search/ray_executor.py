"""Evaluation by Ray actors, on a private local Ray or on somebody's cluster."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError, VtrainError
from vtrain_search.evaluator import Evaluator, Outcome, Task
from vtrain_search.interrupt import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vtrain_search.problem import Problem

_log = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100 * 2**20
"""Ray refuses less than 75 MiB; the search puts one value of a few kilobytes into it."""
_WAIT_S = 0.5
_MAX_DEATHS = 5
"""Workers that may die over one call before its tasks are blamed."""
_CALLS_PER_WORKER = 4
_MAX_CHUNK = 16
"""A round gives each worker about four calls of up to 16 tasks: enough to even out slow tasks,
few enough that a round of thousands costs the driver a tenth of a millisecond a task."""
LOCAL_ENVIRONMENT = {
    # Token authentication writes to HOME and fails where HOME is read-only; a private Ray listens
    # to this machine only.
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # One thread a worker: the workers are the parallelism.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class _Worker:
    """An actor's body: evaluates tasks with tables of its own."""

    def __init__(self, problem: Problem) -> None:
        self._evaluator = Evaluator(problem)

    def pid(self) -> int:
        return os.getpid()

    def evaluate(self, tasks: list[Task]) -> list[tuple[Outcome, ...]]:
        return [self._evaluator.evaluate(task) for task in tasks]


class RayExecutor:
    """Keeps one actor a CPU busy; replaces actors that die and welcomes nodes that join.

    A task is pure, so losing a worker only means evaluating its task again elsewhere.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        workers: int | None = None,
        address: str | None = None,
        attached: bool = False,
    ) -> None:
        """Start a private Ray, or join a cluster.

        Args:
            problem: constants of the search, sent once.
            workers: actors at most; None takes every CPU of the cluster.
            address: cluster to join; it is neither started nor stopped. None starts a private Ray
                with `workers` CPUs on this machine.
            attached: this process is connected to Ray already and stays so.

        Raises:
            UserInputError: when the cluster cannot be reached.
        """
        self._owns_connection = not attached
        if address is None and not attached:
            for name, value in LOCAL_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
        with uninterrupted():
            import ray

        self._ray: Any = ray
        self._limit = workers
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._pids: list[int] = []
        try:
            with uninterrupted("Ray is still starting"):
                if not attached:
                    self._connect(workers, address)
                self._problem_ref = ray.put(problem)
                self._worker_class = ray.remote(
                    num_cpus=1, max_restarts=0, max_task_retries=0
                )(_Worker)  # fmt: skip
                self._adjust()
        except BaseException:
            # Nobody else knows yet that Ray runs.
            self.close()
            raise

    def _connect(self, workers: int | None, address: str | None) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            self._ray.init(
                address="local",
                num_cpus=workers or os.cpu_count() or 1,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                **quiet,
            )
            return
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
            raise UserInputError(
                f"cannot join the Ray cluster at {address!r}: {reason}",
                hint="start one with `ray start --head`, or leave --ray-address away",
            ) from None

    @property
    def workers(self) -> int:
        """Actors wanted: one a CPU, at most the limit."""
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        return max(1, cpus if self._limit is None else min(self._limit, cpus))

    def worker_pids(self) -> tuple[int, ...]:
        """Return the process ids of every worker that ever got ready, oldest first."""
        return tuple(self._pids)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        """Yield (position, outcomes) as tasks finish; tasks of dead workers are given again.

        Raises:
            VtrainError: when workers keep dying over one task.
        """
        errors = self._ray.exceptions
        size = max(1, min(_MAX_CHUNK, len(tasks) // (_CALLS_PER_WORKER * self.workers)))
        chunks = [range(at, min(at + size, len(tasks))) for at in range(0, len(tasks), size)]
        waiting = list(range(len(chunks) - 1, -1, -1))
        running: dict[Any, tuple[Any, int]] = {}
        deaths = [0] * len(chunks)
        try:
            while waiting or running:
                while waiting and self._idle:
                    actor, chunk = self._idle.pop(), waiting.pop()
                    running[actor.evaluate.remote([tasks[i] for i in chunks[chunk]])] = (
                        actor, chunk,
                    )  # fmt: skip
                pending = [*running, *self._starting]
                done, _ = self._ray.wait(pending, num_returns=1, timeout=_WAIT_S)
                if not done:
                    self._adjust(len(running))
                for ref in done:
                    try:
                        value = self._ray.get(ref)
                    except errors.RayActorError:
                        if ref in running:
                            chunk = running.pop(ref)[1]
                            deaths[chunk] += 1
                            _log.warning("a worker died; its architectures are evaluated again")
                            if deaths[chunk] >= _MAX_DEATHS:
                                point = tuple(tasks[chunks[chunk][0]].point)
                                raise VtrainError(
                                    f"{_MAX_DEATHS} workers died evaluating {point}",
                                    hint="is the machine out of memory? try --workers 1",
                                ) from None
                            waiting.append(chunk)
                        else:
                            self._starting.pop(ref, None)
                        self._adjust(len(running))
                        continue
                    except errors.RayTaskError as error:
                        raise (error.cause or error) from None
                    if ref in running:
                        actor, chunk = running.pop(ref)
                        self._idle.append(actor)
                        yield from zip(chunks[chunk], value, strict=True)
                    else:
                        self._idle.append(self._starting.pop(ref))
                        self._pids.append(value)
        finally:
            # A round given up (timeout, Ctrl-C) leaves actors busy: drop them, not their answers.
            with uninterrupted():
                for actor, _ in running.values():
                    self._ray.kill(actor)

    def close(self) -> None:
        """End the actors; leave Ray, or end it if this executor started it."""
        ray = self._ray
        if not ray.is_initialized():
            return
        with uninterrupted():
            with contextlib.suppress(Exception):
                for actor in [*self._idle, *self._starting.values()]:
                    ray.kill(actor)
            self._idle, self._starting = [], {}
            if self._owns_connection:
                ray.shutdown()

    def _adjust(self, busy: int = 0) -> None:
        """Start actors until there is one a CPU, counting those that run or start."""
        for _ in range(self.workers - busy - len(self._idle) - len(self._starting)):
            actor = self._worker_class.remote(self._problem_ref)
            self._starting[actor.pid.remote()] = actor
