"""Step time and memory of a whole table of plans, in closed form.

The cost of a row does not grow with its layers, GPUs or micro-batches: what depends on the
shape of the work (tp, cp, micro-batch) is computed once for each distinct shape and gathered.
What it leaves out, and `vtrain.simulate` plays, is listed at
`vtrain.schedule.pipeline.pipeline_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.interval import UNRELIABLE_SHARE, interval_multipliers
from vtrain.memory import memory_limit_bytes, peak_memory
from vtrain.memory_limit import SHARE_FITS
from vtrain.operators.workload import device_precision
from vtrain.pipeline_load import pipeline_load
from vtrain.schedule.pipeline import busiest_seconds, pipeline_seconds
from vtrain.schedule.stages import stage_layers
from vtrain.site import SHIPPED, SiteFactors
from vtrain.stage_costs import stage_costs

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.data_parallel import DataParallelCosts
    from vtrain.hardware import Cluster
    from vtrain.plan import PlanTable, Structure
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What a table of plans costs; arrays follow its rows.

    Attributes:
        step_time_s: seconds of one optimizer step, [n].
        pipeline_s: of it, from the first forward to the last backward.
        bubble_s: of it, the time the busiest pipeline rank waits.
        data_parallel_s: of it, gradient and parameter traffic that compute does not hide.
        optimizer_s: of it, the optimizer.
        host_s: of it, seconds that depend on nothing.
        mem_peak_bytes: allocated peak on the heaviest rank, [n].
        mem_limit_bytes: what may be allocated.
        mem_device_bytes: what the device has.
        mfu: model FLOPs utilisation against the dense peak, causal attention at full s^2, [n].
        tokens_per_s: tokens the whole cluster trains on in a second, [n].
        step_time_log_sd: standard deviation of log(measured / predicted) step time.
    """

    step_time_s: Array
    pipeline_s: Array
    bubble_s: Array
    data_parallel_s: Array
    optimizer_s: Array
    host_s: float
    mem_peak_bytes: Array
    mem_limit_bytes: float
    mem_device_bytes: float
    mfu: Array
    tokens_per_s: Array
    step_time_log_sd: float

    @property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Which plans stay below the memory limit, [n]."""
        return self.mem_peak_bytes <= self.mem_limit_bytes

    @property
    def time_unreliable(self) -> npt.NDArray[np.bool_]:
        """Which plans come so close to the device's memory that step time is not to be trusted."""
        return self.mem_peak_bytes > UNRELIABLE_SHARE * self.mem_device_bytes

    @property
    def step_time_interval_s(self) -> tuple[Array, Array]:
        """90 % interval of the step time: two arrays [n], wider on the slow side."""
        low, high = interval_multipliers(self.step_time_log_sd)
        return self.step_time_s * low, self.step_time_s * high


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The rows of one structure, sizes as float64."""

    structure: Structure
    tp: Array
    cp: Array
    pp: Array
    dp: Array
    virtual_stages: Array
    micro_batch_size: Array
    num_micro_batches: Array


def estimate(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    plans: PlanTable,
    *,
    seq_length: int,
    site: SiteFactors = SHIPPED,
    memory_limit_share: float = SHARE_FITS,
) -> Estimate:
    """Return step time and memory of every plan.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        plans: valid plans, any mix of structures.
        seq_length: tokens of a sequence.
        site: factors of the real machine.
        memory_limit_share: of what the context leaves, that the allocated peak may take.

    Returns:
        Arrays in the order of the table.
    """
    count = len(plans)
    parts = {name: np.empty(count) for name in ("pipe", "bubble", "dp", "opt")}
    mem_peak_bytes = np.empty(count)
    for structure, rows in plans.groups():
        group = _group(structure, plans, rows)
        _fill_time(parts, rows, _group_time(architecture, cluster, stack, site, group, seq_length))
        mem_peak_bytes[rows] = peak_memory(
            architecture, stack, structure, tp=group.tp, cp=group.cp, pp=group.pp, dp=group.dp,
            virtual_stages=group.virtual_stages, micro_batch_size=group.micro_batch_size,
            num_micro_batches=group.num_micro_batches, seq_length=seq_length,
        ).peak_bytes  # fmt: skip
    host_s = stack.host.step_s * site.host
    step_time_s = parts["pipe"] + parts["dp"] + parts["opt"] + host_s
    tokens_per_s = plans.global_batch_size * float(seq_length) / step_time_s
    peak = cluster.device.peak_flops[device_precision(cluster, stack)]
    flops = architecture.training_flops_per_token(seq_length)
    return Estimate(
        step_time_s=step_time_s,
        pipeline_s=parts["pipe"],
        bubble_s=parts["bubble"],
        data_parallel_s=parts["dp"],
        optimizer_s=parts["opt"],
        host_s=host_s,
        mem_peak_bytes=mem_peak_bytes,
        mem_limit_bytes=memory_limit_bytes(cluster.device.memory_bytes, stack, memory_limit_share),
        mem_device_bytes=cluster.device.memory_bytes,
        mfu=tokens_per_s * (flops / peak) / plans.gpus,
        tokens_per_s=tokens_per_s,
        step_time_log_sd=stack.time_log_sd,
    )


def step_seconds(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    plans: PlanTable,
    *,
    seq_length: int,
    site: SiteFactors = SHIPPED,
) -> Array:
    """Return only the step time of every plan, [n]; arguments as `estimate`.

    Calibration calls it many times and has no use for memory.
    """
    parts = {name: np.empty(len(plans)) for name in ("pipe", "bubble", "dp", "opt")}
    for structure, rows in plans.groups():
        group = _group(structure, plans, rows)
        _fill_time(parts, rows, _group_time(architecture, cluster, stack, site, group, seq_length))
    seconds: Array = parts["pipe"] + parts["dp"] + parts["opt"] + stack.host.step_s * site.host
    return seconds


def _group(structure: Structure, plans: PlanTable, rows: IntArray) -> _Group:
    """Return the sizes of some rows as float64."""
    return _Group(
        structure=structure,
        tp=plans.tp[rows].astype(np.float64),
        cp=plans.cp[rows].astype(np.float64),
        pp=plans.pp[rows].astype(np.float64),
        dp=plans.dp[rows].astype(np.float64),
        virtual_stages=plans.virtual_stages[rows].astype(np.float64),
        micro_batch_size=plans.micro_batch_size[rows].astype(np.float64),
        num_micro_batches=plans.num_micro_batches[rows].astype(np.float64),
    )


def _fill_time(
    parts: dict[str, Array], rows: IntArray, time: tuple[Array, Array, DataParallelCosts]
) -> None:
    """Write the seconds of one group into the columns of the table."""
    pipeline_s, busy_s, traffic = time
    parts["pipe"][rows] = pipeline_s
    parts["bubble"][rows] = np.maximum(pipeline_s - busy_s, 0.0)
    parts["dp"][rows] = traffic.exposed_s
    parts["opt"][rows] = traffic.optimizer_s


def _group_time(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    site: SiteFactors,
    group: _Group,
    seq_length: int,
) -> tuple[Array, Array, DataParallelCosts]:
    """Return pipeline seconds, busiest rank's busy seconds and data-parallel costs of a group."""
    layers = stage_layers(architecture, stack.layer_split, group.pp.astype(np.int64))
    cost = stage_costs(
        architecture, cluster, stack, site, group.structure, layers, seq_length=seq_length,
        tp=group.tp, cp=group.cp, pp=group.pp, dp=group.dp,
        micro_batch_size=group.micro_batch_size, num_micro_batches=group.num_micro_batches,
    )  # fmt: skip
    load = pipeline_load(
        architecture, cluster, stack, group.structure, layers, cost, tp=group.tp, cp=group.cp,
        pp=group.pp, dp=group.dp, virtual_stages=group.virtual_stages,
    )  # fmt: skip
    pipeline_s = pipeline_seconds(
        group.structure.schedule, load, pp=group.pp, virtual_stages=group.virtual_stages,
        num_micro_batches=group.num_micro_batches,
    )  # fmt: skip
    return pipeline_s, busiest_seconds(load, group.pp) * group.num_micro_batches, cost.traffic
