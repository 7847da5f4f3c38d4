"""What the training software does: the same plan under two frameworks is not the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE, SHARDING

LAYER_SPLITS = ("even", "counted-ends", "cost-rule")
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "fp4")
ATTENTION_KERNELS = ("unfused", "flash1", "flash2", "flash3")
SELECTIVE_MODULES = ("attention", "norm", "activation", "mlp", "every-second-matmul")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCost:
    """Time a host needs to launch the work of one layer for one micro-batch.

    The device waits for the host where the launches take longer than the kernels: a floor under
    the time of forward and backward together.

    Attributes:
        floor_s: seconds a layer and micro-batch at tp = 1.
        floor_tp_s: the same by tp where tensor parallelism adds collectives to every layer, as
            (tp, seconds) pairs in rising tp; values between take those of the next smaller tp.
        floor_tp_pp_s: the same where the pipeline crosses nodes as well.
        blocking_s: seconds a layer and micro-batch that pass between kernels because every launch
            waits for the one before (CUDA_LAUNCH_BLOCKING), forward and backward together.
        step_s: seconds of every step that depend on nothing (logging, data, optimizer launches).
    """

    floor_s: float = 0.0
    floor_tp_s: tuple[tuple[int, float], ...] = ()
    floor_tp_pp_s: tuple[tuple[int, float], ...] = ()
    blocking_s: float = 0.0
    step_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Share of each kind of traffic that hides behind compute, 0 to 1, and its price.

    Attributes:
        tp: tensor-parallel collectives.
        dp_reduce: gradient reduction behind the backward pass.
        dp_gather: parameter gathering behind the forward pass.
        send_recv: stage-to-stage traffic (interleaved schedules only).
        slow_down: factor on compute while a collective runs beside it.
    """

    tp: float = 0.0
    dp_reduce: float = 0.0
    dp_gather: float = 0.0
    send_recv: float = 0.0
    slow_down: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares outside 0 to 1.

        Raises:
            UserInputError: naming the field.
        """
        for name in ("tp", "dp_reduce", "dp_gather", "send_recv"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserInputError(
                    f"overlap.{name}={getattr(self, name)} must lie between 0 and 1"
                )
        if self.slow_down < 1.0:
            raise UserInputError(f"overlap.slow_down={self.slow_down} must be at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes a parameter costs, by what sharding may divide.

    Attributes:
        weights: the copy that computes (2 for bf16); zero3 keeps `sharded_weights` instead.
        gradients: the buffer that accumulates over micro-batches.
        optimizer: master weights and moments; divided from zero1 on.
        transient_gradients: gradients alive only during backward (nanotron's bf16 `.grad`).
        step_copies: copies made during the optimizer step, divided like the optimizer state.
        step_copies_flat: the copies are single huge tensors, which find no room in the segments
            that activations leave behind: the allocator reserves them on top.
        gradients_sharded_from: first sharding level that divides the accumulation buffer.
        sharded_weights: the shard of the computing copy that zero3 keeps; 0 where the fp32
            master weights are the parameter itself (PyTorch FSDP).
        fp8_copies: bytes a matrix weight adds where the precision is fp8 (cast and transposed
            copies that live through the step).
        weight_gradient_buffers: bytes a matrix weight of one layer costs in buffers that stand in
            for its gradient, and of the output matrix while the loss runs backward (gradient
            accumulation fused into the product needs one placeholder a shape).
        sharding_group: ranks one shard set spans at most (hybrid sharding); 0: all replicas.
    """

    weights: float = 2.0
    gradients: float = 4.0
    optimizer: float = 12.0
    transient_gradients: float = 0.0
    step_copies: float = 0.0
    step_copies_flat: bool = False
    gradients_sharded_from: str = "zero2"
    sharded_weights: float = 2.0
    fp8_copies: float = 0.0
    weight_gradient_buffers: float = 0.0
    sharding_group: int = 0

    def __post_init__(self) -> None:
        """Refuse negative bytes and unknown sharding levels.

        Raises:
            UserInputError: naming the field.
        """
        _no_negative("state", self)
        if self.gradients_sharded_from not in SHARDING[1:]:
            raise UserInputError(
                f"state.gradients_sharded_from={self.gradients_sharded_from!r} is not known",
                hint=f"one of {', '.join(SHARDING[1:])}",
            )

    @property
    def total(self) -> float:
        """Bytes a parameter before sharding, transients left out."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationBytes:
    """What one layer keeps from forward to backward, beyond what any implementation must.

    Attributes:
        attention_output_copies: copies of the attention output (flash keeps its own, the output
            projection its input; they are one tensor unless the layout changes between).
        score_bytes: bytes of one kept softmax output where attention is not fused.
        gathered_inputs_kept: sequence parallelism keeps the gathered inputs of the two column
            projections whole, instead of their shards.
        linear_input: bytes of one element of a kept linear input (1 where fp8 inputs are kept).
        pipeline_outputs_kept: a stage keeps its outputs until their backward pass (Megatron-LM
            frees their data once they are sent).
        compiled: layers are compiled, so that only what the backward pass reads is kept (a
            recomputation policy alone keeps what it names, read or not).
        selective: what selective recomputation recomputes, out of SELECTIVE_MODULES.
        stream_gradients: gradients of the residual stream alive while one layer runs backward.
        whole_buffers: hidden-size buffers never divided by tp while a layer runs backward under
            sequence parallelism (gathered input, its gradient before the scatter).
    """

    attention_output_copies: float = 1.0
    score_bytes: float = 2.0
    gathered_inputs_kept: bool = False
    linear_input: float = 2.0
    pipeline_outputs_kept: bool = False
    compiled: bool = False
    selective: tuple[str, ...] = ("attention",)
    stream_gradients: float = 2.0
    whole_buffers: float = 2.0

    def __post_init__(self) -> None:
        """Refuse negative bytes and unknown modules.

        Raises:
            UserInputError: naming the field.
        """
        _no_negative("activations", self)
        for module in self.selective:
            if module not in SELECTIVE_MODULES:
                raise UserInputError(
                    f"activations.selective has {module!r}, which is not known",
                    hint=f"any of {', '.join(SELECTIVE_MODULES)}",
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathering:
    """How zero3 brings sharded weights back while it computes.

    Attributes:
        layers_ahead: layers whose weights are whole at one time during backward (the running
            one and those prefetched).
        weights: bytes a gathered parameter.
        gradients: bytes a parameter of a gradient before it is reduced.
        reduction: bytes a parameter of the copy that is reduced (fp32), one layer at a time.
        ends_stay: embedding and head stay whole from forward to backward (one root unit).
        accumulated: bytes a parameter of whole gradients kept between the micro-batches of a
            pipeline, where weights stay whole as well; 0 where every micro-batch reduces.
    """

    layers_ahead: float = 2.0
    weights: float = 2.0
    gradients: float = 2.0
    reduction: float = 4.0
    ends_stay: bool = True
    accumulated: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative bytes.

        Raises:
            UserInputError: naming the field.
        """
        _no_negative("gathering", self)


def _no_negative(table: str, values: object) -> None:
    for item in fields(values):  # type: ignore[arg-type]
        value = getattr(values, item.name)
        if isinstance(value, int | float) and not 0.0 <= value < float("inf"):
            raise UserInputError(
                f"{table}.{item.name}={value} must be finite and not negative", hint="use 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedConstant:
    """Where a constant that no table holds was fitted, so that no source judges itself.

    Attributes:
        sources: run sources whose rows entered the fit ("prefix" or "prefix/GPU").
        without: the value refitted with one of them left out, by source; a source that is
            missing here was the only one, so its own rows cannot judge the constant.
    """

    sources: tuple[str, ...]
    without: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """One training framework at one time, as far as time and memory depend on it.

    Attributes:
        name: file name of the stack.
        title: what people call it.
        precision: format of the matrix multiplications, one of PRECISIONS (mxfp8: block-scaled
            fp8; fp4: block-scaled, NVFP4).
        attention: kernel of the attention core, one of ATTENTION_KERNELS.
        fused_norm: norms run as one fused kernel.
        fused_activation: activation (and gate product) run as one fused kernel.
        fused_rope: rotary embedding runs as one fused kernel.
        dropout: residual and attention dropout are on.
        checkpoint_bytes_per_s: rate at which the kept inputs of fully recomputed layers leave the
            device and return, nothing hidden; 0 where they stay.
        attention_rate: rate of this stack's fused attention over the tabulated kernel of its
            generation.
        score_traffic: traffic of softmax and dropout of unfused attention over the least it takes
            (each operand read or written once).
        power_relief: rate of power-limited products inside a step over their rate back to back;
            the rest of a step draws less power.
        loss_traffic_bytes_per_logit: memory traffic of the loss, forward and backward together.
        loss_memory_bytes_per_logit: bytes a logit alive at the peak of the loss.
        accumulation_traffic_bytes_per_parameter: traffic of adding one micro-batch's gradient.
        optimizer_traffic_bytes_per_parameter: traffic of the optimizer step.
        state: bytes a parameter.
        activations: bytes a token that a layer keeps.
        gathering: how zero3 gathers weights.
        gradient_reduce_bytes: bytes a parameter in the gradient reduction.
        parameter_gather_bytes: bytes a parameter in the parameter gathering.
        bucket_bytes: size of one message of the gradient reduction; 0 sends one message.
        zero1_reduces_with: collective of the gradients under zero1, "reduce_scatter" or
            "all_reduce".
        overlap: what hides behind compute.
        host: launch cost.
        splits_boundary: activations between stages travel split over tp and are gathered on
            arrival where sequence parallelism does not split them anyway.
        boundary_messages: messages that follow one another where 1 exchanges both directions at
            once (DeepSpeed sends and receives in turn: 2).
        layer_split: how layers are laid on stages, one of LAYER_SPLITS.
        vocab_multiple: the vocabulary is padded to this times tp.
        min_micro_batches_less_stages: the framework asserts micro-batches - pp >= this.
        default_sharding: sharding unless the plan says otherwise.
        default_recompute: recomputation unless the plan says otherwise.
        default_sequence_parallel: whether tp > 1 brings sequence parallelism.
        supports_interleaving: virtual stages are available.
        reserved_over_allocated: bytes the allocator holds for each byte in use.
        context_bytes: device memory outside the allocator (CUDA context, NCCL).
        buffer_bytes: framework and communication buffers inside the allocator.
        bucket_parameters_max: parameters in one communication bucket at most (dp > 1).
        bucket_bytes_per_parameter: bytes such a bucket holds for each of its parameters.
        bucket_takes_whole_tensors: a bucket is sent once it exceeds its size, so that it can hold
            the whole embedding.
        time_log_sd: standard deviation of log(measured / predicted) step time; 0.082 to 0.100 on
            the published runs, whichever source is left out (results/validation).
        memory_log_sd: the same for peak memory.
        fitted: which fields were fitted to runs, and on which.
        sources: where each value comes from, by field.
    """

    name: str
    title: str
    precision: str = "bf16"
    attention: str = "flash3"
    fused_norm: bool = True
    fused_activation: bool = True
    fused_rope: bool = True
    dropout: bool = False
    checkpoint_bytes_per_s: float = 0.0
    attention_rate: float = 1.0
    score_traffic: float = 1.0
    power_relief: float = 1.055
    loss_traffic_bytes_per_logit: float = 16.0
    loss_memory_bytes_per_logit: float = 6.0
    accumulation_traffic_bytes_per_parameter: float = 10.0
    optimizer_traffic_bytes_per_parameter: float = 30.0
    state: StateBytes = field(default_factory=StateBytes)
    activations: ActivationBytes = field(default_factory=ActivationBytes)
    gathering: Gathering = field(default_factory=Gathering)
    gradient_reduce_bytes: float = 4.0
    parameter_gather_bytes: float = 2.0
    bucket_bytes: float = 0.0
    zero1_reduces_with: str = "reduce_scatter"
    overlap: Overlap = field(default_factory=Overlap)
    host: HostCost = field(default_factory=HostCost)
    splits_boundary: bool = True
    boundary_messages: float = 1.0
    layer_split: str = "even"
    vocab_multiple: int = 128
    min_micro_batches_less_stages: int | None = None
    default_sharding: str = "zero1"
    default_recompute: str = "none"
    default_sequence_parallel: bool = True
    supports_interleaving: bool = True
    reserved_over_allocated: float = 1.05
    context_bytes: float = 1.5 * 2**30
    buffer_bytes: float = 1.0 * 2**30
    bucket_parameters_max: float = 0.0
    bucket_bytes_per_parameter: float = 0.0
    bucket_takes_whole_tensors: bool = False
    time_log_sd: float = 0.09
    memory_log_sd: float = 0.06
    fitted: Mapping[str, FittedConstant] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse names that nothing implements.

        Raises:
            UserInputError: naming the field and its valid choices.
        """
        for name, choices in (
            ("attention", ATTENTION_KERNELS),
            ("layer_split", LAYER_SPLITS),
            ("default_sharding", SHARDING),
            ("default_recompute", RECOMPUTE),
            ("zero1_reduces_with", ("reduce_scatter", "all_reduce")),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in choices:
                raise UserInputError(
                    f"stack {self.name}: {name}={getattr(self, name)!r} is not known",
                    hint=f"one of {', '.join(choices)}",
                )
