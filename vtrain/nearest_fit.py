"""The nearest way to plans that fit, where none of the enumerated ones does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.enumeration import enumerate_plans
from vtrain.estimate import estimate
from vtrain.plan import SHARDING
from vtrain.validity import whole_nodes_mask

if TYPE_CHECKING:
    from vtrain.cli_options import Setting
    from vtrain.enumeration import PlanSpace

# Beyond so many times the GPUs asked for, the answer is another question.
_REACH = 16


def describe_space(space: PlanSpace) -> str:
    """Return in words what was enumerated of the choices a user may not have thought of."""
    return f"recompute {_either(space.recompute)}; sharding {_either(space.sharding)}"


def nearest_fit(
    setting: Setting, gpus: tuple[int, ...], global_batch_size: int, space: PlanSpace
) -> str:
    """Return the option that brings plans that fit: more sharding first, then more GPUs.

    Args:
        setting: architecture, cluster, stack, sequence length, memory limit.
        gpus: counts on which nothing of the space fits.
        global_batch_size: sequences of a step.
        space: what was enumerated.
    """
    more = SHARDING[1 + max(SHARDING.index(name) for name in space.sharding) :]
    wider = [replace(space, sharding=(name,)) for name in more]
    for candidate in wider:
        found = _fitting(setting, gpus, global_batch_size, candidate)
        if found is not None:
            count, plans, step_time_s = found
            on = f" on {count} GPUs" if len(gpus) > 1 else ""
            return (
                f"--sharding {candidate.sharding[0]} has {plans:,} that fit{on}, the fastest at "
                f"{step_time_s:.4g} s"
            )
    for count in _larger(setting, max(gpus)):
        for candidate in (space, *wider):
            found = _fitting(setting, (count,), global_batch_size, candidate)
            if found is not None:
                sharding = "" if candidate is space else f" --sharding {candidate.sharding[0]}"
                return (
                    f"--gpus {count}{sharding} has {found[1]:,} that fit, the fastest at "
                    f"{found[2]:.4g} s"
                )
    return "no more sharding and no more GPUs help; --all shows the plans"


def _larger(setting: Setting, gpus: int) -> list[int]:
    """Return larger GPU counts to try: every one of the next nodes, then in wider steps."""
    node = setting.cluster.gpus_per_node
    inside = [count for count in (1, 2, 4, 8, 16) if gpus < count < node]
    nodes = max(1, gpus // node)
    steps = [nodes + 1, nodes + 2, nodes + 3, *(nodes * k for k in (2, 3, 4, 6, 8, 12, _REACH))]
    counts = np.array(sorted({*inside, *(node * n for n in steps)}), dtype=np.int64)
    valid = whole_nodes_mask(setting.cluster, counts) & (counts > gpus)
    return [int(count) for count in counts[valid]]


def _fitting(
    setting: Setting, gpus: tuple[int, ...], global_batch_size: int, space: PlanSpace
) -> tuple[int, int, float] | None:
    """Return the least GPU count with plans that fit, their number and the shortest step time."""
    from vtrain.ranking import verdict_codes

    plans, _ = enumerate_plans(
        setting.architecture, setting.cluster, stack=setting.stack, seq_length=setting.seq_length,
        gpus=np.array(gpus), global_batch_size=np.full(len(gpus), global_batch_size), space=space,
    )  # fmt: skip
    if not len(plans):
        return None
    result = estimate(
        setting.architecture, setting.cluster, setting.stack, plans,
        seq_length=setting.seq_length, site=setting.site,
        memory_limit_share=setting.memory_limit_share,
    )  # fmt: skip
    word = verdict_codes(
        result.mem_peak_bytes, setting.cluster.device.memory_bytes, setting.stack,
        setting.memory_limit_share,
    )  # fmt: skip
    if not (word == 0).any():
        return None
    least = int(plans.gpus[word == 0].min())
    here = (word == 0) & (plans.gpus == least)
    return least, int(here.sum()), float(result.step_time_s[here].min())


def _either(names: tuple[str, ...]) -> str:
    """Return `a, b or c`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"
