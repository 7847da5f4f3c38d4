"""From a measured row to an architecture, a stack and a plan, or the reason why not."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.memory.breakdown import every_stage
from vtrain.memory.sources import MemorySource, Row, memory_source, row_stack, ties_embeddings
from vtrain.plan import Plan

if TYPE_CHECKING:
    from vtrain.stack import Stack

_NEEDED = (
    "layers", "hidden", "heads", "ffn_hidden", "vocab", "seq_len", "micro_batch", "tp", "pp", "dp",
)  # fmt: skip
_SHARDING = {
    "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp2": "zero3", "fsdp": "zero3",
    "fsdp_full_shard": "zero3", "fsdp_shard_grad_op": "zero2", "hsdp": "zero3",
    "fsdp(zero2-like)": "zero2", "zero0": "none", "none": "none",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A measured row as the memory model sees it."""

    architecture: Architecture
    stack: Stack
    plan: Plan
    seq_length: int
    source: MemorySource


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """A prediction in the quantity the source reports, by what a site may scale; bytes.

    Attributes:
        standing: states and buffers.
        working: activations and transients.
        fixed: context, where the quantity holds it.
    """

    standing: float
    working: float
    fixed: float

    @property
    def total(self) -> float:
        """Predicted figure."""
        return self.standing + self.working + self.fixed


def case_or_reason(row: Row) -> Case | str:
    """Return a row as a case, or in a few words why it is not judged."""
    notes = str(row["notes"])
    if re.search(r"INCONSISTENT|CHECK", notes):
        return "flagged by the data as contradictory"
    if _given(row["experts"]):
        return "mixture of experts"
    if re.search(r"-(lora|sft)\b|LoRA|fine-tuning", f"{row['model_name']} {notes}"):
        return "fine-tuning"
    if any(not _given(row[name]) for name in _NEEDED):
        return "architecture or plan not given"
    try:
        return Case(
            architecture=row_architecture(row),
            stack=row_stack(row),
            plan=row_plan(row),
            seq_length=int(row["seq_len"]),
            source=memory_source(row),
        )
    except UserInputError as error:
        return f"contradicts itself: {error.message}"


def row_architecture(row: Row) -> Architecture:
    """Return the architecture of a row; public GPT-like models have biases, Llama-like none."""
    hidden, heads = int(row["hidden"]), int(row["heads"])
    gated = bool(row["gated_mlp"])
    return Architecture(
        num_layers=int(row["layers"]),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=int(row["kv_heads"]) if _given(row["kv_heads"]) else heads,
        head_dim=max(1, round(hidden / heads)),
        ffn_hidden_size=int(row["ffn_hidden"]),
        gated_mlp=gated,
        vocab_size=int(row["vocab"]),
        tied_embeddings=ties_embeddings(row),
        position="rotary" if gated else "learned",
        max_positions=0 if gated else int(row["seq_len"]),
        norm="rmsnorm" if gated else "layernorm",
        attention_qkv_bias=not gated,
        attention_output_bias=not gated,
        mlp_bias=not gated,
    )


def row_plan(row: Row) -> Plan:
    """Return the plan of a row; where the batch is blank, the pipeline is taken as full."""
    dp, micro_batch, pp = int(row["dp"]), int(row["micro_batch"]), int(row["pp"])
    batch = row["global_batch_seqs"]
    micro_batches = pp if not _given(batch) else max(1, round(batch / (dp * micro_batch)))
    tp = int(row["tp"])
    stated = row["sequence_parallel"]
    recompute = str(row["recompute"])
    return Plan(
        tp=tp,
        cp=int(row["cp"]) if _given(row["cp"]) else 1,
        pp=pp,
        dp=dp,
        virtual_stages=int(row["vpp"]) if _given(row["vpp"]) else 1,
        micro_batch_size=micro_batch,
        global_batch_size=micro_batches * dp * micro_batch,
        recompute=recompute if recompute in ("none", "selective", "full") else "none",
        sharding=_SHARDING.get(str(row["zero_stage_or_fsdp"]).lower(), "zero1"),
        sequence_parallel=tp > 1 and (bool(stated) if _given(stated) else True),
    )


def predicted_parts(case: Case) -> Parts:
    """Predict the figure the source reports."""
    stack = case.stack
    memory, _ = every_stage(case.architecture, stack, case.plan, seq_length=case.seq_length)
    peaks = memory.peak()
    stage = 0 if case.source.first_stage else int(peaks.argmax())
    standing = float(memory.row(stage).standing)
    if case.source.quantity == "allocated":
        return Parts(standing=standing, working=float(peaks[stage]) - standing, fixed=0.0)
    reserved = float(memory.reserved(stack)[stage])
    held = standing * stack.reserved_over_allocated
    context = stack.context_bytes if case.source.quantity == "nvidia-smi" else 0.0
    return Parts(standing=held, working=reserved - held, fixed=context)


def tensor_parallel_modes(case: Case) -> tuple[Case, Case, Case]:
    """Return a case under the three ways nanotron may run tensor parallelism.

    Reduce-scatter with gathered inputs computed again, with gathered inputs kept
    (`tp_recompute_allgather: false`), and all-reduce. The published rows do not say which.
    """
    kept = replace(case.stack.activations, gathered_inputs_kept=True)
    return (
        case,
        replace(case, stack=replace(case.stack, activations=kept)),
        replace(case, plan=replace(case.plan, sequence_parallel=False)),
    )


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))
