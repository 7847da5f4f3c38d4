"""Where a step goes against the ideal: one list of parts that sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.design import Design
from vtrain.operators.workload import device_precision
from vtrain.simulate import PLAYED_TASKS, simulate
from vtrain_search.alternatives.setting import setting_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain.cli_options import Setting
    from vtrain.plan import Plan
    from vtrain.simulation.timeline import Timeline
    from vtrain_search.problem import Case, Problem

IDEAL, KERNELS = "ideal", "kernels"
WORDS = {
    IDEAL: "model FLOPs at the dense peak",
    KERNELS: "kernels below the peak",
    "recompute": "recomputation",
    "tensor-parallel": "tensor-parallel traffic",
    "data-parallel": "gradient and parameter traffic",
    "send": "traffic between stages",
    "optimizer": "optimizer",
    "host": "host",
    "bubble": "pipeline bubble",
}
"""Parts in the order of a waterfall, in words."""
_COMPUTE = ("forward", "backward", "weight-gradient")


def play(setting: Setting, plan: Plan, *, played_tasks: int = PLAYED_TASKS) -> Timeline:
    """Return the played step of a plan.

    Args:
        setting: model, cluster, stack, site.
        plan: the plan.
        played_tasks: tasks above which repetitions are skipped.
    """
    return simulate(
        setting.architecture, setting.cluster, setting.stack, plan,
        seq_length=setting.seq_length, site=setting.site, played_tasks=played_tasks,
    )  # fmt: skip


def step_parts(setting: Setting, timeline: Timeline) -> dict[str, float]:
    """Return seconds of a step by the keys of WORDS, averaged over pipeline ranks.

    Every rank's breakdown sums to the step, so their mean does too. Model FLOPs (causal attention
    at full s^2, as MFU counts) over the peak of all GPUs are the ideal; what forward and backward
    take beyond it is lost in kernels.

    Args:
        setting: model, cluster, stack.
        timeline: the played step.
    """
    mean = {name: float(np.mean(seconds)) for name, seconds in timeline.breakdown_s.items()}
    plan = timeline.plan
    peak = setting.cluster.device.peak_flops[device_precision(setting.cluster, setting.stack)]
    tokens = plan.global_batch_size * setting.seq_length
    flops = tokens * setting.architecture.training_flops_per_token(setting.seq_length)
    ideal_s = flops / (plan.gpus * peak)
    parts = {name: mean.get(name, 0.0) for name in WORDS}
    parts[IDEAL] = ideal_s
    parts[KERNELS] = sum(mean[name] for name in _COMPUTE) - ideal_s
    return parts


def step_shares(problem: Problem, case: Case, row: Mapping[str, Any]) -> dict[str, float]:
    """Return `step_parts` of a row as shares (0-1) of its step."""
    setting = setting_of(problem, case, row)
    timeline = play(setting, Design.from_row(row).plan)
    parts = step_parts(setting, timeline)
    return {name: seconds / timeline.step_time_s for name, seconds in parts.items()}
