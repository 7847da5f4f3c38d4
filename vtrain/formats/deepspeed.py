"""DeepSpeed JSON: batch, sharding and precision; neither model nor pipeline are in it.

Field names: the configuration page of the DeepSpeed documentation (deepspeed.ai/docs/config-json).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.formats.context import refuse
from vtrain.formats.fields import Fields
from vtrain.formats.imported import Imported, StackHints, labelled
from vtrain.formats.suggestion import suggest
from vtrain.plan import Plan

if TYPE_CHECKING:
    from vtrain.formats.context import Job

_NAME = "DeepSpeed JSON"
_STAGES = ("none", "zero1", "zero2", "zero3")
_WITHOUT_EFFECT = (
    "optimizer", "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown",
    "dump_state", "prescale_gradients", "gradient_predivide_factor", "communication_data_type",
    "flops_profiler", "tensorboard", "wandb", "csv_monitor", "comms_logger", "vtrain_note",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "data_types", "seed",
    "checkpoint", "autotuning", "amp", "monitor_config", "disable_allgather", "memory_breakdown",
)  # fmt: skip
_ZERO_WITHOUT_EFFECT = (
    "allgather_partitions", "allgather_bucket_size", "reduce_bucket_size", "contiguous_gradients",
    "reduce_scatter", "round_robin_gradients", "sub_group_size", "load_from_fp32_weights",
    "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold", "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save", "elastic_checkpoint", "ignore_unused_parameters",
)  # fmt: skip
BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def read_deepspeed(data: dict[str, Any], path: str, *, gpus: int | None = None) -> Imported:
    """Read a parsed DeepSpeed JSON.

    Args:
        data: the parsed file.
        path: what errors call it.
        gpus: GPUs it runs on; needed where the file leaves one batch size to DeepSpeed.

    Raises:
        UserInputError: wrong type, or batch sizes that contradict each other or the GPU count.
    """
    root = Fields(data, path)
    notes = ["a DeepSpeed JSON holds no model: pass it with --model"]
    zero = root.section("zero_optimization")
    stage = zero.whole("stage", default=0, least=0)
    if stage >= len(_STAGES):
        raise UserInputError(f"{path}: zero_optimization.stage={stage}", hint="0, 1, 2 or 3")
    for part in ("offload_optimizer", "offload_param", "cpu_offload"):
        value = zero.raw(part)
        if value not in (None, False) and value != {"device": "none"}:
            notes.append(f"zero_optimization.{part} is not modelled")
    settings = {"overlap_comm": str(zero.flag("overlap_comm")).lower()}
    precision = None
    for name in ("bf16", "fp16"):
        part_ = root.section("bfloat16" if name == "bf16" and "bfloat16" in data else name)
        enabled = part_.raw("enabled")
        if enabled is True:
            precision = name
        elif enabled == "auto":
            notes.append(f"{name}.enabled=auto is filled in by the trainer")
    tensor = root.section("tensor_parallel")
    tp = tensor.whole("autotp_size", default=1, least=0) or 1
    checkpoint = root.section("activation_checkpointing")
    recompute = "full" if checkpoint.maybe_whole("number_checkpoints") else "none"
    if not checkpoint.has("number_checkpoints") and "activation_checkpointing" in data:
        notes.append(
            "activation_checkpointing only tunes recomputation; the model's code turns it on"
        )
    if checkpoint.flag("cpu_checkpointing"):
        notes.append("activation_checkpointing.cpu_checkpointing is not modelled")
    with labelled(path):
        plan = _plan(
            root, path, notes, tp=tp, gpus=gpus, sharding=_STAGES[stage], recompute=recompute
        )
    zero.ignore(_ZERO_WITHOUT_EFFECT)
    checkpoint.ignore(
        {"partition_activations", "contiguous_memory_optimization", "profile",
         "synchronize_checkpoint_boundary"}
    )  # fmt: skip
    root.ignore(_WITHOUT_EFFECT)
    sections = {"zero_optimization": zero, "activation_checkpointing": checkpoint,
                "tensor_parallel": tensor}  # fmt: skip
    return Imported(
        source="deepspeed",
        path=path,
        plan=plan,
        gpus=plan.gpus if plan is not None else gpus,
        stack=StackHints(precision=precision, settings=settings),
        unknown_fields=root.unknown
        + tuple(f"{name}.{key}" for name, part in sections.items() for key in part.unknown),
        ignored_fields=root.ignored
        + tuple(f"{name}.{key}" for name, part in sections.items() for key in part.ignored),
        notes=tuple(notes),
    )


def _plan(
    root: Fields, path: str, notes: list[str], *, tp: int, gpus: int | None, sharding: str,
    recompute: str,
) -> Plan | None:  # fmt: skip
    auto = [key for key in BATCH_KEYS if root.raw(key) == "auto"]
    if auto:
        notes.append(f"no plan: {', '.join(auto)} = auto is filled in by the trainer")
        return None
    batch, micro, steps = (root.maybe_whole(key) for key in BATCH_KEYS)
    if gpus is not None and gpus % tp:
        raise UserInputError(f"{path}: {gpus} GPUs are not a multiple of autotp_size={tp}")
    dp = None if gpus is None else gpus // tp
    # DeepSpeed's own identity: batch = micro-batch x accumulation steps x replicas.
    if dp is None:
        if batch is None or micro is None or steps is None:
            missing = [key for key in BATCH_KEYS if not root.has(key)]
            notes.append(f"no plan: {', '.join(missing)} left to DeepSpeed (pass --gpus N)")
            return None
        dp = batch // (micro * steps) or 1
    elif batch is None and micro is not None:
        batch = micro * (steps or 1) * dp
    elif batch is not None and micro is None:
        micro = batch // ((steps or 1) * dp) or 1
    if batch is None or micro is None:
        notes.append("no plan: neither train_batch_size nor the micro-batch is in the file")
        return None
    steps = steps or batch // (micro * dp) or 1
    if batch != micro * steps * dp:
        raise UserInputError(
            f"{path}: train_batch_size={batch} must be train_micro_batch_size_per_gpu x "
            f"gradient_accumulation_steps x replicas = {micro} x {steps} x {dp} = "
            f"{micro * steps * dp}",
            hint=f"nearest valid: train_batch_size={micro * steps * dp}",
        )
    notes.append("a DeepSpeed JSON says nothing of pipeline or context parallelism: both are 1")
    return Plan(
        tp=tp, dp=dp, micro_batch_size=micro, global_batch_size=batch, recompute=recompute,
        sharding=sharding,
    )  # fmt: skip


def deepspeed_json(job: Job) -> str:
    """Return the text of a DeepSpeed config.

    Raises:
        UserInputError: when the design has a degree that the file cannot carry.
    """
    plan = job.design.plan
    for feature, present in {
        f"pp={plan.pp} (the model's code builds the stages)": plan.pp > 1,
        f"cp={plan.cp}": plan.cp > 1,
        "sequence_parallel": plan.sequence_parallel,
        f"tp={plan.tp} with zero3": plan.tp > 1 and plan.sharding == "zero3",
        "recompute=selective": plan.recompute == "selective",
        f"schedule={plan.schedule}": plan.schedule != "1f1b",
    }.items():
        if present:
            raise refuse(_NAME, feature, "use --format megatron")
    hint = suggest(job.design)
    remark = "no token count, no suggestion of a learning rate" if hint is None else hint.remark
    config: dict[str, Any] = {
        "vtrain_note": f"{job.summary}; lr: {remark}",
        "train_batch_size": plan.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.num_micro_batches,
        "gradient_clipping": 1.0,
        ("fp16" if job.stack.precision == "fp16" else "bf16"): {"enabled": True},
        "zero_optimization": {
            "stage": _STAGES.index(plan.sharding),
            "overlap_comm": job.stack.overlap.dp_reduce > 0,
            "contiguous_gradients": True,
        },
    }
    if plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.recompute == "full":
        config["activation_checkpointing"] = {
            "number_checkpoints": job.design.architecture.num_layers
        }
    if hint is not None:
        config["optimizer"] = {
            "type": "AdamW",
            "params": {"lr": hint.learning_rate, "betas": [0.9, 0.95], "weight_decay": 0.1},
        }
        config["scheduler"] = {
            "type": "WarmupCosineLR",
            "params": {
                "total_num_steps": job.design.steps,
                "warmup_num_steps": hint.warmup_steps,
            },
        }
    return json.dumps(config, indent=2) + "\n"
