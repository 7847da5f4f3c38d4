"""Which shipped stack a measured row ran on, and what the row says against its defaults."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from vtrain.presets import load_stack

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.plan import Plan
    from vtrain.stack import Stack
    from vtrain.validation.runs import MeasuredRun


class StackKey(NamedTuple):
    """A shipped stack and the values a row overrides, as (dotted field, value) pairs."""

    name: str
    overrides: tuple[tuple[str, object], ...] = ()


# (pattern of the framework column, shipped stack); the first match counts.
_FRAMEWORKS = (
    (r"nanotron", "nanotron-2024"),
    (r"torchtitan", "torchtitan-2024"),
    (r"foundry", "fsdp-2023"),
    (r"fms|fsdp", "fsdp-2024"),
    (r"internevo", "internevo-2023"),
    (r"deepspeed \(vtrain", "megatron-deepspeed-2022"),
    (r"deepspeed", "deepspeed-pipeline-2022"),
    (r"megatron-lm \(202[0-3]|baseline", "megatron-lm-2022"),
    (r"megatron|nemo|maxtext|pax", "megatron-core-2025"),
)
# BLOOM's A100 scripts make every launch wait (CUDA_LAUNCH_BLOCKING=1, bigscience
# train/tr11-176B-ml/setup-test-n2.slurm); its V100 scripts do not
# (train/tr3-1B3-baseline/tr3m-1B3-emb-norm-pile.slurm), and show none of the engine's cost.
_BLOOM_VOCABULARY = 250880.0
_PRECISION = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "fp4"}


def stack_key(run: MeasuredRun, architecture: Architecture, plan: Plan) -> StackKey:
    """Return the stack of a row with the facts the row states."""
    framework = run.framework.lower()
    name = next((stack for pattern, stack in _FRAMEWORKS if re.search(pattern, framework)), None)
    if name is None:
        name = "fsdp-2024" if plan.sharding == "zero3" else "megatron-core-2025"
    if name == "megatron-core-2025" and run.gpu.startswith("A100") and "nemo" in framework:
        # NeMo on A100 (2022-2023): Megatron-LM's kernels and collectives, nothing overlapped.
        name = "megatron-lm-2022"
    if "no comm overlap" in run.notes:
        name = "megatron-core-no-overlap"
    bloom = run.vocab == _BLOOM_VOCABULARY
    if name == "deepspeed-pipeline-2022" and run.gpu.startswith("V100"):
        name = "megatron-deepspeed-2022"
    if name == "deepspeed-pipeline-2022" and bloom and run.dtype == "bf16":
        name = "megatron-deepspeed-2022-bf16"
    overrides: dict[str, object] = {"precision": _PRECISION.get(run.dtype.lower(), "bf16")}
    if name == "deepspeed-pipeline-2022" and bloom:
        overrides["host.blocking_s"] = load_stack("megatron-deepspeed-2022-bf16").host.blocking_s
    if framework.startswith("nemo"):
        # NeMo's recipes reduce gradients in bf16: the 8B sample log of dgxc-benchmarking holds
        # 4 + 12/8 bytes a parameter after a step on 8 GPUs.
        overrides["gradient_reduce_bytes"] = 2.0
    if run.flash_attention == 0.0:
        overrides["attention"] = "unfused"
    overrides |= _torchtitan_variant(run) if name == "torchtitan-2024" else {}
    layers, stages = architecture.num_layers, plan.pp * plan.virtual_stages
    if "embedding counted as a layer" in run.notes or (
        layers % stages and (layers + 2) % stages == 0
    ):
        overrides["layer_split"] = "counted-ends"
    return StackKey(name, tuple(sorted(overrides.items())))


def _torchtitan_variant(run: MeasuredRun) -> dict[str, object]:
    """What torchtitan's tables state in words.

    Compiled is the default of the stack. Row-wise scaled float8 gains next to nothing over bf16
    (torchao float8 README: 10 % against 25 % of tensor-wise, before tensor parallelism).
    """
    out: dict[str, object] = {}
    if "eager" in run.notes:
        out |= {"fused_norm": False, "fused_activation": False}
    if re.search(r"async ?TP", run.notes, re.IGNORECASE):
        out["overlap.tp"] = 0.5
    if "rowwise" in run.notes:
        out["precision"] = "bf16"
    return out


def without_source(key: StackKey, source: str, gpu: str) -> tuple[StackKey, tuple[str, ...]]:
    """Take out of a stack what was fitted on the rows that it is to be judged by.

    Args:
        key: the stack of a row.
        source: prefix of the row's run_id.
        gpu: its GPU; constants may have been fitted on one GPU of a source only.

    Returns:
        The key with the refitted values, and a sentence for every constant concerned.
    """
    stack = stack_of(key)
    stated = {field for field, _ in key.overrides}
    overrides, told = dict(key.overrides), []
    for field, constant in stack.fitted.items():
        name = next((n for n in (source, f"{source}/{gpu}") if n in constant.sources), None)
        if name is None or field in stated:
            continue
        if name in constant.without:
            overrides[field] = constant.without[name]
            others = ", ".join(s for s in constant.sources if s != name) or "nothing"
            told.append(
                f"{key.name}: {field} = {constant.without[name]:g} for {name}, fitted on {others}"
            )
        else:
            told.append(f"{key.name}: {field} was read off the rows of {name} that it predicts")
    return StackKey(key.name, tuple(sorted(overrides.items()))), tuple(told)


@cache
def stack_of(key: StackKey) -> Stack:
    """Return the shipped stack with the overrides of a key."""
    stack = load_stack(key.name)
    plain = {field: value for field, value in key.overrides if "." not in field}
    for field, value in key.overrides:
        table, _, member = field.partition(".")
        if member:
            part: Any = plain.get(table, getattr(stack, table))
            plain[table] = replace(part, **{member: value})
    changes: dict[str, Any] = plain
    return replace(stack, **changes)
