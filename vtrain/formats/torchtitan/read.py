"""A torchtitan TOML (releases 0.1 to 0.2.2) to architecture and plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.formats.fields import Fields
from vtrain.formats.imported import Imported, StackHints, labelled, replicas
from vtrain.formats.torchtitan.flavors import flavor_architecture
from vtrain.plan import Plan

if TYPE_CHECKING:
    from vtrain.architecture import Architecture

# Sections that change neither the model nor its step.
WITHOUT_EFFECT = (
    "job", "profiling", "metrics", "optimizer", "lr_scheduler", "checkpoint", "comm",
    "fault_tolerance", "validation", "memory_estimation", "debug", "experimental", "float8", "mx",
    "quantize",
)  # fmt: skip
_SINGLE = {"1F1B": "1f1b", "GPipe": "gpipe"}
_LOOPED = {"Interleaved1F1B": "1f1b"}


def read_torchtitan(
    data: dict[str, Any], path: str, *, gpus: int | None = None, model_only: bool = False
) -> Imported:
    """Read a parsed torchtitan TOML.

    Args:
        data: the parsed file.
        path: what errors call it.
        gpus: GPUs it runs on; needed where the shard degree is left to the launcher.
        model_only: leave the plan (and mistakes in it) alone.

    Raises:
        UserInputError: unknown flavour, wrong type, contradictory sizes, or a GPU count that the
            degrees do not divide.
    """
    root = Fields(data, path)
    notes: list[str] = []
    job = root.section("job")
    model = root.section("model")
    architecture = flavor_architecture(
        str(model.word("name", default="llama3")),
        str(model.word("flavor", default="debugmodel")),
        job.word("description"),
        path,
    )
    converters = model.raw("converters")
    converters = [converters] if isinstance(converters, str) else converters or []
    training = root.section("training")
    parallel = root.section("parallelism")
    checkpoint = root.section("activation_checkpoint")
    compile_ = root.section("compile")
    seq_length = training.whole("seq_len", default=2048)
    plan = None
    with labelled(path):
        if not model_only:
            plan = _plan(parallel, training, checkpoint, architecture, path, notes, gpus)
    steps = training.maybe_whole("steps")
    tokens = None
    if plan is not None and steps is not None:
        tokens = steps * plan.global_batch_size * seq_length
    settings = {
        "compile": str(compile_.flag("enable") or training.flag("compile")).lower(),
        "async_tensor_parallel": str(parallel.flag("enable_async_tensor_parallel")).lower(),
    }
    if training.flag("enable_cpu_offload"):
        notes.append("enable_cpu_offload is not modelled")
    model.ignore({"hf_assets_path", "tokenizer_path", "print_after_conversion"})
    compile_.ignore({"components", "backend", "model", "loss"})
    training.ignore(
        {"dataset", "dataset_path", "max_norm", "gc_freq", "gc_debug", "seed", "deterministic",
         "dataloader", "mixed_precision_param", "mixed_precision_reduce", "dtype", "warmup_steps"}
    )  # fmt: skip
    checkpoint.ignore(
        {"per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "preserve_rng_state",
         "determinism_check", "debug"}
    )  # fmt: skip
    parallel.ignore(
        {"disable_loss_parallel", "enable_compiled_autograd", "context_parallel_rotate_method",
         "context_parallel_load_balancer", "pipeline_parallel_expert_parallel_overlap",
         "expert_parallel_degree", "expert_tensor_parallel_degree", "expert_parallel_comm_backend"}
    )  # fmt: skip
    root.ignore(WITHOUT_EFFECT)
    sections = {"model": model, "training": training, "parallelism": parallel,
                "activation_checkpoint": checkpoint, "compile": compile_}  # fmt: skip
    return Imported(
        source="torchtitan",
        path=path,
        architecture=architecture,
        plan=plan,
        seq_length=seq_length,
        tokens=tokens,
        gpus=plan.gpus if plan is not None else gpus,
        stack=StackHints(
            name="torchtitan-2024",
            precision="fp8" if any("float8" in str(c) for c in converters) else "bf16",
            settings=settings,
        ),
        unknown_fields=root.unknown
        + tuple(f"{name}.{key}" for name, part in sections.items() for key in part.unknown),
        ignored_fields=root.ignored
        + tuple(f"{name}.{key}" for name, part in sections.items() for key in part.ignored),
        notes=tuple(notes),
    )


def _plan(
    parallel: Fields, training: Fields, checkpoint: Fields, architecture: Architecture, path: str,
    notes: list[str], gpus: int | None,
) -> Plan | None:  # fmt: skip
    tp = parallel.whole("tensor_parallel_degree", default=1)
    pp = parallel.whole("pipeline_parallel_degree", default=1)
    cp = parallel.whole("context_parallel_degree", default=1)
    replicate = parallel.whole("data_parallel_replicate_degree", default=1)
    shard = parallel.raw("data_parallel_shard_degree")
    shard = -1 if shard is None else shard
    reshard = parallel.word("fsdp_reshard_after_forward", default="default")
    schedule, virtual = _schedule(parallel, architecture.num_layers, pp, path)
    recompute = _recompute(checkpoint, notes)
    local = training.maybe_whole("local_batch_size", "batch_size")
    batch = training.raw("global_batch_size")
    micro = parallel.whole("pipeline_parallel_microbatch_size", default=1)
    if not isinstance(shard, int) or isinstance(shard, bool) or (shard < 1 and shard != -1):
        raise UserInputError(
            f"{path}: data_parallel_shard_degree must be -1 or a whole number of at least 1, got "
            f"{shard!r}"
        )
    if shard == -1 and gpus is None:
        notes.append("no plan: data_parallel_shard_degree=-1 takes what is left (pass --gpus N)")
        return None
    if shard == -1 and gpus is not None:
        dp = replicas(gpus=gpus, tp=tp, pp=pp, cp=cp, label=path)
        if dp % replicate:
            raise UserInputError(
                f"{path}: data_parallel_replicate_degree={replicate} must divide dp={dp} "
                f"({gpus} GPUs / tp x pp x cp = {tp * pp * cp})"
            )
        shard = dp // replicate
    dp = replicate * shard
    if gpus is not None and gpus != tp * pp * cp * dp:
        raise UserInputError(
            f"{path}: {gpus} GPUs contradict tp x pp x cp x dp = {tp} x {pp} x {cp} x {dp} = "
            f"{tp * pp * cp * dp}"
        )
    if replicate > 1 and shard > 1:
        notes.append(
            f"hybrid sharding over {shard} of {dp} replicas: see sharding_group of a stack"
        )
    if local is None:
        local = 8
        notes.append("local_batch_size is not in the file: torchtitan's default, 8")
    if batch in (None, -1):
        batch = local * dp
    if not isinstance(batch, int) or isinstance(batch, bool):
        raise UserInputError(f"{path}: global_batch_size must be a whole number, got {batch!r}")
    if pp > 1 and (local % micro or batch != local * dp):
        raise UserInputError(
            f"{path}: with pp={pp} one flush of the pipeline is the step here: global_batch_size="
            f"{batch} must be local_batch_size x dp = {local} x {dp} and a multiple of "
            f"pipeline_parallel_microbatch_size={micro}",
            hint=f"nearest valid: global_batch_size={local * dp}",
        )
    return Plan(
        tp=tp, cp=cp, pp=pp, dp=dp, virtual_stages=virtual,
        micro_batch_size=micro if pp > 1 else local, global_batch_size=batch,
        recompute=recompute, sharding=_sharding(shard * cp, str(reshard), pp, path),
        sequence_parallel=tp > 1, schedule=schedule,
    )  # fmt: skip


def _sharding(ranks: int, reshard: str, pp: int, path: str) -> str:
    """Return the level: weights sharded again after forward (3) or kept whole (2)."""
    if reshard not in ("default", "always", "never"):
        raise UserInputError(
            f"{path}: fsdp_reshard_after_forward={reshard} is not known",
            hint="default, always or never",
        )
    if ranks == 1:
        return "none"
    again = reshard == "always" or (reshard == "default" and pp == 1)
    return "zero3" if again else "zero2"


def _schedule(parallel: Fields, layers: int, pp: int, path: str) -> tuple[str, int]:
    name = str(parallel.word("pipeline_parallel_schedule", default="1F1B"))
    chunk = parallel.maybe_whole("pipeline_parallel_layers_per_stage")
    less = [
        parallel.whole(f"pipeline_parallel_{end}_stage_less_layers", default=1, least=0)
        for end in ("first", "last")
    ]
    if name not in (*_SINGLE, *_LOOPED):
        raise UserInputError(
            f"{path}: pipeline_parallel_schedule={name} is not supported",
            hint=f"one of {', '.join((*_SINGLE, *_LOOPED))}",
        )
    if pp == 1:
        return "1f1b", 1
    # torchtitan/distributed/pipeline_parallel.py: stages = ceil(layers + both ends / layers each),
    # one a rank for single schedules, at least two for looped ones (two unless stated).
    stages = 2 if name in _LOOPED else 1
    if chunk is not None:
        total = -(-(layers + sum(less)) // chunk)
        if total % pp:
            raise UserInputError(
                f"{path}: {layers} layers in stages of {chunk} make {total} stages, not a multiple "
                f"of pp={pp}"
            )
        stages = total // pp
    if (name in _SINGLE) != (stages == 1):
        raise UserInputError(
            f"{path}: schedule {name} contradicts {stages} stages a rank "
            f"(pipeline_parallel_layers_per_stage={chunk})"
        )
    return {**_SINGLE, **_LOOPED}[name], stages


def _recompute(checkpoint: Fields, notes: list[str]) -> str:
    mode = checkpoint.word("mode", default="selective")
    option = checkpoint.raw("selective_ac_option")
    if mode not in ("none", "selective", "full"):
        raise UserInputError(
            f"activation_checkpoint.mode={mode} is not supported", hint="none, selective or full"
        )
    if mode == "selective" and option not in (None, "op"):
        notes.append(
            f"selective_ac_option={option}: whole layers are recomputed every {option}; the "
            "stack's own selection is used"
        )
    return str(mode)
