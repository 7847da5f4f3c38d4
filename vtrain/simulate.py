"""The task graph of one plan: who does what when, and where the step goes.

Operator costs are those of the closed form (`vtrain.estimate`). Beyond it, the graph holds every
stage with its own layers, every boundary with its own link, gradient and parameter traffic of
each rank in the gaps its schedule leaves, and messages that share a NIC with that traffic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.schedule import make_schedule
from vtrain.schedule.tasks import BACKWARD, FORWARD, WEIGHT_GRADIENT
from vtrain.simulation.events import (
    DATA_PARALLEL,
    HOST,
    OPTIMIZER,
    PARTS,
    SPAN_KINDS,
    merge,
    step_events,
    task_events,
)
from vtrain.simulation.play import TaskTimes, play
from vtrain.simulation.rank_costs import rank_costs
from vtrain.simulation.replicas import first_tasks, last_tasks
from vtrain.simulation.timeline import Timeline
from vtrain.site import SHIPPED, SiteFactors

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.schedule import Schedule
    from vtrain.simulation.play import Played
    from vtrain.simulation.rank_costs import RankCosts
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]

# Tasks up to which every one is played: a second of work at most, and a trace one can still open.
PLAYED_TASKS = 50_000


def simulate(
    architecture: Architecture,
    cluster: Cluster,
    stack: Stack,
    plan: Plan,
    *,
    seq_length: int,
    site: SiteFactors = SHIPPED,
    played_tasks: int = PLAYED_TASKS,
    contention: bool = True,
) -> Timeline:
    """Play one step of one plan.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        plan: a valid plan.
        seq_length: tokens of a sequence.
        site: factors of the real machine.
        played_tasks: steps of at most so many tasks are played in full; in longer ones the
            repetitions of the settled pipeline are skipped, which changes nothing but rounding.
        contention: messages between stages share NICs with gradient and parameter traffic.
    """
    costs = rank_costs(architecture, cluster, stack, site, plan, seq_length)
    schedule = make_schedule(
        plan.schedule, ranks=plan.pp, chunks=plan.virtual_stages,
        micro_batches=plan.num_micro_batches,
    )  # fmt: skip
    wait_s, first_flight_s = first_tasks(costs, stack, contention=contention)
    # Weight gradients left for the end separate the last message from the reduction.
    tail_s, last_flight_s = last_tasks(
        costs, stack, plan.sharding, contention=contention and not schedule.splits_backward
    )
    times = TaskTimes(
        seconds=costs.parts_s.sum(axis=-1),
        forward_flight_s=costs.links.forward_flight_s,
        backward_flight_s=costs.links.backward_flight_s,
        first_wait_s=wait_s,
        first_flight_s=first_flight_s,
        last_flight_s=last_flight_s,
    )
    tasks = (3 if schedule.splits_backward else 2) * plan.num_micro_batches * costs.layers.size
    played = play(schedule, times, skip=tasks > played_tasks)
    return _close(plan, schedule, costs, played, wait_s, tail_s)


def _close(
    plan: Plan,
    schedule: Schedule,
    costs: RankCosts,
    played: Played,
    wait_s: Array,
    tail_s: Array,
) -> Timeline:
    """Add what happens once a step before and after the tasks, and take stock."""
    reduced = played.finish_s + tail_s
    tied_s = np.zeros(plan.pp)
    # Both owners of a tied table add their gradients once both have them.
    tied_s[[0, -1]] = costs.tied_s
    together = max(reduced[0], reduced[-1])
    # The norm of all gradients is known when the last rank has reduced its own.
    barrier = max(float(reduced.max()), together + costs.tied_s)
    optimized = barrier + float(costs.optimizer_s.max())
    step_time_s = optimized + costs.step_host_s
    first_start = np.array([played.start_s[played.rank == rank][0] for rank in range(plan.pp)])

    micro_batch = _micro_batch_seconds(costs)
    breakdown = {name: plan.num_micro_batches * each for name, each in micro_batch.items()}
    breakdown[SPAN_KINDS[DATA_PARALLEL]] += wait_s + tail_s + tied_s
    breakdown[SPAN_KINDS[OPTIMIZER]] += costs.optimizer_s
    breakdown[SPAN_KINDS[HOST]] += costs.step_host_s
    breakdown["bubble"] = step_time_s - np.sum(list(breakdown.values()), axis=0)

    everywhere = np.ones(plan.pp)
    return Timeline(
        plan=plan,
        schedule=schedule,
        step_time_s=step_time_s,
        pipeline_s=float(played.finish_s.max()),
        breakdown_s=breakdown,
        micro_batch_s=micro_batch,
        layers=costs.layers,
        events=merge(
            task_events(played, costs.parts_s),
            step_events(DATA_PARALLEL, first_start - wait_s, wait_s),
            step_events(DATA_PARALLEL, played.finish_s, tail_s),
            step_events(DATA_PARALLEL, together * everywhere, tied_s),
            step_events(OPTIMIZER, barrier * everywhere, costs.optimizer_s),
            step_events(HOST, optimized * everywhere, costs.step_host_s * everywhere),
        ),
        skips=played.skips,
        played=played,
    )


def _micro_batch_seconds(costs: RankCosts) -> dict[str, Array]:
    """Return the seconds of one micro-batch by kind of span, each [ranks]."""
    seconds = {name: np.zeros(len(costs.layers)) for name in SPAN_KINDS}
    for task_kind in (FORWARD, BACKWARD, WEIGHT_GRADIENT):
        for part, span_kind in enumerate(PARTS):
            name = SPAN_KINDS[task_kind if span_kind < 0 else span_kind]
            seconds[name] += costs.parts_s[task_kind, :, :, part].sum(axis=1)
    return seconds
