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
    from collections.abc import Iterator

    from vtrain.cli_options import Setting
    from vtrain.enumeration import PlanSpace

_OPTIONS = {
    "tp": "tp", "pp": "pp", "virtual_stages": "vpp", "micro_batch_size": "micro-batch",
    "recompute": "recompute",
}  # fmt: skip
_MORE_CP = (2, 4, 8)
# Beyond so many times the GPUs asked for, the answer is another question.
_REACH = 16


def describe_space(space: PlanSpace) -> str:
    """Return in words what was enumerated of the choices a user may not have thought of."""
    cp = _either(tuple(map(str, space.cp)))
    return f"recompute {_either(space.recompute)}; sharding {_either(space.sharding)}; cp {cp}"


def nearest_fit(
    setting: Setting, gpus: tuple[int, ...], global_batch_size: int, space: PlanSpace
) -> str:
    """Return the options that bring plans that fit: on the same GPUs first, then on more.

    Args:
        setting: architecture, cluster, stack, sequence length, memory limit.
        gpus: counts on which nothing of the space fits.
        global_batch_size: sequences of a step.
        space: what was enumerated.
    """
    wider = list(_wider(setting, space))
    for words, candidate in wider:
        found = _fitting(setting, gpus, global_batch_size, candidate)
        if found is not None:
            on = f" on {found[0]} GPUs" if len(gpus) > 1 else ""
            return f"{words} has {_how_many(found)}{on}"
    for count in _larger(setting, max(gpus)):
        for words, candidate in [("", space), *wider]:
            found = _fitting(setting, (count,), global_batch_size, candidate)
            if found is not None:
                more = f"--gpus {count} {words}".rstrip()
                return f"{more} has {_how_many(found)}"
    return "no more sharding, cp or GPUs help; --all shows the plans"


def _wider(setting: Setting, space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    """Yield options that enumerate other plans: more sharding, more cp, a pin fewer, none."""
    from vtrain.ranking import plan_space

    more = SHARDING[1 + max(SHARDING.index(name) for name in space.sharding) :]
    for name in more:
        yield f"--sharding {name}", replace(space, sharding=(name,))
    for cp in _MORE_CP:
        if cp > max(space.cp):
            yield f"--cp {cp}", replace(space, cp=(cp,))
    usual = plan_space(setting)
    free = {
        field: getattr(usual, field)
        for field in _OPTIONS
        if getattr(space, field) != getattr(usual, field)
    }
    for field, values in free.items():
        yield f"without --{_OPTIONS[field]} the request", replace(space, **{field: values})
    if free:
        options = " and ".join(f"--{_OPTIONS[field]}" for field in free)
        freed = replace(space, **free)
        if len(free) > 1:
            yield f"without {options} the request", freed
        for name in more:
            yield f"--sharding {name} without {options}", replace(freed, sharding=(name,))


def _how_many(found: tuple[int, int, float]) -> str:
    return f"{found[1]:,} that fit, the fastest at {found[2]:.4g} s"


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
