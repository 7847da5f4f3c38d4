"""Predicted against measured steps of real transformer blocks that the profile has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError
from vtrain.estimate import estimate
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.profiler.meta import Meta, read_meta
from vtrain.profiler.runtime import PLANNED_ELEMENT_BYTES, Runtime, is_out_of_memory
from vtrain.profiler.session import dtype_name
from vtrain.profiler.steps import Config, peak_bytes, time_steps
from vtrain.profiler.timing import Stopwatch

if TYPE_CHECKING:
    from vtrain.hardware import Cluster
    from vtrain.profiler.residual import Residual
    from vtrain.stack import Stack

REPEATS = 7
"""Steps timed of every configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A profile as prediction needs it.

    Attributes:
        folder: where it is.
        meta: its head.
        cluster: its device and links.
        stack: plain torch.
        residual: learned correction of products, None where the analytic model is no worse.
    """

    folder: Path
    meta: Meta
    cluster: Cluster
    stack: Stack
    residual: Residual | None

    @property
    def bytes_per_planned(self) -> float:
        """Bytes on the device for each byte planned."""
        return self.meta.element_bytes / PLANNED_ELEMENT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One configuration, predicted and measured.

    Attributes:
        label: the configuration.
        measured_s: step time at the speed of the profile's anchor.
        raw_s: the plain median.
        spread: of the repeats.
        predicted_s: by the simulator on the profile's constants and residual.
        analytic_s: by the constants alone.
        measured_bytes: peak memory, 0 where it was not measured.
        predicted_bytes: peak memory.
        missed: products of the step outside the measured range.
    """

    label: str
    measured_s: float
    raw_s: float
    spread: float
    predicted_s: float
    analytic_s: float
    measured_bytes: float
    predicted_bytes: float
    missed: tuple[str, ...] = ()

    @property
    def time_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        """Predicted over measured, less 1; 0 where it was not measured."""
        return self.predicted_bytes / self.measured_bytes - 1.0 if self.measured_bytes else 0.0


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


def load_profile(folder: str | Path) -> Profile:
    """Read a fitted profile.

    Raises:
        UserInputError: no profile, or one that was never fitted.
    """
    from vtrain.profiler.residual import load_residual

    path = Path(folder)
    meta = read_meta(path)
    for name in ("device.toml", "cluster.toml", "stack.toml"):
        if not (path / name).exists():
            raise UserInputError(
                f"{path} lacks {name}", hint=f"`vtrain profile fit --profile {path}` writes it"
            )
    cluster = load_cluster(path / "cluster.toml")
    return Profile(
        folder=path, meta=meta, cluster=cluster, stack=load_stack(path / "stack.toml"),
        residual=load_residual(path, meta),
    )  # fmt: skip


def predict_step(profile: Profile, config: Config) -> tuple[float, float, float, tuple[str, ...]]:
    """Predict one step on one device.

    Returns:
        Seconds with the learned residual, seconds by constants alone, peak bytes on the device,
        and the products outside the measured range.
    """
    plan = Plan(
        micro_batch_size=config.micro_batch_size,
        global_batch_size=config.micro_batch_size * config.micro_batches, sharding="none",
    )  # fmt: skip
    found = estimate(
        config.architecture, profile.cluster, profile.stack, PlanTable.from_plans([plan]),
        seq_length=config.seq_length,
    )  # fmt: skip
    analytic = float(found.step_time_s[0])
    extra: float = 0.0
    missed: tuple[str, ...] = ()
    if profile.residual is not None:
        extra, missed = profile.residual.step_correction_s(config)
    peak = float(found.mem_peak_bytes[0]) * profile.bytes_per_planned
    return analytic + extra, analytic, peak, missed


def verify_steps(
    runtime: Runtime,
    profile: Profile,
    configs: list[Config],
    *,
    repeats: int = REPEATS,
    memory: bool = True,
    progress: Callable[[int, int, str], None],
) -> Verdict:
    """Run real steps of every configuration and compare.

    Args:
        runtime: the device the profile is of.
        profile: fitted.
        configs: what to run; none of it informs the prediction.
        repeats: steps timed of each, at least five for a verdict.
        memory: measure peak memory as well.
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
    for position, config in enumerate(configs):
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
        predicted, analytic, peak, missed = predict_step(profile, config)
        checks.append(
            Check(
                label=config.label, measured_s=timing.time_s, raw_s=timing.raw_s,
                spread=timing.spread, predicted_s=predicted, analytic_s=analytic,
                measured_bytes=measured, predicted_bytes=peak, missed=missed,
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
