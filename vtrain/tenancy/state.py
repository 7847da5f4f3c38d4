"""What the simulation knows of one job while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtrain.tenancy.curve import Curve
    from vtrain.tenancy.job import Job

WAITING, RUNNING, DONE, REJECTED = "waiting", "running", "done", "rejected"


class JobState:
    """Progress of one job; changes only at events, linear in between.

    Attributes:
        index: position in the workload; breaks every tie.
        job: what was handed in.
        curve: how fast it runs.
        request: level of the GPUs asked for.
        status: WAITING, RUNNING, DONE or REJECTED.
        level: level held now.
        left: steps to go at `since`; fractional, because a failure throws away part of a step.
        since: when `left` was true.
        ready: when it trains again after a move or a failure.
        clock: when its current run of training began, for the checkpoint clock.
        version: grows with every change; older completion events are void.
        started: first time it held nodes; inf before.
        finished: when it was done; inf before.
        node_s: node-seconds held until `since`.
        trained_s: seconds of training until `since`.
        moves: changes of nodes after the first start.
        failures: failures that struck it.
    """

    __slots__ = (
        "clock", "curve", "failures", "finished", "index", "job", "left", "level", "moves",
        "node_s", "ready", "request", "since", "started", "status", "trained_s", "version",
    )  # fmt: skip

    def __init__(self, index: int, job: Job, curve: Curve, request: int) -> None:
        """Start with nothing done."""
        self.index = index
        self.job = job
        self.curve = curve
        self.request = request
        self.status = WAITING
        self.level = 0
        self.left = float(job.steps)
        self.since = job.arrival_s
        self.ready = job.arrival_s
        self.clock = job.arrival_s
        self.version = 0
        self.started = math.inf
        self.finished = math.inf
        self.node_s = 0.0
        self.trained_s = 0.0
        self.moves = 0
        self.failures = 0

    @property
    def nodes(self) -> int:
        """Nodes held now."""
        return self.curve.nodes_of[self.level]

    def left_at(self, now: float) -> float:
        """Return the steps to go at a time not before `since`, were nothing to change."""
        if not self.level:
            return self.left
        trained = now - max(self.since, self.ready)
        if trained <= 0.0:
            return self.left
        return max(0.0, self.left - trained * self.curve.real_of[self.level])

    def node_s_at(self, now: float) -> float:
        """Return the node-seconds held until a time not before `since`."""
        return self.node_s + self.nodes * (now - self.since)

    def finish_at(self) -> float:
        """Return when it would be done, were nothing to change."""
        if not self.level:
            return math.inf
        return max(self.since, self.ready) + self.left / self.curve.real_of[self.level]

    def settle(self, now: float) -> None:
        """Move `since` to now."""
        if self.level:
            self.trained_s += max(0.0, now - max(self.since, self.ready))
        self.left = self.left_at(now)
        self.node_s = self.node_s_at(now)
        self.since = now

    def move(self, level: int, now: float) -> None:
        """Take another number of nodes; training pauses."""
        self.settle(now)
        if level and math.isinf(self.started):
            self.started = now
        elif level or self.level:
            self.moves += 1
        self.level = level
        self.status = RUNNING if level else WAITING
        self.version += 1
        if level:
            self.ready = now + self.curve.pause_of[level]
            self.clock = self.ready

    def fail(self, now: float) -> None:
        """Lose the work since the last checkpoint and restart on the same number of nodes."""
        self.settle(now)
        interval = self.curve.interval[self.level]
        if now > self.clock and math.isfinite(interval):
            lost_s = math.fmod(now - self.clock, interval)
            self.left += lost_s * self.curve.real_of[self.level]
            self.trained_s -= lost_s
        self.failures += 1
        self.version += 1
        self.ready = now + self.curve.restart_s
        self.clock = self.ready
