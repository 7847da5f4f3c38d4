"""Workloads drawn at random: Poisson arrivals, a mix of models, a load, a deadline tightness."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.tenancy.job import Job
from vtrain.units import parse_number

if TYPE_CHECKING:
    from vtrain.tenancy.speed_book import SpeedBook
    from vtrain.tenancy.upkeep import Upkeep


class Kind(NamedTuple):
    """A model of the mix with the batch it is trained at."""

    model: str
    global_batch_size: int
    seq_length: int


DEFAULT_MIX = (
    Kind("megatron-18.4b", 1024, 2048),
    Kind("megatron-39.1b", 1536, 2048),
    Kind("megatron-76.1b", 1792, 2048),
    Kind("megatron-145.6b", 2304, 2048),
)
"""Models, batches and sequence length of Narayanan et al. 2021 (arXiv 2104.04473), table 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSpec:
    """What a random workload looks like.

    Attributes:
        jobs: how many.
        load: GPU time asked for in the mean over the GPU time the cluster has while jobs arrive.
        tightness: time to the deadline over the running time on the GPUs asked for; inf for no
            deadlines.
        models: names of the mix to draw from, all equally likely; empty takes the whole mix.
        hours_low: shortest running time on the GPUs asked for.
        hours_high: longest; running times are log-uniform between.
        share: largest part of the cluster a job asks for.
        stretch: most GPUs a job may be given, as a multiple of what it asks for.
    """

    jobs: int = 64
    load: float = 0.9
    tightness: float = 1.5
    models: tuple[str, ...] = ()
    hours_low: float = 12.0
    hours_high: float = 120.0
    share: float = 0.5
    stretch: float = 2.0

    def __post_init__(self) -> None:
        """Refuse workloads that cannot be drawn.

        Raises:
            UserInputError: naming the field.
        """
        if self.jobs < 1:
            raise UserInputError(f"jobs={self.jobs} must be at least 1")
        for field in ("load", "tightness", "hours_low", "hours_high"):
            if not getattr(self, field) > 0.0:
                raise UserInputError(f"{field}={getattr(self, field)} must be above zero")
        if self.hours_high < self.hours_low:
            raise UserInputError("hours_low must not exceed hours_high")
        if not self.stretch >= 1.0:
            raise UserInputError(f"stretch={self.stretch} must be at least 1")
        if not 0.0 < self.share <= 1.0:
            raise UserInputError(f"share={self.share} must lie in (0, 1]")
        known = [kind.model for kind in DEFAULT_MIX]
        for name in self.models:
            if name not in known:
                raise UserInputError(
                    f"models={name} is not in the mix", hint=f"one or more of {'+'.join(known)}"
                )

    @property
    def mix(self) -> tuple[Kind, ...]:
        """The kinds to draw from."""
        return tuple(k for k in DEFAULT_MIX if not self.models or k.model in self.models)


def parse_spec(text: str) -> WorkloadSpec:
    """Read `jobs=64,load=0.9,tightness=1.5,models=megatron-18.4b+megatron-39.1b`.

    Raises:
        UserInputError: unknown key or unreadable value.
    """
    known = [field.name for field in fields(WorkloadSpec)]
    values: dict[str, object] = {}
    for part in text.split(","):
        key, sign, word = (piece.strip() for piece in part.partition("="))
        if not sign or not word:
            raise UserInputError(
                f"--generate {part!r} must be key=value", hint="e.g. jobs=64,load=0.9,tightness=1.5"
            )
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise UserInputError(f"--generate: unknown key {key!r}", hint=f"nearest: {near}")
        if key == "models":
            values[key] = tuple(word.split("+"))
        elif key == "tightness" and word.lower() in ("none", "inf"):
            values[key] = math.inf
        else:
            number = parse_number(word, what=key)
            if key == "jobs" and number != int(number):
                raise UserInputError(f"jobs={word} must be a whole number")
            values[key] = int(number) if key == "jobs" else number
    return WorkloadSpec(**values)  # type: ignore[arg-type]


def generate_jobs(spec: WorkloadSpec, book: SpeedBook, upkeep: Upkeep, *, seed: int) -> list[Job]:
    """Draw a workload.

    Running times, and with them work, load and deadlines, are taken from the data-parallel speed
    of the fixed plan at the GPUs asked for: what the owner of a job would expect of a scheduler
    that knows no better plan. So the same workload serves every policy and every speed.

    Args:
        spec: what to draw.
        book: speeds on the cluster.
        upkeep: for the expected share of time lost.
        seed: the same seed draws the same jobs.

    Raises:
        InfeasibleError: when a model of the mix does not fit in its share of the cluster.
    """
    rng = np.random.default_rng([seed, 0])
    choices = [_choices(kind, spec, book, upkeep) for kind in spec.mix]
    kinds = rng.integers(len(spec.mix), size=spec.jobs)
    hours = np.exp(rng.uniform(np.log(spec.hours_low), np.log(spec.hours_high), size=spec.jobs))
    sizes = rng.random(spec.jobs)
    gaps = rng.exponential(size=spec.jobs)
    spread = math.log(spec.hours_high / spec.hours_low)
    mean_hours = (spec.hours_high - spec.hours_low) / spread if spread else spec.hours_low
    mean_nodes = float(np.mean([np.mean([nodes for nodes, _ in c]) for c in choices]))
    gap_s = mean_nodes * mean_hours * 3600.0 / (spec.load * book.cluster_nodes)
    arrival_s = 0.0
    jobs = []
    for i in range(spec.jobs):
        kind = spec.mix[kinds[i]]
        nodes, rate = choices[kinds[i]][int(sizes[i] * len(choices[kinds[i]]))]
        arrival_s += float(gaps[i]) * gap_s if i else 0.0
        steps = max(1, round(hours[i] * 3600.0 * rate))
        jobs.append(Job(
            name=f"job-{i:05d}", model=kind.model, steps=steps,
            global_batch_size=kind.global_batch_size, seq_length=kind.seq_length,
            arrival_s=arrival_s, deadline_s=arrival_s + spec.tightness * steps / rate,
            gpus=nodes * book.gpus_per_node,
            max_gpus=int(nodes * spec.stretch) * book.gpus_per_node,
        ))  # fmt: skip
    return jobs


def _choices(
    kind: Kind, spec: WorkloadSpec, book: SpeedBook, upkeep: Upkeep
) -> list[tuple[int, float]]:
    """Return the (nodes, steps a second) a job of a kind may ask for, all equally likely.

    Each is at least half as large again as the one before, so that the sizes spread evenly over
    the decades.
    """
    job = Job(
        name="mix", model=kind.model, steps=1, global_batch_size=kind.global_batch_size,
        seq_length=kind.seq_length,
    )  # fmt: skip
    curve = book.curve(job, "data-parallel", upkeep)
    limit = max(1, int(spec.share * book.cluster_nodes))
    chosen: list[tuple[int, float]] = []
    for nodes, rate in zip(curve.nodes_of[1:], curve.planned_of[1:], strict=True):
        if nodes <= limit and (not chosen or nodes >= 1.5 * chosen[-1][0]):
            chosen.append((nodes, rate))
    if not chosen:
        raise InfeasibleError(
            f"{kind.model} needs {curve.nodes_of[1] * book.gpus_per_node} GPUs, more than "
            f"share={spec.share:g} of the cluster",
            hint="raise share, or leave the model out with models=...",
        )
    return chosen
