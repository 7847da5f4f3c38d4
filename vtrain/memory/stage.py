"""Memory of one pipeline stage: the one place where the memory physics is written.

Rows are plans (search) or the stages of one plan (breakdown); every size is a float64 array or a
scalar that broadcasts. What software and structure decide is scalar.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.memory.activations import ELEMENT, MASK, TokenBytes, layer_activations
from vtrain.memory.parameters import RankParameters, rank_parameters
from vtrain.plan import SHARDING

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.architecture import Architecture
    from vtrain.plan import Structure
    from vtrain.stack import Stack

    Floats = npt.NDArray[np.float64]

MOMENTS = ("backward", "loss", "optimizer step")


class Sizes(NamedTuple):
    """Sizes of the plans, float64, one entry a plan."""

    tp: Floats
    cp: Floats
    pp: Floats
    dp: Floats
    virtual_stages: Floats
    micro_batch_size: Floats
    num_micro_batches: Floats


class Place(NamedTuple):
    """Which stage: its index, its layers, whether it holds the input and the output.

    `embedding` and `head` are 1.0 or 0.0, so that they can differ from row to row.
    """

    stage: Floats | float
    layers: Floats
    embedding: Floats | float
    head: Floats | float


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What all stages of a plan have in common, one entry a plan; bytes unless said otherwise.

    Attributes:
        sizes: the plans.
        parameters: of one rank.
        layer_kept: one layer's activations of one micro-batch.
        layer_backward: what one layer adds while it runs backward (gradients of activations,
            recomputed activations, gathered inputs).
        whole: gathered inputs and unscattered gradients of one product.
        stream: the residual stream of one micro-batch on one rank.
        embedding_kept: what the embedding keeps for one micro-batch.
        logits: the loss at its peak.
        shards: ranks that share the optimizer state.
    """

    sizes: Sizes
    parameters: RankParameters
    layer_kept: Floats
    layer_backward: Floats
    whole: Floats | float
    stream: Floats
    embedding_kept: Floats
    logits: Floats
    shards: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes of one stage by item, one entry a row; `parameters` is a count.

    Standing items are there all the time, the others at the moments named.

    Attributes:
        parameters: parameters of the stage on one rank (count).
        weights: computing copy, with fp8 copies.
        gradients: accumulation buffer.
        optimizer: master weights and moments.
        buffers: communication buckets and framework buffers.
        backward_gradients: gradients alive only from forward to the end of backward.
        activations: kept for all micro-batches in flight.
        backward: working memory of the layer that runs backward, with what zero3 gathers.
        loss: what the output layer keeps and the logits at their peak, likewise.
        optimizer_step: copies made during the step.
    """

    parameters: Floats
    weights: Floats
    gradients: Floats
    optimizer: Floats
    buffers: Floats
    backward_gradients: Floats
    activations: Floats
    backward: Floats
    loss: Floats
    optimizer_step: Floats

    @property
    def standing(self) -> Floats:
        """Bytes that are always there."""
        return self.weights + self.gradients + self.optimizer + self.buffers

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Bytes allocated at each of MOMENTS."""
        standing = self.standing
        forward = standing + self.activations + self.backward_gradients
        return forward + self.backward, forward + self.loss, standing + self.optimizer_step

    def peak(self) -> Floats:
        """Bytes allocated at the worst moment."""
        backward, loss, step = self.moments()
        return np.maximum(np.maximum(backward, loss), step)

    def reserved(self, stack: Stack) -> Floats:
        """Bytes the allocator holds after the worst moment."""
        if not stack.state.step_copies_flat:
            return self.peak() * stack.reserved_over_allocated
        backward, loss, _ = self.moments()
        apart = np.maximum(backward, loss) + self.optimizer_step
        return apart * stack.reserved_over_allocated

    def row(self, index: int) -> StageMemory:
        """Return one row, every item a 0-d array."""
        return StageMemory(
            **{
                item.name: np.asarray(np.broadcast_to(getattr(self, item.name), self.shape)[index])
                for item in fields(self)
            }
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows."""
        return np.broadcast_shapes(*(np.shape(getattr(self, f.name)) for f in fields(self)))


def shared_terms(
    architecture: Architecture,
    stack: Stack,
    structure: Structure,
    sizes: Sizes,
    seq_length: int,
) -> Shared:
    """Compute what the stages of each plan share.

    Args:
        architecture: the model.
        stack: the software.
        structure: what the formulas branch on.
        sizes: the plans.
        seq_length: tokens of one sequence.
    """
    a, facts = architecture, stack.activations
    sequence_parallel = structure.sequence_parallel
    layer = layer_activations(
        a, stack, structure.recompute, seq_length, sequence_parallel=sequence_parallel
    )
    tokens = sizes.micro_batch_size * seq_length / sizes.cp
    split = tokens / sizes.tp
    stream_tokens = split if sequence_parallel else tokens
    key_value = tokens / np.minimum(sizes.tp, a.num_key_value_heads)

    def held(value: TokenBytes) -> Floats:
        total = split * value.split + key_value * value.key_value + stream_tokens * value.stream
        return total + tokens * value.whole if value.whole else total

    # Backward of the feed-forward block holds the gradients of its inner activations beside
    # the activations themselves, and the gradients of the residual stream.
    h = a.hidden_size
    gradients = TokenBytes(
        split=(a.mlp_matrices - 1) * ELEMENT * a.ffn_hidden_size,
        stream=facts.stream_gradients * ELEMENT * h,
    )
    backward = held(gradients + layer.recomputed)
    whole: Floats | float = 0.0
    if sequence_parallel and facts.whole_buffers:
        whole = np.where(sizes.tp > 1, tokens * (facts.whole_buffers * ELEMENT * h), 0.0)
        backward = backward + whole
    parameters = rank_parameters(a, stack.vocab_multiple, sizes.tp)
    replicas = sizes.dp * sizes.cp
    if stack.state.sharding_group:
        replicas = np.minimum(replicas, stack.state.sharding_group)
    return Shared(
        sizes=sizes,
        parameters=parameters,
        layer_kept=held(layer.kept),
        layer_backward=backward,
        whole=whole,
        stream=stream_tokens * (ELEMENT * h),
        embedding_kept=stream_tokens * (MASK * h if stack.dropout else 0.0),
        logits=tokens * parameters.vocab_rows * stack.loss_memory_bytes_per_logit,
        shards=replicas,
    )


def stage_memory(
    architecture: Architecture, stack: Stack, structure: Structure, shared: Shared, place: Place
) -> StageMemory:
    """Return the itemised memory of one stage for every row.

    Args:
        architecture: the model.
        stack: the software.
        structure: what the formulas branch on.
        shared: from `shared_terms`.
        place: which stage, one entry a row or scalar.
    """
    state, sizes, p = stack.state, shared.sizes, shared.parameters
    level = SHARDING.index(structure.sharding)
    head = p.head - p.tied_head * place.embedding
    parameters = place.layers * p.layer + p.embedding * place.embedding + head * place.head
    shards = shared.shards if level else 1.0
    per_weight = state.sharded_weights / shards if level == 3 else state.weights
    weights = parameters * per_weight
    if stack.precision == "fp8" and state.fp8_copies:
        weights = weights + state.fp8_copies * place.layers * p.layer_matrices
    divided = level >= SHARDING.index(state.gradients_sharded_from)
    gradients = parameters * (state.gradients / (shards if divided else 1.0))
    buffers = stack.buffer_bytes + state.weight_gradient_buffers * p.layer_matrices
    if stack.bucket_parameters_max:
        largest: Floats | float = stack.bucket_parameters_max
        if stack.bucket_takes_whole_tensors:
            largest = np.maximum(largest, p.embedding * place.embedding)
        bucket = np.minimum(parameters, largest)
        buffers = buffers + np.where(sizes.dp > 1, bucket * stack.bucket_bytes_per_parameter, 0.0)
    micro_batches, layer_batches = in_flight(structure.schedule, sizes, place.stage, place.layers)
    activations = layer_batches * shared.layer_kept
    if stack.dropout:
        activations = activations + micro_batches * place.embedding * shared.embedding_kept
    if stack.activations.pipeline_outputs_kept:
        activations = activations + micro_batches * (1.0 - place.head) * shared.stream
    # A pipeline stage receives activations and gradients into buffers of its own.
    backward = shared.layer_backward + np.where(sizes.pp > 1, 2.0 * shared.stream, 0.0)
    gathered_layer, gathered_loss = _gathered(stack, structure, shared, place)
    # Final norm input and output are kept for the one micro-batch whose loss is computed.
    output = state.weight_gradient_buffers * architecture.hidden_size * p.vocab_rows
    loss = place.head * (2.0 * shared.stream + shared.whole + shared.logits + output)
    return StageMemory(
        parameters=parameters,
        weights=weights,
        gradients=gradients,
        optimizer=parameters * (state.optimizer / shards),
        buffers=buffers,
        backward_gradients=parameters * state.transient_gradients,
        activations=activations,
        backward=backward + gathered_layer,
        loss=loss + gathered_loss,
        optimizer_step=parameters * (state.step_copies / shards),
    )


def _gathered(
    stack: Stack, structure: Structure, shared: Shared, place: Place
) -> tuple[Floats | float, Floats | float]:
    """Return what zero3 has made whole while a layer and while the loss runs backward."""
    if structure.sharding != "zero3":
        return 0.0, 0.0
    how, p = stack.gathering, shared.parameters
    head = (p.head - p.tied_head * place.embedding) * place.head
    ends = (p.embedding * place.embedding + head) * how.weights if how.ends_stay else 0.0
    always = ends + head * how.gradients
    running = np.minimum(place.layers, how.layers_ahead) * how.weights + how.gradients
    at_loss: Floats | float = how.weights
    if how.accumulated:
        # Between the micro-batches of a pipeline nothing is sharded again.
        staying = place.layers * (how.weights + how.accumulated)
        running = np.where(shared.sizes.pp > 1, staying, running)
        at_loss = np.where(shared.sizes.pp > 1, staying, at_loss)
    sharded = shared.shards > 1
    backward = always + (running + how.reduction) * p.layer
    return np.where(sharded, backward, 0.0), np.where(sharded, always + at_loss * p.layer, 0.0)


def in_flight(
    schedule: str, sizes: Sizes, stage: Floats | float, layers: Floats
) -> tuple[Floats, Floats]:
    """Return micro-batches, and layers x micro-batches, whose activations a stage holds at most.

    * 1F1B: min(m, p - i) on stage i (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).
    * interleaved 1F1B: 2 (p - i - 1) + (v - 1) p + 1 chunks of layers / v (Megatron-LM
      `core/pipeline_parallel/schedules.py`, warm-up count); on stage 0 this is L (1 + (p-1)/(pv))
      over p layers (Korthikanti et al. 2022, section 4.2.3).
    * GPipe: every micro-batch.
    * ZB-H1: min(m, p) on every stage; late weight gradients hold what early ones would free (Qi
      et al. 2023, arXiv 2401.10241, table 1).

    Args:
        schedule: one of `vtrain.plan.SCHEDULES`.
        sizes: the plans.
        stage: the pipeline rank.
        layers: layers of the rank.
    """
    m, pp, v = sizes.num_micro_batches, sizes.pp, sizes.virtual_stages
    if schedule == "gpipe":
        return m, m * layers
    if schedule == "zb-h1":
        deep = np.minimum(m, pp)
        return deep, deep * layers
    micro_batches = np.minimum(m, pp - stage)
    plain = micro_batches * layers
    if np.all(v == 1):
        return micro_batches, plain
    chunks = np.minimum(m * v, 2.0 * (pp - stage - 1.0) + (v - 1.0) * pp + 1.0)
    return micro_batches, np.where(v > 1, chunks * layers / v, plain)
