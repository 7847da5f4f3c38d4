"""Do predicted verdicts separate plans that ran from plans that gave no result?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.memory.peak import peak_memory
from vtrain.memory.rows import row_architecture, row_plan
from vtrain.memory.sources import row_stack
from vtrain.memory.verdict import SHARE_TIGHT, memory_limit_bytes, safe_limit_bytes
from vtrain.plan import Plan, PlanTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy.typing as npt
    import pandas as pd

    from vtrain.architecture import Architecture
    from vtrain.stack import Stack

    Floats = npt.NDArray[np.float64]

H100_BYTES = 81_559 * 2.0**20  # total of an H100 SXM 80 GB board as nvidia-smi shows it
LARGEST_TRIED = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class NoResultScore:
    """How the memory verdict splits launched plans, in percent of each set.

    Attributes:
        ran: plans with a measured step.
        without_result: plans launched without one (out of memory, crash or time-out alike).
        ran_called_infeasible_pct: false alarms.
        infeasible_pct: plans without result called infeasible by memory alone.
        auc: chance that a plan without result is predicted heavier than one that ran.
        rule_pct: plans without result that break nanotron's rule grad_accum >= pp - 1.
        ran_rule_pct: plans that ran and break it.
        infeasible_obeying_rule_pct: called infeasible among those that obey the rule.
    """

    ran: int
    without_result: int
    ran_called_infeasible_pct: float
    infeasible_pct: float
    auc: float
    rule_pct: float
    ran_rule_pct: float
    infeasible_obeying_rule_pct: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatchScore:
    """Published micro-batches against the largest that the model says fits, in percent.

    Attributes:
        rows: plans judged.
        published_fits_pct: published plan not called out of memory.
        equal_pct: our largest is the published one.
        within_one_pct: differs by at most 1.
        within_quarter_pct: differs by at most max(1, 25 %).
        within_two_pct: lies within a factor of 2.
    """

    rows: int
    published_fits_pct: float
    equal_pct: float
    within_one_pct: float
    within_quarter_pct: float
    within_two_pct: float


def no_result_score(runs: pd.DataFrame, no_result: pd.DataFrame) -> NoResultScore:
    """Judge nanotron's launched plans by memory; nothing is fitted on them.

    Args:
        runs: published_runs.csv.
        no_result: nanotron_no_result.csv.
    """
    nano = runs[runs["run_id"].str.startswith("nano") & runs["peak_memory_gib"].notna()]
    ran = nano[~nano["notes"].str.contains("INCONSISTENT")].to_dict("records")
    by_model = {row["model_name"]: row for row in ran}
    lost = [
        {
            **by_model[row["model_name"]],
            **{
                k: row[k] for k in ("seq_len", "global_batch_seqs", "micro_batch", "tp", "pp", "dp")
            },
            "zero_stage_or_fsdp": f"zero{int(row['zero_stage'])}",
            "sequence_parallel": float(row["tp"] > 1),
        }
        for row in no_result.to_dict("records")
    ]
    good, bad = _peaks(ran), _peaks(lost)
    limit = memory_limit_bytes(H100_BYTES, row_stack(ran[0]), 1.0)
    broken = np.array([row_plan(r).num_micro_batches < row_plan(r).pp - 1 for r in lost])
    broken_ran = np.array([row_plan(r).num_micro_batches < row_plan(r).pp - 1 for r in ran])
    over = bad > limit
    return NoResultScore(
        ran=len(ran),
        without_result=len(lost),
        ran_called_infeasible_pct=float((good > limit).mean() * 100.0),
        infeasible_pct=float(over.mean() * 100.0),
        auc=area_under_curve(bad, good),
        rule_pct=float(broken.mean() * 100.0),
        ran_rule_pct=float(broken_ran.mean() * 100.0),
        infeasible_obeying_rule_pct=float(over[~broken].mean() * 100.0),
    )


def area_under_curve(positive: Floats, negative: Floats) -> float:
    """Chance that a value of the first set exceeds one of the second, ties counting half."""
    order = np.sort(negative)
    below = np.searchsorted(order, positive, side="left")
    up_to = np.searchsorted(order, positive, side="right")
    return float((below + up_to).mean() / (2.0 * len(negative)))


def _peaks(rows: Sequence[Mapping[str, Any]]) -> Floats:
    """Allocated peak of each row on its heaviest rank; rows of one model go as one table."""
    out = np.empty(len(rows))
    groups: dict[tuple[Architecture, int], list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault((row_architecture(row), int(row["seq_len"])), []).append(at)
    for (architecture, seq_length), members in groups.items():
        plans = PlanTable.from_plans([row_plan(rows[i]) for i in members])
        stack = row_stack(rows[members[0]])
        out[np.array(members)] = table_peaks(architecture, stack, plans, seq_length)
    return out


def table_peaks(
    architecture: Architecture, stack: Stack, plans: PlanTable, seq_length: int
) -> Floats:
    """Return the allocated peak of every plan of a table, [n].

    Args:
        architecture: the model.
        stack: the software.
        plans: any mix of structures.
        seq_length: tokens of one sequence.
    """
    out = np.empty(len(plans))
    for structure, at in plans.groups():
        part = plans.take(at)
        out[at] = peak_memory(
            architecture, stack, structure, tp=part.tp, cp=part.cp, pp=part.pp, dp=part.dp,
            virtual_stages=part.virtual_stages, micro_batch_size=part.micro_batch_size,
            num_micro_batches=part.num_micro_batches, seq_length=seq_length,
        ).peak_bytes  # fmt: skip
    return out


def micro_batch_score(runs: pd.DataFrame) -> MicroBatchScore:
    """Compare the micro-batches that llm-foundry published with the largest that fits.

    They were chosen by hand and near the limit (scripts/train/benchmarking/sweep.py), so each
    published plan fits and few could be much larger.

    Args:
        runs: published_runs.csv.
    """
    rows = runs[runs["run_id"].str.startswith("mpt")].to_dict("records")
    published = np.array([int(row["micro_batch"]) for row in rows])
    ours = np.array([_largest(row) for row in rows])
    fits = np.array([_fits(row, int(row["micro_batch"])) for row in rows])
    gap = np.abs(ours - published)
    ratio = np.maximum(ours, 1) / published
    return MicroBatchScore(
        rows=len(rows),
        published_fits_pct=float(fits.mean() * 100.0),
        equal_pct=float((gap == 0).mean() * 100.0),
        within_one_pct=float((gap <= 1).mean() * 100.0),
        within_quarter_pct=float((gap <= np.maximum(1, 0.25 * published)).mean() * 100.0),
        within_two_pct=float(((ratio <= 2.0) & (ratio >= 0.5)).mean() * 100.0),
    )


def _fits(row: Mapping[str, Any], micro_batch: int) -> bool:
    limit = memory_limit_bytes(_board_bytes(row), row_stack(row), SHARE_TIGHT)
    return bool(_peaks_by_micro_batch(row, [micro_batch])[0] <= limit)


def _largest(row: Mapping[str, Any]) -> int:
    sizes = list(range(1, LARGEST_TRIED + 1))
    limit = safe_limit_bytes(_board_bytes(row), row_stack(row))
    fits = _peaks_by_micro_batch(row, sizes) <= limit
    return int(np.flatnonzero(fits)[-1]) + 1 if fits.any() else 0


def _board_bytes(row: Mapping[str, Any]) -> float:
    return float(row["gpu_memory_gib"]) * 2.0**30


def _peaks_by_micro_batch(row: Mapping[str, Any], sizes: Sequence[int]) -> Floats:
    plan = row_plan(row)
    plans = [
        Plan(
            tp=plan.tp, pp=plan.pp, dp=plan.dp, micro_batch_size=size,
            global_batch_size=plan.dp * size, recompute=plan.recompute, sharding=plan.sharding,
        )
        for size in sizes
    ]  # fmt: skip
    table = PlanTable.from_plans(plans)
    return table_peaks(row_architecture(row), row_stack(row), table, int(row["seq_len"]))
