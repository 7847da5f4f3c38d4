"""A design as a torchtitan TOML (release 0.2.2, the last one configured by TOML)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.formats.context import refuse
from vtrain.formats.suggestion import suggest
from vtrain.formats.torchtitan.flavors import CUSTOM_MODULE, model_table

if TYPE_CHECKING:
    from vtrain.formats.context import Job

_NAME = "torchtitan"


def torchtitan_toml(job: Job) -> str:
    """Return the text of a job config.

    Raises:
        UserInputError: when torchtitan has no setting for a feature of the design.
    """
    import tomli_w

    design, plan = job.design, job.design.plan
    model, description, module = model_table(design.architecture)
    if description is not None and design.architecture.tied_embeddings and plan.pp > 1:
        raise refuse(_NAME, "tied embeddings with pp > 1", "use --format megatron")
    if job.stack.precision == "fp8":
        model = {**model, "converters": ["quantize.linear.float8"]}
    hint = suggest(design)
    table: dict[str, Any] = {}
    if description is not None:
        table["job"] = {"description": description}
    table["model"] = model
    if hint is not None:
        table["optimizer"] = {"name": "AdamW", "lr": hint.learning_rate}
        table["lr_scheduler"] = {"warmup_steps": hint.warmup_steps, "decay_type": "cosine"}
    table["training"] = {
        # Without a pipeline the batch is accumulated; with one, a step is one flush of it.
        "local_batch_size": plan.micro_batch_size
        if plan.pp == 1
        else plan.global_batch_size // plan.dp,
        "global_batch_size": plan.global_batch_size,
        "seq_len": design.seq_length,
    }
    if design.steps is not None:
        table["training"]["steps"] = design.steps
    table["parallelism"] = _parallelism(job)
    table["activation_checkpoint"] = {"mode": plan.recompute, "selective_ac_option": "op"}
    table["compile"] = {"enable": job.stack.fused_activation}
    if description is not None:
        table["experimental"] = {"custom_import": CUSTOM_MODULE}
    lines = [
        f"# torchtitan job config (release 0.2.2), written by vtrain: {job.summary}",
        f"# Launch: torchrun --nproc-per-node {job.gpus_per_node} --nnodes {job.nodes} "
        "-m torchtitan.train --job.config_file THIS",
        "# with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment.",
        f"# lr: {hint.remark}" if hint else "# No token count, no suggestion: set steps and lr.",
    ]
    if module is not None:
        lines.append(f"# torchtitan has no such flavour; save this as {CUSTOM_MODULE}.py:")
        lines += [f"#   {line}" for line in module.splitlines()]
    return "\n".join(lines) + "\n\n" + tomli_w.dumps(table)


def _parallelism(job: Job) -> dict[str, Any]:
    plan = job.design.plan
    if plan.sequence_parallel != (plan.tp > 1):
        raise refuse(
            _NAME, f"tp={plan.tp} without sequence parallelism", "it always splits both together"
        )
    ranks = plan.dp * plan.cp
    if plan.sharding == "zero1" and ranks > 1:
        raise refuse(
            _NAME, "sharding=zero1", "fully_shard has zero2 and zero3: simulate one of them first"
        )
    # Plain replicas (DDP) only without any other degree (models/llama3/infra/parallelize.py).
    if plan.sharding == "none" and ranks > 1 and plan.gpus != plan.dp:
        raise refuse(
            _NAME, "replicas that are not sharded beside tp, pp or cp", "simulate zero3 first"
        )
    if plan.schedule == "zb-h1" and plan.pp > 1:
        raise refuse(_NAME, "schedule=zb-h1", "use 1f1b or gpipe")
    sharded = plan.sharding in ("zero2", "zero3")
    table: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if sharded else plan.dp,
        "data_parallel_shard_degree": plan.dp if sharded else 1,
        "fsdp_reshard_after_forward": "never" if plan.sharding == "zero2" else "always",
        "tensor_parallel_degree": plan.tp,
        "enable_async_tensor_parallel": plan.tp > 1 and job.stack.overlap.tp > 0,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if plan.pp > 1:
        table |= _pipeline(job)
    return table


def _pipeline(job: Job) -> dict[str, Any]:
    plan, layers = job.design.plan, job.design.architecture.num_layers
    if job.stack.layer_split == "cost-rule":
        raise refuse(_NAME, f"the layer split of stack {job.stack.name}", "use torchtitan-2024")
    ends = 1 if job.stack.layer_split == "counted-ends" else 0
    names = {"gpipe": "GPipe", "1f1b": "Interleaved1F1B" if plan.virtual_stages > 1 else "1F1B"}
    return {
        "pipeline_parallel_schedule": names[plan.schedule],
        "pipeline_parallel_microbatch_size": plan.micro_batch_size,
        "pipeline_parallel_layers_per_stage": (layers + 2 * ends)
        // (plan.pp * plan.virtual_stages),
        "pipeline_parallel_first_stage_less_layers": ends,
        "pipeline_parallel_last_stage_less_layers": ends,
    }
