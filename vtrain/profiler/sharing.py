"""How much ranks on one machine slow each other's operators (CPUs: shared caches and memory).

GPUs have memory of their own, so nothing is measured there. On a CPU each operator runs on the
first rank alone and then on all ranks at once, the anchor beside it both times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.profiler.operators import LAYOUTS, Operator, plan_operators

if TYPE_CHECKING:
    from vtrain.profiler.group import Group
    from vtrain.profiler.timing import Call, Stopwatch

REPEATS = 7
BATCH_S = 0.01
PRODUCTS = 8
KERNELS = ("rms_norm[torch]", "swiglu_act[torch]", "residual_add", "adamw[torch fused]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """Time with all ranks busy over time alone, both at the speed of the anchor.

    Attributes:
        matrix: products.
        memory: memory-bound kernels.
    """

    matrix: float = 1.0
    memory: float = 1.0


def measure_sharing(group: Group, watch: Stopwatch) -> Sharing:
    """Measure both factors; every rank gets the same answer."""
    if group.runtime.cuda or group.size == 1:
        return Sharing()
    plan = plan_operators(group.runtime.facts.kind, group.runtime.facts.element_bytes, 30)
    products = [
        op for op in plan if op.table == "gemm" and op.columns["layout"] == LAYOUTS[0]
    ]  # fmt: skip
    products = sorted(products, key=lambda op: op.flops)[-2 * PRODUCTS :: 2]
    kernels = [op for op in plan if op.columns.get("op") in KERNELS and op.traffic_bytes > 4e6]
    return Sharing(matrix=_factor(group, watch, products), memory=_factor(group, watch, kernels))


def _factor(group: Group, watch: Stopwatch, operators: list[Operator]) -> float:
    """Return the geometric mean over operators, never below 1."""
    logs = [np.log(_ratio(group, watch, op.build(group.runtime))) for op in operators]
    return float(max(1.0, np.exp(np.mean(logs))))


def _ratio(group: Group, watch: Stopwatch, call: Call) -> float:
    call(0)
    # All ranks must leave together, so the first one's count holds for all.
    first = group.slowest(watch.seconds(call, 1))
    count = int(np.clip(BATCH_S / max(first, 1e-6), 1, 100))
    alone, together = np.empty(REPEATS), np.empty(REPEATS)
    for index in range(REPEATS):
        group.barrier()
        mine = _at_anchor(watch, call, count) if group.rank == 0 else 0.0
        alone[index] = group.slowest(mine)
        group.barrier()
        together[index] = group.mean(_at_anchor(watch, call, 2 * count))
    return float(np.median(together) / np.median(alone))


def _at_anchor(watch: Stopwatch, call: Call, count: int) -> float:
    before = watch.anchor()
    seconds = watch.seconds(call, count)
    return seconds / (0.5 * (before + watch.anchor()))
