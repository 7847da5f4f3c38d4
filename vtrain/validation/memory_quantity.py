"""What the memory figure of each source is, and our prediction of that same quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.memory import peak_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.validation.predict import Batch

    Array = npt.NDArray[np.float64]


class MemoryQuantity(NamedTuple):
    """One way memory is reported.

    Attributes:
        name: allocated, reserved or nvidia-smi.
        first_stage: measured on pipeline rank 0, not on the heaviest rank.
    """

    name: str
    first_stage: bool


_BY_SOURCE = {
    # nanotron helpers.py log_throughput writes the row on world rank 0 only.
    "nano": MemoryQuantity("allocated", True),
    # bigscience tr11 chronicles-prequel: "actual GPU allocations (nvidia-smi)".
    "bigsci": MemoryQuantity("nvidia-smi", False),
    # torchtitan components/metrics.py: reserved_bytes.all.peak.
    "titan": MemoryQuantity("reserved", False),
}
_DEFAULT = MemoryQuantity("allocated", False)


def memory_quantity(source: str) -> MemoryQuantity:
    """Return what the rows of a source report; allocated on the heaviest rank unless known."""
    return _BY_SOURCE.get(source, _DEFAULT)


def predicted_memory(
    groups: Sequence[Batch], quantities: Sequence[MemoryQuantity]
) -> tuple[Array, Array]:
    """Return bytes in each row's own quantity, and the allocated peak over device memory.

    Args:
        groups: the rows in tables.
        quantities: what each row reports, [n].
    """
    count = len(quantities)
    reported, share = np.full(count, np.nan), np.full(count, np.nan)
    first = np.array([q.first_stage for q in quantities])
    names = np.array([q.name for q in quantities])
    for batch in groups:
        for structure, at in batch.plans.groups():
            plans, rows = batch.plans.take(at), batch.rows[at]
            peak = peak_memory(
                batch.architecture, batch.stack, structure, tp=plans.tp, cp=plans.cp,
                pp=plans.pp, dp=plans.dp, virtual_stages=plans.virtual_stages,
                micro_batch_size=plans.micro_batch_size,
                num_micro_batches=plans.num_micro_batches, seq_length=batch.seq_length,
            )  # fmt: skip
            allocated = np.where(first[rows], peak.first_stage_bytes, peak.peak_bytes)
            smi = peak.reserved_bytes + batch.stack.context_bytes
            reported[rows] = np.select(
                [names[rows] == "reserved", names[rows] == "nvidia-smi"],
                [peak.reserved_bytes, smi],
                allocated,
            )
            share[rows] = peak.peak_bytes / batch.cluster.device.memory_bytes
    return reported, share
