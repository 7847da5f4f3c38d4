"""Megatron-LM arguments, from a launch script or a YAML file, to architecture and plan."""

from __future__ import annotations

from typing import Any

from vtrain.errors import UserInputError
from vtrain.formats.fields import Fields
from vtrain.formats.imported import Imported, StackHints, labelled, replicas
from vtrain.formats.megatron import names
from vtrain.formats.megatron.model import read_architecture
from vtrain.formats.megatron.shell import Script, read_script
from vtrain.plan import Plan

_ENVIRONMENT = ("ENV_VARS", "BEFORE_SCRIPT", "AFTER_SCRIPT")
"""Sections of a test recipe that are no arguments (NVIDIA/Megatron-LM tests/functional_tests)."""

# Megatron-FSDP strategies (megatron/training/arguments.py) as ZeRO levels.
FSDP_STRATEGIES = {
    "no_shard": "none", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3",
}  # fmt: skip


def read_megatron_script(
    text: str,
    path: str,
    *,
    gpus: int | None = None,
    vocab_size: int | None = None,
    model_only: bool = False,
) -> Imported:
    """Read a launch script or a list of arguments.

    Args:
        text: the file.
        path: what errors call it.
        gpus: GPUs it runs on, where the script leaves that to its surroundings.
        vocab_size: tokens of the vocabulary, where it comes with the tokenizer.
        model_only: leave the plan (and mistakes in it) alone.

    Raises:
        UserInputError: wrong type, contradictory sizes, another kind of model, or a GPU count
            that tp x pp x cp does not divide.
    """
    script = read_script(text)
    program = next((w for w in script.words if w.endswith(".py") and "pretrain" in w), "")
    for other in names.OTHER_PROGRAMS:
        if f"pretrain_{other}" in program:
            raise UserInputError(
                f"{path}: {program} trains another kind of model ({other})",
                hint="dense decoders (pretrain_gpt.py) are known",
            )
    # A flag has no value: it stands for true.
    values: dict[str, Any] = {
        name: (found[0] if found else True) for name, found in script.options.items()
    }
    fields = Fields(values, path, text=True)
    return _read(
        fields, path, notes=list(script.ambiguous), world=_world_size(fields, script), gpus=gpus,
        vocab_size=vocab_size, is_yaml=False, model_only=model_only,
    )  # fmt: skip


def read_megatron_yaml(
    data: Any,
    path: str,
    *,
    gpus: int | None = None,
    vocab_size: int | None = None,
    model_only: bool = False,
) -> Imported:
    """Read a Megatron-LM YAML: flat, in sections, or with argument names as keys.

    Args:
        data: the parsed file.
        path: what errors call it.
        gpus: GPUs it runs on; a YAML of arguments does not say.
        vocab_size: tokens of the vocabulary, where it comes with the tokenizer.
        model_only: leave the plan (and mistakes in it) alone.

    Raises:
        UserInputError: as `read_megatron_script`.
    """
    if not isinstance(data, dict):
        raise UserInputError(f"{path}: a Megatron YAML must be a table of arguments")
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if key in _ENVIRONMENT:
            continue
        # Sections (language_model, model_parallel, MODEL_ARGS) only group; names are unique.
        table = value if isinstance(value, dict) else {key: value}
        for name, inner in table.items():
            flat[str(name).lstrip("-").replace("-", "_").lower()] = inner
    fields = Fields(flat, path, text=True)
    world = fields.maybe_whole("world_size")
    return _read(fields, path, notes=[], world=world, gpus=gpus, vocab_size=vocab_size,
                 is_yaml=True, model_only=model_only)  # fmt: skip


def _read(
    fields: Fields, path: str, *, notes: list[str], world: int | None, gpus: int | None,
    vocab_size: int | None, is_yaml: bool, model_only: bool,
) -> Imported:  # fmt: skip
    if world is not None and gpus is not None and world != gpus:
        # Launch scripts are often shipped with one node as a placeholder.
        notes.append(f"the file runs on {world} GPUs; {gpus} are taken, as asked for")
    with labelled(path):
        architecture = read_architecture(fields, notes, vocab_size=vocab_size, is_yaml=is_yaml)
        seq_length = fields.whole("seq_length", "encoder_seq_length")
        plan = None
        if not model_only:
            plan = _plan(fields, path, notes, architecture.num_layers, gpus or world)
        tokens = _tokens(fields, notes, seq_length, plan)
        hints = _hints(fields)
    fields.ignore(names.WITHOUT_EFFECT | names.LAUNCHER, names.PREFIXES)
    return Imported(
        source="megatron",
        path=path,
        architecture=architecture,
        plan=plan,
        seq_length=seq_length,
        tokens=tokens,
        gpus=gpus or world,
        stack=hints,
        unknown_fields=fields.unknown,
        ignored_fields=fields.ignored,
        notes=tuple(notes),
    )


def _plan(
    fields: Fields, path: str, notes: list[str], layers: int, gpus: int | None
) -> Plan | None:
    tp = fields.whole("tensor_model_parallel_size", "model_parallel_size", default=1)
    pp = fields.whole("pipeline_model_parallel_size", default=1)
    cp = fields.whole("context_parallel_size", default=1)
    if (experts := fields.whole("expert_model_parallel_size", default=1)) > 1:
        raise UserInputError(
            f"{path}: expert_model_parallel_size={experts} in a model without experts",
            hint="nearest valid: 1",
        )
    virtual = _virtual_stages(fields, path, layers, pp)
    recompute = _recompute(fields, notes)
    sharding = _sharding(fields, notes)
    sequence_parallel = fields.flag("sequence_parallel")
    if sequence_parallel and tp == 1:
        notes.append("sequence_parallel has no effect at tp=1")
        sequence_parallel = False
    micro = fields.maybe_whole("micro_batch_size", "batch_size")
    batch = fields.maybe_whole("global_batch_size")
    if micro is None or gpus is None:
        missing = "micro_batch_size" if micro is None else "the number of GPUs (pass --gpus N)"
        notes.append(f"no plan: the file lacks {missing}")
        return None
    dp = replicas(gpus=gpus, tp=tp, pp=pp, cp=cp, label=path)
    if batch is None:
        batch = micro * dp
        notes.append(f"global_batch_size is not in the file: Megatron's default, {batch}")
    if fields.has("rampup_batch_size"):
        notes.append("rampup_batch_size is left out: the plan is that of the full batch")
    return Plan(
        tp=tp, cp=cp, pp=pp, dp=dp, virtual_stages=virtual, micro_batch_size=micro,
        global_batch_size=batch, recompute=recompute, sharding=sharding,
        sequence_parallel=sequence_parallel,
    )  # fmt: skip


def _virtual_stages(fields: Fields, path: str, layers: int, pp: int) -> int:
    virtual = fields.maybe_whole(
        "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"
    )
    chunk = fields.maybe_whole("num_layers_per_virtual_pipeline_stage")
    if chunk is None:
        return virtual or 1
    if layers % (pp * chunk):
        raise UserInputError(
            f"{path}: pp x num_layers_per_virtual_pipeline_stage = {pp} x {chunk} must divide "
            f"num_layers={layers}",
        )
    found = layers // (pp * chunk)
    if virtual not in (None, found):
        raise UserInputError(
            f"{path}: num_layers_per_virtual_pipeline_stage={chunk} makes {found} virtual stages, "
            f"which contradicts {virtual}"
        )
    return found


def _recompute(fields: Fields, notes: list[str]) -> str:
    granularity = fields.word("recompute_granularity", "activations_checkpoint_granularity")
    method = fields.word("recompute_method", "activations_checkpoint_method")
    layers = fields.maybe_whole("recompute_num_layers", "activations_checkpoint_num_layers")
    modules = fields.raw("recompute_modules")
    old_full = fields.flag("checkpoint_activations")
    if granularity is None and (old_full or method is not None):
        granularity = "full"
    if fields.flag("recompute_activations") and granularity is None:
        granularity = "selective"
    if granularity not in (None, "none", "selective", "full"):
        raise UserInputError(
            f"recompute_granularity={granularity} is not known", hint="selective or full"
        )
    if granularity == "full" and (method == "block" or (layers or 1) > 1):
        notes.append(
            f"recompute_method={method} with recompute_num_layers={layers} is counted as full "
            "recomputation of every layer"
        )
    if granularity == "selective" and modules not in (None, "core_attn", ["core_attn"]):
        notes.append(f"recompute_modules={modules}: the stack's own selection is used")
    return granularity or "none"


def _sharding(fields: Fields, notes: list[str]) -> str:
    strategy = fields.word("data_parallel_sharding_strategy", default="no_shard")
    # All three are always taken, so that none is listed as unknown.
    fsdp = [fields.flag(name) for name in ("use_megatron_fsdp", "use_custom_fsdp")]
    torch_fsdp = fields.flag("use_torch_fsdp2")
    distributed = fields.flag("use_distributed_optimizer")
    stage = fields.maybe_whole("zero_stage", least=0)
    if torch_fsdp:
        return "zero3"
    if any(fsdp):
        if strategy not in FSDP_STRATEGIES:
            raise UserInputError(
                f"data_parallel_sharding_strategy={strategy} is not known",
                hint=f"one of {', '.join(FSDP_STRATEGIES)}",
            )
        return FSDP_STRATEGIES[str(strategy)]
    if stage:
        return f"zero{stage}"
    if stage == 0 and fields.flag("bf16"):
        # DeepSpeed's BF16_Optimizer divides the optimizer state over replicas by itself.
        notes.append("DeepSpeed's bf16 optimizer shards like zero1, whatever zero_stage=0 says")
        return "zero1"
    return "zero1" if distributed else "none"


def _tokens(fields: Fields, notes: list[str], seq_length: int, plan: Plan | None) -> int | None:
    iterations = fields.maybe_whole("train_iters")
    samples = fields.maybe_whole("train_samples")
    whole = fields.maybe_whole("train_tokens")
    if plan is None:
        return None
    step = plan.global_batch_size * seq_length
    if iterations is not None:
        return iterations * step
    total = whole if samples is None else samples * seq_length
    if total is None:
        return None
    if total % step:
        rounded = max(1, round(total / step)) * step
        notes.append(f"{total} training tokens are rounded to whole steps: {rounded}")
        return rounded
    return total


def _hints(fields: Fields) -> StackHints:
    settings = {}
    for name in (
        "overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "grad_reduce_in_bf16",
        "no_overlap_p2p_communication", "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
    ):  # fmt: skip
        if fields.flag(name):
            settings[name] = "true"
    for name in ("attention_backend", "transformer_impl"):
        value = fields.word(name)
        if value is not None:
            settings[name] = value
    if fields.flag("use_flash_attn"):
        settings["attention_backend"] = "flash"
    fp8 = fields.raw("fp8_format", "fp8")
    precision = "fp8" if fp8 not in (None, False) else None
    bf16, fp16 = fields.flag("bf16"), fields.flag("fp16")
    if precision is None:
        precision = "bf16" if bf16 else "fp16" if fp16 else None
    split = fields.word("pp_partition_method")
    if split is not None:
        settings["pp_partition_method"] = split.strip("'\"")
    name = "megatron-core-2025"
    if fields.has("zero_stage") or fields.has("deepspeed"):
        name = "megatron-deepspeed-2022-bf16" if bf16 else "megatron-deepspeed-2022"
    return StackHints(
        name=name,
        precision=precision,
        settings=settings,
    )


def _world_size(fields: Fields, script: Script) -> int | None:
    """Return nodes x processes a node as the launcher of a script has them."""
    per_node = _number(
        fields.raw("nproc_per_node", "num_gpus"), script.batch.get("gpus_per_node"),
        script.batch.get("ntasks_per_node"), script.variables.get("GPUS_PER_NODE"),
    )  # fmt: skip
    nodes = _number(
        fields.raw("nnodes", "num_nodes"), script.batch.get("nodes"),
        script.variables.get("NNODES"), script.variables.get("NUM_NODES"),
    )  # fmt: skip
    fields.raw("nodes")
    if per_node is not None and nodes is not None:
        return per_node * nodes
    return _number(script.variables.get("WORLD_SIZE"))


def _number(*candidates: Any) -> int | None:
    """Return the first candidate that is a plain number."""
    for value in candidates:
        digits = str(value).rsplit(":", 1)[-1]
        if digits.isdigit() and int(digits) > 0:
            return int(digits)
    return None
