"""Which input is most likely wrong when a calibration cannot explain its logs.

Each input is changed alone, by the factors people get wrong (GPUs for nodes, a batch per replica
for the whole one) or to the other shipped choices; what then predicts the measured steps is named.
Inputs that a log itself confirms are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.formats.logs.steady import step_time_s
from vtrain.plan import RECOMPUTE, Plan, PlanTable
from vtrain.presets import cluster_names, load_cluster, load_stack, stack_names
from vtrain.validity import Context, check_plan

if TYPE_CHECKING:
    from vtrain.cli_options import Setting
    from vtrain.formats.logs.steady import Steady

SCALES = (2.0, 0.5, 4.0, 0.25, 8.0, 0.125)
"""Eight GPUs a node, and powers of two: what counts are mistaken by."""

MATCH_PCT = 12.0
"""Mean error within which a changed input counts as explaining the steps: twice the zero-shot error
of the typical published source (6 %, results/validation)."""

SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """One input that, changed alone, makes the prediction meet the measurement.

    Attributes:
        change: option and values, for people.
        error_pct: mean absolute error of the predictions with it, in %.
    """

    change: str
    error_pct: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variant:
    """One changed input: `kind` is what a log may confirm."""

    kind: str
    change: str
    setting: Setting
    plans: list[Plan]


def suspects(setting: Setting, plans: Sequence[Plan], steady: Sequence[Steady]) -> list[Suspect]:
    """Return the inputs that explain the measured steps when changed alone, the likeliest first.

    Args:
        setting: what was said to be trained, where and with what.
        plans: of the logs that are off.
        steady: their measured steps.

    Returns:
        At most SHOWN; none where no single input explains the steps, or there are none.
    """
    if not plans:
        return []
    confirmed = set[str]().union(*(_confirmed(one) for one in steady))
    best: dict[str, Suspect] = {}
    for variant in _variants(setting, list(plans)):
        if variant.kind in confirmed:
            continue
        off = _error_pct(variant, steady)
        if off is None or off > MATCH_PCT:
            continue
        # One a kind: three old stacks say no more than one of them.
        if variant.kind not in best or off < best[variant.kind].error_pct:
            best[variant.kind] = Suspect(change=variant.change, error_pct=off)
    return sorted(best.values(), key=lambda one: one.error_pct)[:SHOWN]


def _error_pct(variant: _Variant, steady: Sequence[Steady]) -> float | None:
    """Return the mean absolute error; None where the framework would refuse the plan."""
    setting = variant.setting
    context = Context(
        architecture=setting.architecture, cluster=setting.cluster, stack=setting.stack,
        seq_length=setting.seq_length,
    )  # fmt: skip
    try:
        for plan in variant.plans:
            check_plan(context, plan)
        predicted = step_seconds(
            setting.architecture, setting.cluster, setting.stack,
            PlanTable.from_plans(variant.plans), seq_length=setting.seq_length, site=setting.site,
        )  # fmt: skip
    except UserInputError:
        return None
    # A log that prints rates only is read through the claimed batch, so it moves with the claim.
    measured = [
        float(np.median([
            step_time_s(
                line, tokens=float(plan.global_batch_size * setting.seq_length),
                samples=float(plan.global_batch_size), gpus=plan.gpus,
            )
            for line in one.lines
        ]))
        for plan, one in zip(variant.plans, steady, strict=True)
    ]  # fmt: skip
    return float(np.mean(100.0 * np.abs(predicted / np.array(measured) - 1.0)))


def _confirmed(steady: Steady) -> set[str]:
    """Return the inputs that a log prints itself, or that its time and rates agree on.

    Rates that do not agree with the claim are refused before (`plausible`).
    """
    out: set[str] = set()
    for line in steady.lines:
        if line.global_batch_size is not None or line.consumed_samples is not None:
            out.add("batch")
        if line.step_time_s is not None:
            if line.samples_per_s is not None:
                out.add("batch")
            if line.tokens_per_s is not None:
                out |= {"batch", "seq"}
            if line.tokens_per_s_per_gpu is not None:
                out |= {"batch", "seq", "gpus"}
    return out


def _variants(setting: Setting, plans: list[Plan]) -> Iterator[_Variant]:
    for scale in SCALES:
        for kind, option, name in (
            ("gpus", "--gpus", "dp"),
            ("batch", "--global-batch", "global_batch_size"),
            ("micro", "--micro-batch", "micro_batch_size"),
        ):
            changed = _scaled(plans, name, scale)
            if changed:
                field = "gpus" if name == "dp" else name
                values = [getattr(plan, field) for plan in changed]
                claimed = [getattr(plan, field) for plan in plans]
                change = f"{option} {_said(values)} instead of {_said(claimed)}"
                yield _Variant(kind=kind, change=change, setting=setting, plans=changed)
        length = setting.seq_length * scale
        if length >= 1.0 and length.is_integer():
            yield _Variant(
                kind="seq", change=f"--seq {length:.0f} instead of {setting.seq_length}",
                setting=replace(setting, seq_length=int(length)), plans=plans,
            )  # fmt: skip
    for recompute in RECOMPUTE:
        if any(plan.recompute != recompute for plan in plans):
            claimed_words = _said([plan.recompute for plan in plans])
            yield _Variant(
                kind="recompute", change=f"--recompute {recompute} instead of {claimed_words}",
                setting=setting, plans=[replace(plan, recompute=recompute) for plan in plans],
            )  # fmt: skip
    for name in cluster_names():
        if name != setting.cluster.name:
            yield _Variant(
                kind="cluster", change=f"--cluster {name} instead of {setting.cluster.name}",
                setting=replace(setting, cluster=load_cluster(name)), plans=plans,
            )  # fmt: skip
    for name in stack_names():
        if name != setting.stack.name:
            yield _Variant(
                kind="stack", change=f"--stack {name} instead of {setting.stack.name}",
                setting=replace(setting, stack=load_stack(name)), plans=plans,
            )  # fmt: skip


def _scaled(plans: list[Plan], name: str, scale: float) -> list[Plan]:
    """Return the plans with one size scaled; empty where one cannot be."""
    out = []
    for plan in plans:
        value = getattr(plan, name) * scale
        if value < 1.0 or not value.is_integer():
            return []
        change: dict[str, Any] = {name: int(value)}
        try:
            out.append(replace(plan, **change))
        except UserInputError:
            return []
    return out


def _said(values: Sequence[object]) -> str:
    return "/".join(dict.fromkeys(map(str, values)))
