"""What a run was worth: figures of the workload and of each job."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.tenancy.placement import ranges
from vtrain.tenancy.state import DONE, REJECTED

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Outcome
    from vtrain.tenancy.state import JobState

METRICS = (
    "deadline_ratio", "completion_mean_s", "completion_p95_s", "makespan_s", "utilisation",
    "cost_usd", "rejected",
)  # fmt: skip
# Dates are sums of many floats; a millisecond is no missed deadline.
_SAME_S = 1e-3


def met_deadline(state: JobState) -> bool:
    """Return whether a job was done in time."""
    return state.status == DONE and state.finished <= state.job.deadline_s + _SAME_S


def summarise(
    outcome: Outcome, *, gpus_per_node: int, price_usd_per_gpu_hour: float
) -> dict[str, Any]:
    """Return the figures of a run.

    Args:
        outcome: what happened.
        gpus_per_node: GPUs of a node.
        price_usd_per_gpu_hour: price of one GPU for one hour.

    Returns:
        `deadline_ratio`: jobs done in time over jobs with a deadline, None without any;
        `completion_*_s`: from arrival to completion over the jobs done; `makespan_s`: from first
        arrival to last completion; `utilisation`: GPU time held by jobs over GPU time of the
        cluster in the makespan; `training_share`: of the time held, what trained; `cost_usd`: of
        the GPU time held by jobs, `cluster_cost_usd`: of the whole cluster over the makespan.
    """
    states = outcome.states
    done = [s for s in states if s.status == DONE]
    dated = [s for s in states if s.job.has_deadline]
    times = np.array([s.finished - s.job.arrival_s for s in done])
    first = min(s.job.arrival_s for s in states)
    makespan = max((s.finished for s in done), default=first) - first
    held = sum(s.node_s for s in states)
    trained = sum(s.trained_s * s.node_s / max(s.node_s, 1e-300) for s in states if s.node_s)
    whole = outcome.cluster_nodes * makespan
    price_usd_per_node_s = price_usd_per_gpu_hour * gpus_per_node / 3600.0
    return {
        "deadline_ratio": sum(map(met_deadline, dated)) / len(dated) if dated else None,
        "completion_mean_s": float(times.mean()) if len(times) else None,
        "completion_p95_s": float(np.percentile(times, 95)) if len(times) else None,
        "makespan_s": makespan,
        "utilisation": held / whole if whole else 0.0,
        "cost_usd": held * price_usd_per_node_s,
        "cluster_cost_usd": whole * price_usd_per_node_s,
        "rejected": sum(s.status == REJECTED for s in states),
        "completed": len(done),
        "jobs": len(states),
        "moves": sum(s.moves for s in states),
        "failures": sum(s.failures for s in states),
        "training_hours": trained / 3600.0,
    }


def job_rows(outcome: Outcome, *, gpus_per_node: int) -> list[dict[str, Any]]:
    """Return one row a job, in the order handed in; dates in seconds, None where none."""
    return [
        {
            "job": s.job.name,
            "model": s.job.model,
            "status": s.status,
            "arrival_s": s.job.arrival_s,
            "deadline_s": _or_none(s.job.deadline_s),
            "started_s": _or_none(s.started),
            "finished_s": _or_none(s.finished),
            "met_deadline": met_deadline(s) if s.job.has_deadline else None,
            "gpus_asked": s.job.gpus or None,
            "gpu_hours": s.node_s * gpus_per_node / 3600.0,
            "training_s": s.trained_s,
            "moves": s.moves,
            "failures": s.failures,
            "steps": s.job.steps,
        }
        for s in outcome.states
    ]


def segment_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Return one row for every stretch in which a job held the same nodes."""
    return [
        {
            "job": outcome.states[seg.job].job.name,
            "start_s": seg.start_s,
            "end_s": seg.end_s,
            "nodes": len(seg.nodes),
            "node_ranges": " ".join(f"{first}-{first + n - 1}" for first, n in ranges(seg.nodes)),
            "training_s": seg.trained_s,
            "steps": seg.steps,
        }
        for seg in outcome.segments
    ]


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Return rows as CSV text with a header; None becomes an empty cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
