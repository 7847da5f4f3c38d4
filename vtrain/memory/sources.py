"""What the memory figure of each published source is: quantity, rank, unit, software.

Facts about sources, kept as data and apart from the physics. A figure means nothing until one
knows whether it is allocated, reserved or what nvidia-smi shows, and on which rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from vtrain.presets import load_stack

if TYPE_CHECKING:
    from vtrain.stack import Stack

QUANTITIES = ("allocated", "reserved", "nvidia-smi")
GIB = 2.0**30

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemorySource:
    """How one source reports memory.

    Attributes:
        quantity: one of QUANTITIES.
        first_stage: recorded on pipeline rank 0, not on the heaviest rank.
        bytes_per_unit: bytes that one unit of the published figure stands for.
        evidence: why we think so.
    """

    quantity: str
    first_stage: bool
    bytes_per_unit: float
    evidence: str


SOURCES: dict[str, MemorySource] = {
    "nano": MemorySource(
        quantity="allocated",
        first_stage=True,
        bytes_per_unit=GIB,
        evidence="nanotron helpers.py, log_throughput: only world rank 0 writes the row",
    ),
    "bigsci": MemorySource(
        quantity="nvidia-smi",
        first_stage=False,
        # The table has a reading of 80 on boards whose total is 81,251 MiB = 79.3 GiB, so its
        # GB are thousands of MiB.
        bytes_per_unit=1000.0 * 2.0**20,
        evidence="bigscience tr11-176B-ml chronicles-prequel: 'GPU allocations (nvidia-smi)'",
    ),
    "titan": MemorySource(
        quantity="reserved",
        first_stage=False,
        bytes_per_unit=GIB,
        evidence="torchtitan components/metrics.py: reserved_bytes.all.peak, maximum over ranks",
    ),
    "simumax": MemorySource(
        quantity="allocated",
        first_stage=False,
        bytes_per_unit=GIB,
        evidence="SimuMax B200 release table gives allocated and reserved apart",
    ),
}
UNKNOWN_SOURCE = MemorySource(
    quantity="allocated",
    first_stage=False,
    bytes_per_unit=GIB,
    evidence="assumed: the usual log line is torch.cuda.max_memory_allocated",
)

# (pattern of the framework column, stack); the first match counts.
_STACKS = (
    (r"nanotron", "nanotron-2024"),
    (r"torchtitan", "torchtitan-2024"),
    (r"foundry|fsdp|internevo", "fsdp-2023"),
    (r"deepspeed", "megatron-deepspeed-2022"),
    (r"megatron|nemo", "megatron-core-2025"),
)
_PRECISION = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def source_name(row: Row) -> str:
    """Return the prefix of the run id."""
    return str(row["run_id"]).split("-")[0]


def memory_source(row: Row) -> MemorySource:
    """Return how the source of a row reports memory."""
    return SOURCES.get(source_name(row), UNKNOWN_SOURCE)


def row_stack(row: Row) -> Stack:
    """Return the stack of a row, with what the row states against its defaults."""
    framework = str(row["framework"]).lower()
    notes = str(row["notes"])
    name = next((s for pattern, s in _STACKS if re.search(pattern, framework)), "fsdp-2023")
    dated = re.search(r"_(20\d{2})\d{2}_", str(row["source"]))
    if name == "torchtitan-2024" and dated and int(dated.group(1)) >= 2025:
        # The benchmark's file name carries its date; the loss has been compiled since 2025.
        name = "torchtitan-2025"
    if "no comm overlap" in notes:
        name = "megatron-core-no-overlap"
    if name == "megatron-deepspeed-2022" and str(row["dtype"]) == "bf16":
        name = "megatron-deepspeed-2022-bf16"
    counted = "embedding counted as a layer" in notes
    eager = re.search(r"\beager\b", notes) is not None
    unfused = row["flash_attention"] == 0
    # NeMo's recipes reduce gradients in bf16: the 8B sample log of dgxc-benchmarking holds
    # 41.23 GiB after a step on 8 GPUs, which is 4 + 12/8 bytes a parameter.
    half_gradients = framework.startswith("nemo")
    return _stack(
        name, str(row["dtype"]), counted=counted, eager=eager, unfused=unfused,
        half_gradients=half_gradients,
    )  # fmt: skip


@cache
def _stack(
    name: str, dtype: str, *, counted: bool, eager: bool, unfused: bool, half_gradients: bool
) -> Stack:
    stack = load_stack(name)
    changes: dict[str, Any] = {"precision": _PRECISION.get(dtype, stack.precision)}
    if name.startswith("megatron-deepspeed"):
        changes["layer_split"] = "counted-ends" if counted else "even"
    if eager:
        changes["activations"] = replace(stack.activations, compiled=False)
    if half_gradients:
        changes["state"] = replace(stack.state, gradients=2.0)
    if unfused:
        changes["attention"] = "unfused"
    return replace(stack, **changes)


def ties_embeddings(row: Row) -> bool:
    """Return whether the model of a row shares its embedding with the output.

    nanotron's benchmark script ties where the feed-forward size is below 10,000
    (scripts/scaling_benchmarks.py); GPT-like models tie, Llama-like ones do not.
    """
    if source_name(row) == "nano":
        return float(row["ffn_hidden"]) < 10_000
    return not bool(row["gated_mlp"])
