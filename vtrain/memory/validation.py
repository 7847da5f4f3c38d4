"""Predicted against measured peak memory, by source, zero-shot and few-shot."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.memory.calibration import fit_memory_site
from vtrain.memory.rows import (
    Case,
    Parts,
    case_or_reason,
    predicted_parts,
    tensor_parallel_modes,
)
from vtrain.memory.sources import Row, source_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pandas as pd

    Ints = npt.NDArray[np.int64]

FEW_SHOT_ROWS = 8
FEW_SHOT_LEAST_ROWS = 24
DRAWS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRow:
    """One measured row with our prediction of the same quantity."""

    run_id: str
    group: str
    case: Case
    parts: Parts
    measured_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryScore:
    """Errors of one group, in percent; (predicted - measured) / measured.

    Few-shot figures are medians over the draws; None where the group is too small.
    """

    group: str
    quantity: str
    rank: str
    rows: int
    mape_pct: float
    median_pct: float
    p90_pct: float
    worst_pct: float
    bias_pct: float
    log_sd: float
    few_shot: str = ""
    few_mape_pct: float | None = None
    few_mape_p90_of_draws_pct: float | None = None
    few_p90_pct: float | None = None
    few_bias_pct: float | None = None


def memory_rows(runs: pd.DataFrame) -> tuple[list[JudgedRow], dict[str, Counter[str]]]:
    """Predict every row with a measured peak.

    Args:
        runs: columns of published_runs.csv.

    Returns:
        The judged rows, and for each source how many rows were skipped for which reason.
    """
    judged: list[JudgedRow] = []
    skipped: dict[str, Counter[str]] = {}
    for row in runs[runs["peak_memory_gib"].notna()].to_dict("records"):
        case = case_or_reason(row)
        if isinstance(case, str):
            skipped.setdefault(source_name(row), Counter())[case] += 1
            continue
        judged.append(
            JudgedRow(
                run_id=str(row["run_id"]),
                group=_group(row, case),
                case=case,
                parts=predicted_parts(case),
                measured_bytes=row["peak_memory_gib"] * case.source.bytes_per_unit,
            )
        )
    return judged, skipped


def _group(row: Row, case: Case) -> str:
    """Sources are judged apart by device; torchtitan's tensor-parallel rows as well."""
    name = f"{source_name(row)} {row['gpu']}"
    return f"{name}, tp > 1" if name.startswith("titan") and case.plan.tp > 1 else name


def memory_scores(rows: Sequence[JudgedRow]) -> list[MemoryScore]:
    """Score every group, and nano by what is known of its tensor parallelism.

    Args:
        rows: from `memory_rows`.
    """
    scores = []
    for group in sorted({row.group for row in rows}):
        members = [row for row in rows if row.group == group]
        distinct = distinct_plans(members)
        if 2 * len(distinct) <= len(members):
            scores.append(score(distinct, f"{group}, distinct plans"))
            continue
        scores.append(score(members, group))
        if members[0].run_id.startswith("nano"):
            single = [row for row in members if row.case.plan.tp == 1]
            scores.append(score(single, f"{group}, tp = 1"))
            nearest = [_nearest_mode(row) for row in members]
            scores.append(score(nearest, f"{group}, nearest of three TP modes (optimistic)"))
    return scores


def distinct_plans(rows: Sequence[JudgedRow]) -> list[JudgedRow]:
    """Keep one row of each plan and figure: the batch alone does not change memory."""
    seen: dict[tuple[object, ...], JudgedRow] = {}
    for row in rows:
        plan = row.case.plan
        key = (
            row.case.architecture, row.case.seq_length, plan.tp, plan.cp, plan.pp, plan.dp,
            plan.micro_batch_size, row.measured_bytes,
        )  # fmt: skip
        seen.setdefault(key, row)
    return list(seen.values())


def _nearest_mode(row: JudgedRow) -> JudgedRow:
    if row.case.plan.tp == 1:
        return row
    options = [predicted_parts(case) for case in tensor_parallel_modes(row.case)]
    best = min(options, key=lambda parts: abs(np.log(parts.total / row.measured_bytes)))
    return JudgedRow(
        run_id=row.run_id, group=row.group, case=row.case, parts=best,
        measured_bytes=row.measured_bytes,
    )  # fmt: skip


def score(rows: Sequence[JudgedRow], group: str) -> MemoryScore:
    """Score one set of rows, zero-shot and, where it is large enough, few-shot.

    Sets of less than FEW_SHOT_LEAST_ROWS rows are fitted on all rows but one instead, each in
    turn, if they have more than FEW_SHOT_ROWS / 2 of them.

    Args:
        rows: what is judged.
        group: its name.
    """
    measured = np.array([row.measured_bytes for row in rows])
    predicted = np.array([row.parts.total for row in rows])
    errors = (predicted / measured - 1.0) * 100.0
    source = rows[0].case.source
    few = _few_shot(rows)
    return MemoryScore(
        group=group,
        quantity=source.quantity,
        rank="first stage" if source.first_stage else "heaviest",
        rows=len(rows),
        mape_pct=float(np.abs(errors).mean()),
        median_pct=float(np.median(np.abs(errors))),
        p90_pct=float(np.quantile(np.abs(errors), 0.9)),
        worst_pct=float(errors[np.abs(errors).argmax()]),
        bias_pct=float(errors.mean()),
        log_sd=float(np.sqrt(np.mean(np.log(measured / predicted) ** 2))),
        **few,  # type: ignore[arg-type]
    )


def _few_shot(rows: Sequence[JudgedRow]) -> dict[str, object]:
    if len(rows) >= FEW_SHOT_LEAST_ROWS or "bigsci" in rows[0].run_id:
        splits, name = list(hash_draws([row.run_id for row in rows])), f"{DRAWS} draws of 8"
        results = [_judge(rows, fitted, judged) for fitted, judged in splits]
    elif len(rows) > FEW_SHOT_ROWS / 2:
        name = "leave one out"
        every = np.arange(len(rows))
        errors = np.concatenate(
            [_judge(rows, np.delete(every, i), every[i : i + 1]) for i in every]
        )
        results = [errors]
    else:
        return {}
    means = np.array([np.abs(e).mean() for e in results])
    return {
        "few_shot": name,
        "few_mape_pct": float(np.median(means)),
        "few_mape_p90_of_draws_pct": float(np.quantile(means, 0.9)),
        "few_p90_pct": float(np.median([np.quantile(np.abs(e), 0.9) for e in results])),
        "few_bias_pct": float(np.median([e.mean() for e in results])),
    }


def _judge(rows: Sequence[JudgedRow], fitted: Ints, judged: Ints) -> npt.NDArray[np.float64]:
    """Errors in percent of the judged rows after a fit on the others."""
    site = fit_memory_site(
        [rows[i].parts for i in fitted], [rows[i].measured_bytes for i in fitted]
    )
    return np.array(
        [(site.apply(rows[i].parts) / rows[i].measured_bytes - 1.0) * 100.0 for i in judged]
    )


def hash_draws(run_ids: Sequence[str], draws: int = DRAWS) -> Iterator[tuple[Ints, Ints]]:
    """Yield (fitted, judged) rows: the first eight by SHA-256 of "<draw>:<run_id>".

    Draw 0 hashes the run id alone.

    Args:
        run_ids: names of the rows.
        draws: how many.
    """
    for draw in range(draws):
        salt = f"{draw}:" if draw else ""
        digests = [hashlib.sha256(f"{salt}{name}".encode()).hexdigest() for name in run_ids]
        order = np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)
        yield order[:FEW_SHOT_ROWS], order[FEW_SHOT_ROWS:]
