"""Predicted against measured steps of real transformer blocks that the profile has not seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtrain.errors import UserInputError
from vtrain.profiler.prediction import Prediction, Profile, predict_step
from vtrain.profiler.runtime import Runtime, is_out_of_memory
from vtrain.profiler.session import dtype_name
from vtrain.profiler.steps import Config, peak_bytes, time_steps
from vtrain.profiler.timing import Stopwatch

REPEATS = 7
"""Steps timed of every configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One configuration, predicted and measured.

    Attributes:
        label: the configuration.
        measured_s: step time at the speed of the profile's anchor.
        raw_s: the plain median.
        spread: of the repeats.
        predicted: by the profile.
        measured_bytes: peak memory, 0 where it was not measured.
    """

    label: str
    measured_s: float
    raw_s: float
    spread: float
    predicted: Prediction
    measured_bytes: float = 0.0

    @property
    def time_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.step_time_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        """Predicted over measured, less 1; 0 where it was not measured."""
        if not self.measured_bytes:
            return 0.0
        return self.predicted.mem_peak_bytes / self.measured_bytes - 1.0

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured time."""
        return self.predicted.low_s <= self.measured_s <= self.predicted.high_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """All checks of one run.

    Attributes:
        checks: configurations that ran.
        skipped: those that did not, with the reason.
        anchor_s: median anchor of the run; the profile's where nothing has changed.
        unrest: spread of the anchors.
        warnings: what a reader must know.
    """

    checks: tuple[Check, ...]
    skipped: tuple[str, ...]
    anchor_s: float
    unrest: float
    warnings: tuple[str, ...] = ()

    def error(self, name: str) -> tuple[float, float]:
        """Return mean and largest absolute error of `time_error` or `memory_error`."""
        values = np.abs([getattr(check, name) for check in self.checks])
        return float(values.mean()), float(values.max())


def verify_steps(
    runtime: Runtime,
    profile: Profile,
    configs: list[Config],
    *,
    repeats: int = REPEATS,
    memory: bool = True,
    seconds_limit: float = math.inf,
    progress: Callable[[int, int, str], None],
) -> Verdict:
    """Run real steps of every configuration and compare.

    Args:
        runtime: the device the profile is of.
        profile: fitted.
        configs: what to run; none of it informs the prediction.
        repeats: steps timed of each, at least five for a verdict.
        memory: measure peak memory as well.
        seconds_limit: wall time after which no configuration is begun.
        progress: called after each configuration.

    Raises:
        UserInputError: the profile is of another device.
    """
    facts = runtime.facts
    if (facts.name, dtype_name(facts.dtype)) != (profile.meta.gpu, profile.meta.dtype):
        raise UserInputError(
            f"the profile is of {profile.meta.gpu} ({profile.meta.dtype}), this device is "
            f"{facts.name} ({dtype_name(facts.dtype)})",
            hint="profile this device: `vtrain profile run`",
        )
    watch = Stopwatch(runtime, profile.meta.anchor_s)
    checks: list[Check] = []
    skipped: list[str] = []
    began = time.monotonic()
    for position, config in enumerate(configs):
        if time.monotonic() - began > seconds_limit:
            skipped += [f"{left.label}: the time limit was reached" for left in configs[position:]]
            break
        try:
            timing = time_steps(runtime, watch, config, repeats=repeats)
            measured = peak_bytes(runtime, config) if memory else 0.0
        except Exception as error:
            if not is_out_of_memory(runtime, error):
                raise
            skipped.append(f"{config.label}: out of memory")
            if runtime.cuda:
                runtime.torch.cuda.empty_cache()
            continue
        checks.append(
            Check(
                label=config.label, measured_s=timing.time_s, raw_s=timing.raw_s,
                spread=timing.spread, predicted=predict_step(profile, config),
                measured_bytes=measured,
            )
        )  # fmt: skip
        progress(position + 1, len(configs), config.label)
    anchor = float(np.median(watch.anchors)) if watch.anchors else profile.meta.anchor_s
    return Verdict(
        checks=tuple(checks), skipped=tuple(skipped), anchor_s=anchor,
        unrest=watch.unrest() if watch.anchors else 0.0, warnings=_warnings(profile, watch, facts),
    )  # fmt: skip


def _warnings(profile: Profile, watch: Stopwatch, facts: Any) -> tuple[str, ...]:
    out = []
    if facts.torch != profile.meta.torch:
        out.append(f"the profile was taken with torch {profile.meta.torch}, this is {facts.torch}")
    drift = float(np.median(watch.anchors)) / profile.meta.anchor_s - 1.0 if watch.anchors else 0.0
    if abs(drift) > 0.05:
        out.append(
            f"the anchor product's time is {100 * drift:+.0f} % off that in the profile; measured "
            "times are stated at the profile's speed"
        )
    return tuple(out)
