"""A design as Megatron-LM arguments, and as the script that launches them.

Argument names and their conditions: `megatron/training/arguments.py`, the launch scripts under
`examples/` and the Megatron-FSDP user guide of NVIDIA/Megatron-LM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrain.formats.context import refuse
from vtrain.formats.suggestion import suggest

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.formats.context import Job

    Arguments = list[tuple[str, object]]

_FSDP = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
_NAME = "Megatron-LM"


def megatron_arguments(job: Job) -> dict[str, Arguments]:
    """Return the arguments of pretrain_gpt.py by group; a flag has the value None.

    Raises:
        UserInputError: when Megatron-LM has no argument for a feature of the design.
    """
    return {
        "MODEL": _model(job),
        "PARALLEL": _parallel(job),
        "TRAINING": _training(job),
        "DATA": _data(job.design.architecture.vocab_size),
    }


def _model(job: Job) -> Arguments:
    a = job.design.architecture
    _check_model(a)
    arguments: Arguments = [
        ("num-layers", a.num_layers),
        ("hidden-size", a.hidden_size),
        ("ffn-hidden-size", a.ffn_hidden_size),
        ("num-attention-heads", a.num_attention_heads),
        ("kv-channels", a.head_dim),
    ]
    if a.num_key_value_heads != a.num_attention_heads:
        arguments += [("group-query-attention", None), ("num-query-groups", a.num_key_value_heads)]
    arguments += [
        ("seq-length", job.design.seq_length),
        ("max-position-embeddings", a.max_positions or job.design.seq_length),
        ("position-embedding-type",
         {"learned": "learned_absolute", "rotary": "rope", "none": "none"}[a.position]),
        ("normalization", "RMSNorm" if a.norm == "rmsnorm" else "LayerNorm"),
    ]  # fmt: skip
    if a.gated_mlp:
        arguments.append(("swiglu", None))
    if not a.mlp_bias:
        arguments.append(("disable-bias-linear", None))
        if a.attention_qkv_bias:
            arguments.append(("add-qkv-bias", None))
    if a.qk_norm == "head":
        arguments.append(("qk-layernorm", None))
    if not a.tied_embeddings:
        arguments.append(("untie-embeddings-and-output-weights", None))
    dropout = 0.1 if job.stack.dropout else 0.0
    arguments += [("attention-dropout", dropout), ("hidden-dropout", dropout)]
    backend = "unfused" if job.stack.attention == "unfused" else "flash"
    arguments.append(("attention-backend", backend))
    if job.stack.vocab_multiple != 128:
        arguments.append(("make-vocab-size-divisible-by", job.stack.vocab_multiple))
    return arguments


def _check_model(a: Architecture) -> None:
    """Refuse what pretrain_gpt.py has no argument for."""
    features = {
        f"position={a.position}": a.position == "alibi",
        f"norm={a.norm}": a.norm == "layernorm-plain",
        f"qk_norm={a.qk_norm}": a.qk_norm == "full",
        f"qk_norm=head with norm={a.norm}": a.qk_norm == "head" and a.norm != "rmsnorm",
        "embedding_norm": a.embedding_norm,
        "biases on some projections only": a.attention_output_bias != a.mlp_bias
        or (a.mlp_bias and not a.attention_qkv_bias),
    }
    for feature, present in features.items():
        if present:
            raise refuse(_NAME, feature, "use --format hf for the model itself")


def _parallel(job: Job) -> Arguments:
    plan, stack = job.design.plan, job.stack
    if plan.schedule != "1f1b":
        raise refuse(_NAME, f"schedule={plan.schedule}", "search with schedule 1f1b")
    if stack.layer_split == "cost-rule" and plan.pp > 1:
        raise refuse(
            _NAME, f"the layer split of stack {stack.name}", "simulate with megatron-core-2025"
        )
    arguments: Arguments = [
        ("tensor-model-parallel-size", plan.tp),
        ("pipeline-model-parallel-size", plan.pp),
        ("context-parallel-size", plan.cp),
    ]
    if plan.virtual_stages > 1:
        arguments.append(("num-virtual-stages-per-pipeline-rank", plan.virtual_stages))
        if stack.overlap.send_recv == 0:
            arguments.append(("no-overlap-p2p-communication", None))
    if stack.layer_split == "counted-ends" and plan.pp > 1:
        arguments += [
            ("account-for-embedding-in-pipeline-split", None),
            ("account-for-loss-in-pipeline-split", None),
        ]
    if plan.sequence_parallel:
        arguments.append(("sequence-parallel", None))
        if stack.overlap.tp > 0:
            arguments.append(("tp-comm-overlap", None))
    if plan.sharding != "none":
        arguments.append(("use-distributed-optimizer", None))
    if plan.sharding in _FSDP:
        arguments += [
            ("use-megatron-fsdp", None),
            ("data-parallel-sharding-strategy", _FSDP[plan.sharding]),
            ("no-gradient-accumulation-fusion", None),
            ("ckpt-format", "fsdp_dtensor"),
        ]
    # Megatron gathers parameters behind compute only beside an overlapped reduction and with a
    # distributed optimizer.
    if plan.dp > 1 and stack.overlap.dp_reduce > 0:
        arguments.append(("overlap-grad-reduce", None))
        if stack.overlap.dp_gather > 0 and plan.sharding != "none":
            arguments.append(("overlap-param-gather", None))
    if plan.recompute == "selective":
        arguments.append(("recompute-granularity", "selective"))
    elif plan.recompute == "full":
        arguments += [
            ("recompute-granularity", "full"),
            ("recompute-method", "uniform"),
            ("recompute-num-layers", 1),
        ]
    return arguments


def _training(job: Job) -> Arguments:
    plan = job.design.plan
    arguments: Arguments = [
        ("micro-batch-size", plan.micro_batch_size),
        ("global-batch-size", plan.global_batch_size),
        ("fp16" if job.stack.precision == "fp16" else "bf16", None),
    ]
    if job.stack.precision == "fp8":
        arguments.append(("fp8-format", "hybrid"))
    if job.design.steps is not None:
        arguments.append(("train-iters", job.design.steps))
    hint = suggest(job.design)
    if hint is not None:
        arguments += [
            ("lr", hint.learning_rate),
            ("min-lr", hint.final_learning_rate),
            ("lr-decay-style", "cosine"),
            ("lr-warmup-iters", hint.warmup_steps),
        ]
    arguments += [("weight-decay", 0.1), ("adam-beta2", 0.95), ("clip-grad", 1.0)]
    return arguments


def _data(vocab_size: int) -> Arguments:
    # NullTokenizer counts one token (end of document) on top of --vocab-size.
    return [
        ("mock-data", None),
        ("tokenizer-type", "NullTokenizer"),
        ("vocab-size", vocab_size - 1),
        ("split", "99,1,0"),
    ]


def environment(job: Job) -> list[str]:
    """Return the lines that set what Megatron-LM needs of its environment."""
    lines = ["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]
    if job.design.plan.sharding in _FSDP:
        return [*lines, "unset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron-FSDP overlaps only without"]
    return [*lines, "export CUDA_DEVICE_MAX_CONNECTIONS=1  # orders collectives before kernels"]


def argument_arrays(job: Job) -> list[str]:
    """Return the argument groups as shell arrays, one line an argument."""
    hint = suggest(job.design)
    remarks = {
        "TRAINING": "no token count, no suggestion: add --train-iters and --lr"
        if hint is None
        else f"lr: {hint.remark}",
        "DATA": "mock data measures speed; replace it by --data-path and your own tokenizer",
    }
    lines: list[str] = []
    for group, arguments in megatron_arguments(job).items():
        if group in remarks:
            lines.append(f"# {remarks[group]}")
        lines.append(f"{group}_ARGS=(")
        lines += [f"    --{n}" if v is None else f"    --{n} {v}" for n, v in arguments]
        lines += [")", ""]
    return lines


def command(job: Job, launcher: str) -> list[str]:
    """Return the lines that start pretrain_gpt.py under a launcher."""
    groups = [f'    "${{{group}_ARGS[@]}}"' for group in megatron_arguments(job)]
    program = '"${MEGATRON_PATH:-.}/pretrain_gpt.py"'
    return [f"{launcher} {program} \\", *(f"{g} \\" for g in groups[:-1]), groups[-1]]


def megatron_script(job: Job) -> str:
    """Return a bash script to run on every node.

    Raises:
        UserInputError: when Megatron-LM has no argument for a feature of the design.
    """
    lines = [
        "#!/bin/bash",
        f"# Megatron-LM launch, written by vtrain: {job.summary}",
        f"# Run it on each of {job.nodes} node(s) with NODE_RANK and MASTER_ADDR set.",
        "set -euo pipefail",
        "",
        *environment(job),
        "",
        "DISTRIBUTED_ARGS=(",
        f"    --nproc-per-node {job.gpus_per_node}",
        f"    --nnodes {job.nodes}",
        '    --node-rank "${NODE_RANK:-0}"',
        '    --master-addr "${MASTER_ADDR:-localhost}"',
        '    --master-port "${MASTER_PORT:-6000}"',
        ")",
        "",
        *argument_arrays(job),
        *command(job, 'torchrun "${DISTRIBUTED_ARGS[@]}"'),
    ]
    return "\n".join(lines) + "\n"
