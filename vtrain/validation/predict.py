"""Predictions for many measured rows: rows that share everything but the plan go as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.estimate import step_seconds
from vtrain.plan import PlanTable
from vtrain.site import SHIPPED, SiteFactors
from vtrain.validation.setup import cluster_of
from vtrain.validation.stacks import stack_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack
    from vtrain.validation.setup import Setup

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Rows that are estimated in one call, and where they came from."""

    architecture: Architecture
    cluster: Cluster
    stack: Stack
    seq_length: int
    plans: PlanTable
    rows: npt.NDArray[np.int64]


def batches(setups: Sequence[Setup]) -> list[Batch]:
    """Group rows by everything but the plan."""
    members: dict[tuple[object, ...], list[int]] = {}
    for row, setup in enumerate(setups):
        key = (setup.architecture, setup.cluster, setup.stack, setup.seq_length)
        members.setdefault(key, []).append(row)
    out = []
    for rows in members.values():
        first = setups[rows[0]]
        out.append(
            Batch(
                architecture=first.architecture,
                cluster=cluster_of(first.cluster),
                stack=stack_of(first.stack),
                seq_length=first.seq_length,
                plans=PlanTable.from_plans([setups[row].plan for row in rows]),
                rows=np.array(rows, dtype=np.int64),
            )
        )
    return out


def predicted_seconds(groups: Sequence[Batch], count: int, site: SiteFactors = SHIPPED) -> Array:
    """Return the step time of every row, [count]."""
    out = np.full(count, np.nan)
    for batch in groups:
        out[batch.rows] = step_seconds(
            batch.architecture, batch.cluster, batch.stack, batch.plans,
            seq_length=batch.seq_length, site=site,
        )  # fmt: skip
    return out
