"""What the case studies share: Markdown tables, versions, plans on node counts."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain import __version__
from vtrain.enumeration import default_space, enumerate_plans
from vtrain.estimate import estimate

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.estimate import Estimate
    from vtrain.hardware import Cluster
    from vtrain.plan import PlanTable
    from vtrain.stack import Stack


def markdown(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Return rows as a Markdown table.

    Args:
        rows: values by name.
        columns: name to heading, in order.
    """
    lines = [f"| {' | '.join(columns.values())} |", f"|{'---:|' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


def versions(command: str) -> str:
    """Return the line that says how a file was made."""
    return (
        f"Command: `{command}`; nothing is random; vtrain {__version__}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}.\n"
    )


def all_plans(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    *,
    seq_length: int,
    gpus: list[int],
    global_batch_size: int,
    recompute: tuple[str, ...],
    batch_tolerance: float = 0.0,
) -> tuple[PlanTable, Estimate]:
    """Return every valid plan of some GPU counts, with its figures."""
    space = replace(
        default_space(cluster, stack, batch_tolerance=batch_tolerance), recompute=recompute
    )
    plans, _ = enumerate_plans(
        architecture, replace(cluster, max_gpus=max(cluster.max_gpus, *gpus)), stack=stack,
        seq_length=seq_length, gpus=np.array(gpus),
        global_batch_size=np.full(len(gpus), global_batch_size), space=space,
    )  # fmt: skip
    return plans, estimate(architecture, cluster, stack, plans, seq_length=seq_length)


def plan_name(plans: PlanTable, row: int) -> str:
    """Return (t, d, p) as the paper writes it."""
    return f"({plans.tp[row]}, {plans.dp[row]}, {plans.pp[row]})"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return str(value)
