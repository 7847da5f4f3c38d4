"""Why a plan does not fit, and the nearest changes that make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError
from vtrain.memory.breakdown import StageBreakdown, memory_breakdown
from vtrain.memory.verdict import memory_limit_bytes, verdict
from vtrain.memory_limit import SHARE_FITS
from vtrain.plan import RECOMPUTE, SHARDING

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.memory.verdict import Verdict
    from vtrain.plan import Plan
    from vtrain.stack import Stack

# Items in the order in which they are hard to do without: states, what the framework holds,
# kept activations, transients.
_ORDER = (
    "weights", "gradients", "optimizer", "buffers", "backward_gradients", "activations",
    "backward", "loss", "optimizer_step",
)  # fmt: skip
_ENOUGH = 3
KNOBS = ("recompute", "micro-batch", "sharding", "tp", "pp", "cp", "gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """One change that makes a plan fit.

    Attributes:
        knobs: what is changed, out of KNOBS; more than one where no single change suffices.
        change: the change in words.
        plan: the changed plan.
        peak_bytes: its allocated peak.
        step_time_s: its step time, None where nobody could tell.
        step_time_cost: step time over that of the plan that does not fit, less 1.
    """

    knobs: tuple[str, ...]
    change: str
    plan: Plan
    peak_bytes: float
    step_time_s: float | None
    step_time_cost: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyNot:
    """Why a plan does not fit.

    Attributes:
        verdict: the judgement.
        stage: breakdown of the heaviest stage.
        over_bytes: peak less the largest that fits.
        breaking_item: the item at which the sum passes the limit, counted from what is hardest
            to do without.
        fixes: nearest change of each knob that fits, fastest first where times are known.
    """

    verdict: Verdict
    stage: StageBreakdown
    over_bytes: float
    breaking_item: str
    fixes: tuple[Fix, ...]

    @property
    def sentence(self) -> str:
        """One line for people."""
        gib = 2.0**30
        return (
            f"{self.verdict.verdict}: stage {self.stage.stage} needs "
            f"{self.verdict.peak_bytes / gib:.1f} GiB at {self.stage.moment}, "
            f"{self.over_bytes / gib:.1f} GiB over {self.verdict.limit_bytes / gib:.1f}; "
            f"{self.breaking_item} "
            f"({self.stage.items_bytes[self.breaking_item] / gib:.1f} GiB) breaks it"
        )


def why_not(
    architecture: Architecture,
    stack: Stack,
    plan: Plan,
    *,
    device_memory_bytes: float,
    seq_length: int,
    is_valid: Callable[[Plan], bool] = lambda plan: True,
    step_time_s: Callable[[Plan], float | None] = lambda plan: None,
    max_gpus: int | None = None,
    limit_share: float = SHARE_FITS,
) -> WhyNot | None:
    """Explain a plan that does not fit; None where it does.

    Args:
        architecture: the model.
        stack: the software.
        plan: how the model is spread.
        device_memory_bytes: memory of one device.
        seq_length: tokens of one sequence.
        is_valid: whether the framework would start a plan.
        step_time_s: step time of a plan, to price each change.
        max_gpus: largest number of GPUs a change may use; four times the plan's when None.
        limit_share: of what the context leaves, that the peak may take.
    """
    stage = _heaviest(memory_breakdown(architecture, stack, plan, seq_length=seq_length))
    judged = verdict(
        stage.peak_bytes, device_memory_bytes, stack, stage.reserved_bytes, limit_share=limit_share
    )
    limit = memory_limit_bytes(device_memory_bytes, stack, limit_share)
    if judged.peak_bytes <= limit:
        return None
    before = step_time_s(plan)
    ceiling = max_gpus or 4 * plan.gpus

    def usable(candidate: Plan) -> bool:
        return (
            candidate.gpus <= ceiling
            and is_valid(candidate)
            and _peak(architecture, stack, candidate, seq_length) <= limit
        )

    found = [fix for knob in KNOBS if (fix := _first(_changes(plan, knob), usable)) is not None]
    if len(found) < _ENOUGH:
        # Few single changes suffice: two knobs, the second starting where the first ended.
        alone = {knob for knobs, _ in found for knob in knobs}
        left = [knob for knob in KNOBS if knob not in alone]
        found += [
            fix
            for i, one in enumerate(left)
            for other in left[i + 1 :]
            if (fix := _first(_pairs(plan, one, other), usable)) is not None
        ]
    fixes = []
    for knobs, changed in found:
        seconds = step_time_s(changed)
        cost = seconds / before - 1.0 if seconds is not None and before else None
        fixes.append(
            Fix(
                knobs=knobs,
                change=describe(plan, changed),
                plan=changed,
                peak_bytes=_peak(architecture, stack, changed, seq_length),
                step_time_s=seconds,
                step_time_cost=cost,
            )
        )
    fixes.sort(key=lambda fix: (fix.plan.gpus, fix.step_time_s or 0.0))
    return WhyNot(
        verdict=judged,
        stage=stage,
        over_bytes=judged.peak_bytes - limit,
        breaking_item=breaking_item(stage, limit),
        fixes=tuple(fixes),
    )


def breaking_item(stage: StageBreakdown, limit_bytes: float) -> str:
    """Return the item at which the running sum passes the limit.

    Args:
        stage: a stage over the limit.
        limit_bytes: the limit.
    """
    total = 0.0
    for name in _ORDER:
        total += stage.items_bytes.get(name, 0.0)
        if total > limit_bytes:
            return name
    return max(stage.items_bytes, key=lambda name: stage.items_bytes[name])


def describe(before: Plan, after: Plan) -> str:
    """Return the differences of two plans in words.

    Args:
        before: the plan as it was.
        after: the changed plan.
    """
    fields = ("recompute", "sharding", "micro_batch_size", "tp", "cp", "pp", "dp")
    parts = [
        f"{name} {getattr(before, name)} → {getattr(after, name)}"
        for name in fields
        if getattr(before, name) != getattr(after, name)
    ]
    if before.gpus != after.gpus:
        parts.append(f"GPUs {before.gpus} → {after.gpus}")
    return ", ".join(parts)


Found = tuple[tuple[str, ...], "Plan"]


def _first(candidates: Iterator[Found], usable: Callable[[Plan], bool]) -> Found | None:
    return next((found for found in candidates if usable(found[1])), None)


def _pairs(plan: Plan, one: str, other: str) -> Iterator[Found]:
    for _, half in _changes(plan, one):
        for _, whole in _changes(half, other):
            yield (one, other), whole


def _changes(plan: Plan, knob: str) -> Iterator[Found]:
    """Yield plans with one knob turned, nearest first; the batch stays as it is."""
    for values in _settings(plan, knob):
        try:
            yield (knob,), replace(plan, **values)  # type: ignore[arg-type]
        except UserInputError:
            continue


def _settings(plan: Plan, knob: str) -> Iterator[dict[str, object]]:
    if knob == "recompute":
        for name in RECOMPUTE[RECOMPUTE.index(plan.recompute) + 1 :]:
            yield {"recompute": name}
    elif knob == "sharding":
        for name in SHARDING[SHARDING.index(plan.sharding) + 1 :]:
            yield {"sharding": name}
    elif knob == "micro-batch":
        for size in range(plan.micro_batch_size - 1, 0, -1):
            yield {"micro_batch_size": size}
    elif knob == "gpus":
        for factor in (2, 3, 4, 8, 16):
            yield {"dp": plan.dp * factor}
            # Where the batch allows no more replicas, more GPUs mean more stages.
            yield {"pp": plan.pp * factor}
    else:
        # More of one degree, fewer replicas, on the same GPUs.
        for factor in (2, 4, 8, 16, 32):
            if plan.dp % factor == 0:
                turned: dict[str, object] = {
                    knob: getattr(plan, knob) * factor,
                    "dp": plan.dp // factor,
                }
                if knob == "tp" and plan.tp == 1:
                    turned["sequence_parallel"] = True
                yield turned


def _heaviest(stages: list[StageBreakdown]) -> StageBreakdown:
    return next(stage for stage in stages if stage.heaviest)


def _peak(architecture: Architecture, stack: Stack, plan: Plan, seq_length: int) -> float:
    return _heaviest(memory_breakdown(architecture, stack, plan, seq_length=seq_length)).peak_bytes
