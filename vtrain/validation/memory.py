"""Peak memory of measured rows: the published quantity, and how full the device is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from vtrain.memory import peak_memory
from vtrain.memory.calibration import fit_memory_site
from vtrain.memory.rows import Case, Parts, case_or_reason, predicted_parts
from vtrain.memory.sources import GIB, SOURCES, UNKNOWN_SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.validation.predict import Batch
    from vtrain.validation.runs import MeasuredRun

    Array = npt.NDArray[np.float64]


def memory_share(groups: Sequence[Batch], count: int) -> Array:
    """Return the predicted allocated peak of every row over its device's memory, [count]."""
    share = np.full(count, np.nan)
    for batch in groups:
        for structure, at in batch.plans.groups():
            plans = batch.plans.take(at)
            peak = peak_memory(
                batch.architecture, batch.stack, structure, tp=plans.tp, cp=plans.cp,
                pp=plans.pp, dp=plans.dp, virtual_stages=plans.virtual_stages,
                micro_batch_size=plans.micro_batch_size,
                num_micro_batches=plans.num_micro_batches, seq_length=batch.seq_length,
            )  # fmt: skip
            share[batch.rows[at]] = peak.peak_bytes / batch.cluster.device.memory_bytes
    return share


def quantity_name(source: str) -> str:
    """Return what the memory figures of a source are, and on which rank."""
    kind = SOURCES.get(source, UNKNOWN_SOURCE)
    return kind.quantity + (", first stage" if kind.first_stage else "")


def published_parts(runs: Sequence[MeasuredRun]) -> list[Parts | None]:
    """Predict the published memory figure of each row; None where there is none to judge."""
    return [_parts(run) if run.peak_memory_gib else None for run in runs]


def _parts(run: MeasuredRun) -> Parts | None:
    case = case_or_reason({**asdict(run), "source": run.origin})
    return predicted_parts(case) if isinstance(case, Case) else None


def memory_errors(
    runs: Sequence[MeasuredRun], parts: Sequence[Parts | None], fitted: Sequence[int] = ()
) -> Array:
    """Return predicted / measured - 1 of every row with a figure that was not fitted.

    Args:
        runs: the rows.
        parts: `published_parts` of them.
        fitted: rows that calibrate the site first; none leaves the shipped bytes.
    """

    def measured(row: int) -> float:
        unit = SOURCES.get(runs[row].source, UNKNOWN_SOURCE).bytes_per_unit or GIB
        return float(runs[row].peak_memory_gib or 0.0) * unit

    known = {row: part for row, part in enumerate(parts) if part is not None}
    used = [row for row in fitted if row in known]
    site = fit_memory_site([known[r] for r in used], [measured(r) for r in used]) if used else None
    left_out = set(fitted)
    return np.array(
        [
            (site.apply(part) if site else part.total) / measured(row) - 1.0
            for row, part in known.items()
            if row not in left_out
        ],
        dtype=np.float64,
    )
