"""How long one call takes: warm-up, repeats, an anchor in between, median and spread.

The speed of a machine drifts: clocks, temperature, other programs. A fixed product, the anchor,
is timed next to every repeat, and what is reported is the median of (time / anchor) times the
anchor of the profile, beside the plain median.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vtrain.profiler.runtime import Runtime

Call = Callable[[int], Any]
"""Runs once; the argument picks one of the rotating buffers."""

ANCHOR_EDGE = {"cuda": 4096, "cpu": 384}
"""Edge of the anchor's square product: under a millisecond on a GPU, about two on a CPU core."""

REPEATS = 5
BATCH_S = 0.004
"""A repeat runs as many calls as fill this, so that the clock's resolution does not show."""

MOST_CALLS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """One measured operator.

    Attributes:
        time_s: seconds of a call at the speed of the profile's anchor (median of ratios).
        raw_s: plain median.
        spread: half the interquartile range of the ratios over their median.
        repeats: repeats behind the medians.
        anchor_s: median anchor beside them.
    """

    time_s: float
    raw_s: float
    spread: float
    repeats: int
    anchor_s: float


class Stopwatch:
    """Times calls on one device against an anchor."""

    def __init__(self, runtime: Runtime, anchor_s: float | None = None) -> None:
        """Build the anchor and, unless given, measure it.

        Args:
            runtime: the device.
            anchor_s: reference seconds of the anchor, when a profile already has them.
        """
        self.runtime = runtime
        torch = runtime.torch
        edge = ANCHOR_EDGE[runtime.facts.kind]
        shape = {"device": runtime.device, "dtype": runtime.dtype}
        left, right = torch.randn(edge, edge, **shape), torch.randn(edge, edge, **shape)
        self._anchor: Call = lambda _: torch.mm(left, right)
        for _ in range(3):
            self.seconds(self._anchor, 1)
        self.anchors: list[float] = []
        self.anchor_s = anchor_s or float(np.median([self.anchor() for _ in range(15)]))

    def anchor(self) -> float:
        """Time the anchor once, seconds."""
        seconds = self.seconds(self._anchor, 1)
        self.anchors.append(seconds)
        return seconds

    def seconds(self, call: Call, count: int) -> float:
        """Return the seconds of one of `count` calls in a row, on the device's own clock."""
        if self.runtime.cuda:
            return self._device_seconds(call, count)
        clock = self.clock()
        start = clock()
        for index in range(count):
            call(index)
        return (clock() - start) / count

    def clock(self) -> Callable[[], float]:
        """CPU time of the calling thread; wall time where several threads share an operator."""
        return time.thread_time if self.runtime.threads == 1 else time.perf_counter

    def wall_seconds(self, call: Call, count: int = 1) -> float:
        """Return wall seconds of a call, device work included."""
        self.runtime.synchronize()
        start = time.perf_counter()
        for index in range(count):
            call(index)
        self.runtime.synchronize()
        return (time.perf_counter() - start) / count

    def measure(
        self, call: Call, *, repeats: int = REPEATS, batch_s: float = BATCH_S, host: bool = False
    ) -> Timing:
        """Time a call with warm-up, repeats and the anchor beside each repeat.

        Args:
            call: what to time.
            repeats: how often.
            batch_s: seconds that the calls of one repeat fill.
            host: wall time of the host on a GPU, launches included.
        """
        timed = self.wall_seconds if host and self.runtime.cuda else self.seconds
        call(0)
        first = timed(call, 1)
        count = int(np.clip(np.ceil(batch_s / max(first, 1e-7)), 1, MOST_CALLS))
        if count > 1:
            timed(call, min(count, 8))
        times, anchors = np.empty(repeats), np.empty(repeats)
        for index in range(repeats):
            before = self.anchor()
            times[index] = timed(call, count)
            anchors[index] = 0.5 * (before + self.anchor())
        ratios = times / anchors
        low, middle, high = np.percentile(ratios, (25.0, 50.0, 75.0))
        return Timing(
            time_s=float(middle * self.anchor_s),
            raw_s=float(np.median(times)),
            spread=float(0.5 * (high - low) / middle),
            repeats=repeats,
            anchor_s=float(np.median(anchors)),
        )

    def drift(self) -> float:
        """Return how far the anchor moved over the session: last fifth over first fifth, less 1."""
        size = max(5, len(self.anchors) // 5)
        if len(self.anchors) < 2 * size:
            return 0.0
        first, last = np.median(self.anchors[:size]), np.median(self.anchors[-size:])
        return float(last / first - 1.0)

    def unrest(self) -> float:
        """Return the spread of the anchors: half the interquartile range over the median."""
        if not self.anchors:
            return 0.0
        low, middle, high = np.percentile(self.anchors, (25.0, 50.0, 75.0))
        return float(0.5 * (high - low) / middle)

    def sustained(self, seconds: float = 2.0, edge: int = 8192) -> float:
        """Return how far a power limit slows a large product: rate at the end over rate at first.

        A GPU runs its first kernels at full clock and comes down within a second or so; a step of
        training is long. CPUs are timed in long calls anyway.
        """
        if not self.runtime.cuda:
            return 1.0
        torch = self.runtime.torch
        kind = {"device": self.runtime.device, "dtype": self.runtime.dtype}
        left, right = torch.randn(edge, edge, **kind), torch.randn(edge, edge, **kind)

        def call(_: int) -> Any:
            return torch.mm(left, right)

        call(0)
        self.runtime.synchronize()
        time.sleep(1.0)
        first = self.seconds(call, 5)
        began = time.monotonic()
        last = first
        while time.monotonic() - began < seconds:
            last = self.seconds(call, 50)
        return float(np.clip(first / last, 0.3, 1.0))

    def _device_seconds(self, call: Call, count: int) -> float:
        cuda = self.runtime.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self.runtime.synchronize()
        # Keep the device busy while the host queues the calls: the events then bracket kernels
        # that follow one another, not the host's launches.
        sleep = getattr(cuda, "_sleep", None)
        if sleep is not None:
            sleep(200_000 * count)
        start.record()
        for index in range(count):
            call(index)
        end.record()
        self.runtime.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / count
