"""What the commands of `vtrain profile` do, as lines to print."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.profiler.report import dry_run_text, fit_lines, outcome_lines, verdict_text

if TYPE_CHECKING:
    from vtrain.profiler.operators import Operator
    from vtrain.profiler.prediction import Profile
    from vtrain.profiler.session import Outcome
    from vtrain.profiler.verify import Verdict

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options of `vtrain profile run`.

    Attributes:
        kind: "cuda" or "cpu".
        out: folder.
        minutes: wall time after which no row is begun.
        gemms: products in each layout.
        threads: threads of a CPU operator.
        name: of the profile.
        resume: go on with what is there.
        force: measure again.
    """

    kind: str
    out: Path
    minutes: float
    gemms: int
    threads: int
    name: str
    resume: bool
    force: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyOptions:
    """Options of `vtrain profile verify`.

    Attributes:
        folder: the profile.
        count: configurations.
        repeats: steps of each.
        seed: of the draw.
        memory: check peak memory.
        minutes: wall time after which no configuration is begun.
        as_json: print JSON.
    """

    folder: Path
    count: int
    repeats: int
    seed: int
    memory: bool
    minutes: float
    as_json: bool


def world_size() -> int:
    """Return the ranks that torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return this process's rank."""
    return int(os.environ.get("RANK", "0"))


def describe_run(options: RunOptions) -> str:
    """Return what a run would measure."""
    return dry_run_text(planned_operators(options.kind, options.gemms), options.minutes)


def planned_operators(kind: str, gemms: int) -> list[Operator]:
    """Return what a run measures, half precision on a GPU and single on a CPU.

    Raises:
        UserInputError: an unknown kind of device.
    """
    from vtrain.errors import UserInputError
    from vtrain.profiler.operators import plan_operators
    from vtrain.profiler.runtime import DEVICE_KINDS

    if kind not in DEVICE_KINDS:
        raise UserInputError(f"unknown device {kind!r}", hint=f"one of {', '.join(DEVICE_KINDS)}")
    return plan_operators(kind, 2.0 if kind == "cuda" else 4.0, gemms)


def run_profile(options: RunOptions, progress: Progress) -> Iterator[str]:
    """Measure, fit, and yield lines about both.

    Raises:
        UserInputError: no torch, no device, or a folder that holds something else.
    """
    if world_size() > 1:
        from vtrain.profiler.collectives import measure_collectives

        yield from measure_collectives(options, progress)
        return
    yield from outcome_lines(options.out, measure_device(options, progress))
    yield from fit_lines_of(options.out)


def measure_device(options: RunOptions, progress: Progress) -> Outcome:
    """Measure the operators of this process's device into a profile folder.

    Raises:
        UserInputError: no torch, no device, or a folder that holds something else.
    """
    from vtrain.profiler.runtime import open_runtime
    from vtrain.profiler.session import measure_operators

    runtime = open_runtime(options.kind, threads=options.threads)
    if options.force:
        from vtrain.profiler.meta import FILE
        from vtrain.profiler.rows import COLUMNS, path_of

        for path in (options.out / FILE, *(path_of(options.out, name) for name in COLUMNS)):
            path.unlink(missing_ok=True)
    return measure_operators(
        runtime, options.out, name=options.name, gemms=options.gemms,
        seconds_limit=60.0 * options.minutes, resume=options.resume or options.force,
        progress=progress,
    )  # fmt: skip


def fit_lines_of(folder: Path) -> Iterator[str]:
    """Fit a profile and yield its held-out errors."""
    from vtrain.profiler.fit.profile import fit_profile

    yield from fit_lines(folder, fit_profile(folder))


def run_verify(options: VerifyOptions, progress: Progress) -> Iterator[str]:
    """Run real steps and yield the comparison.

    Raises:
        UserInputError: no torch, no profile, or one of another device.
    """
    from vtrain.profiler.prediction import load_profile

    profile = load_profile(options.folder)
    if world_size() > 1:
        from vtrain.profiler.parallel import verify_parallel

        yield from verify_parallel(profile, options)
        return
    verdict = verify_device(profile, options, progress)
    yield verdict_text(profile, verdict, as_json=options.as_json)


def verify_device(profile: Profile, options: VerifyOptions, progress: Progress) -> Verdict:
    """Run real steps of random configurations in this process and compare.

    Raises:
        UserInputError: no torch, or a profile of another device.
    """
    from vtrain.profiler.configs import random_configs
    from vtrain.profiler.runtime import open_runtime
    from vtrain.profiler.verify import verify_steps

    kind = profile.meta.kind
    runtime = open_runtime(kind, threads=profile.meta.units if kind == "cpu" else 1)
    return verify_steps(
        runtime, profile, random_configs(kind, options.count, options.seed),
        repeats=options.repeats, memory=options.memory,
        seconds_limit=60.0 * options.minutes, progress=progress,
    )  # fmt: skip
