"""One plan's step as a trace file, with the memory counter; the command and the API write this."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vtrain.simulate import PLAYED_TASKS, simulate
from vtrain.trace import RankMemory, write_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vtrain.cli_options import Setting
    from vtrain.plan import Plan
    from vtrain.simulation.timeline import Timeline


def trace_step(
    setting: Setting,
    plan: Plan,
    path: str | Path,
    *,
    ranks: Sequence[int] | None = None,
    full: bool = False,
) -> tuple[Timeline, int]:
    """Play a step and write it for Perfetto, with what each rank holds.

    Args:
        setting: what is trained, where and with what.
        plan: how it is spread.
        path: file to write.
        ranks: pipeline ranks to draw; the ends and the middle of a long pipeline when None.
        full: draw every micro-batch of a long step.

    Returns:
        The played step, and how many events the file holds.

    Raises:
        UserInputError: a file that cannot be written, or an unknown rank.
    """
    timeline = simulate(
        setting.architecture, setting.cluster, setting.stack, plan,
        seq_length=setting.seq_length, site=setting.site,
        played_tasks=sys.maxsize if full else PLAYED_TASKS,
    )  # fmt: skip
    return timeline, write_trace(path, timeline, ranks=ranks, memory=rank_memory(setting, plan))


def rank_memory(setting: Setting, plan: Plan) -> dict[int, RankMemory]:
    """Return what each pipeline rank holds, from the memory model."""
    from vtrain.memory.breakdown import every_stage

    stages, held = every_stage(
        setting.architecture, setting.stack, plan, seq_length=setting.seq_length
    )
    rows = [stages.row(rank) for rank in range(plan.pp)]
    return {
        rank: RankMemory(
            standing_bytes=float(row.standing),
            chunk_bytes=float(row.activations) / (float(held[rank]) * plan.virtual_stages),
        )
        for rank, row in enumerate(rows)
    }
