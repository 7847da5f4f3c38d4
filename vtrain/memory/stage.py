"""Memory of one pipeline stage: the one place where the memory physics is written.

Rows are plans (search) or the stages of one plan (breakdown); every size is a float64 array or a
scalar that broadcasts. What software and structure decide is scalar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.memory.activations import ELEMENT, MASK, TokenBytes, layer_activations
from vtrain.memory.parameters import RankParameters, rank_parameters
from vtrain.memory.states import StateRates, state_rates

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
        rates: bytes a parameter.
        buffers: framework buffers, placeholders of weight gradients.
        layer_kept: one layer's activations of one micro-batch.
        backward: what one layer adds while it runs backward (gradients of activations,
            recomputed activations, gathered inputs, receive buffers).
        stream: the residual stream of one micro-batch on one rank.
        loss: what the output layer keeps and its logits at their peak.
        sharded: states are spread over more than one rank.
        interleaved: some plan has virtual stages.
    """

    sizes: Sizes
    parameters: RankParameters
    rates: StateRates
    buffers: Floats | float
    layer_kept: Floats
    backward: Floats
    stream: Floats
    loss: Floats
    sharded: npt.NDArray[np.bool_]
    interleaved: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes of one stage by item, one entry a row.

    Standing items (weights, gradients, optimizer, buffers) are there all the time, the others
    at the moments named.

    Attributes:
        parameters: parameters of the stage on one rank (count).
        rates: bytes a parameter.
        fp8_copies: fp8 copies of weights.
        buffers: communication buckets and framework buffers.
        activations: kept for all micro-batches in flight.
        backward: working memory of the layer that runs backward, with what zero3 gathers.
        loss: what the output layer keeps and the logits at their peak, likewise.
    """

    parameters: Floats
    rates: StateRates
    fp8_copies: Floats | float
    buffers: Floats | float
    activations: Floats
    backward: Floats
    loss: Floats | float

    @property
    def weights(self) -> Floats:
        """Computing copy, with fp8 copies."""
        return self.parameters * self.rates.weights + self.fp8_copies

    @property
    def gradients(self) -> Floats:
        """Accumulation buffer."""
        return self.parameters * self.rates.gradients

    @property
    def optimizer(self) -> Floats:
        """Master weights and moments."""
        return self.parameters * self.rates.optimizer

    @property
    def backward_gradients(self) -> Floats:
        """Gradients alive only from forward to the end of backward."""
        return self.parameters * self.rates.backward_gradients

    @property
    def optimizer_step(self) -> Floats:
        """Copies made during the step."""
        return self.parameters * self.rates.optimizer_step

    @property
    def standing(self) -> Floats:
        """Bytes that are always there."""
        held = self.parameters * self.rates.standing + self.buffers
        return held if isinstance(self.fp8_copies, float) else held + self.fp8_copies

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Bytes allocated at each of MOMENTS."""
        standing = self.standing
        forward = standing + self.activations
        if self.rates.backward_gradients:
            forward = forward + self.backward_gradients
        return forward + self.backward, forward + self.loss, standing + self.optimizer_step

    def peak(self) -> Floats:
        """Bytes allocated at the worst moment."""
        standing = self.standing
        # Backward and loss differ in one item only, so the larger one decides.
        working = self.activations + np.maximum(self.backward, self.loss)
        if self.rates.backward_gradients:
            working = working + self.backward_gradients
        if isinstance(self.rates.optimizer_step, float) and not self.rates.optimizer_step:
            return standing + working
        return standing + np.maximum(working, self.optimizer_step)

    def reserved(self, stack: Stack) -> Floats:
        """Bytes the allocator holds after the worst moment."""
        if not stack.state.step_copies_flat:
            return self.peak() * stack.reserved_over_allocated
        backward, loss, _ = self.moments()
        apart = np.maximum(backward, loss) + self.optimizer_step
        return apart * stack.reserved_over_allocated

    def row(self, index: int) -> StageMemory:
        """Return one row, every item a 0-d array."""

        def at(value: Floats | float) -> Floats:
            return np.asarray(value if np.ndim(value) == 0 else np.asarray(value)[index])

        return StageMemory(
            parameters=at(self.parameters),
            rates=self.rates.at(index),
            fp8_copies=at(self.fp8_copies),
            buffers=at(self.buffers),
            activations=at(self.activations),
            backward=at(self.backward),
            loss=at(self.loss),
        )


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
    stream = stream_tokens * (ELEMENT * h)
    gradients = TokenBytes(
        split=(a.mlp_matrices - 1) * ELEMENT * a.ffn_hidden_size,
        stream=facts.stream_gradients * ELEMENT * h,
    )
    # A pipeline stage receives activations and gradients into buffers of its own.
    backward = held(gradients + layer.recomputed) + np.where(sizes.pp > 1, 2.0 * stream, 0.0)
    parameters = rank_parameters(a, stack.vocab_multiple, sizes.tp)
    # Final norm input and output are kept for the one micro-batch whose loss is computed.
    logits = tokens * stack.loss_memory_bytes_per_logit
    logits = logits + stack.state.weight_gradient_buffers * h
    loss = 2.0 * stream + logits * parameters.vocab_rows
    if sequence_parallel and facts.whole_buffers:
        whole = np.where(sizes.tp > 1, tokens * (facts.whole_buffers * ELEMENT * h), 0.0)
        backward = backward + whole
        loss = loss + whole
    replicas = sizes.dp * sizes.cp
    if stack.state.sharding_group:
        replicas = np.minimum(replicas, stack.state.sharding_group)
    buffers: Floats | float = stack.buffer_bytes
    if stack.state.weight_gradient_buffers:
        buffers = buffers + stack.state.weight_gradient_buffers * parameters.layer_matrices
    return Shared(
        sizes=sizes,
        parameters=parameters,
        rates=state_rates(stack, structure, replicas),
        buffers=buffers,
        layer_kept=held(layer.kept),
        backward=backward,
        stream=stream,
        loss=loss,
        sharded=replicas > 1,
        interleaved=bool(np.any(sizes.virtual_stages > 1)),
    )


def stage_memory(stack: Stack, structure: Structure, shared: Shared, place: Place) -> StageMemory:
    """Return the itemised memory of one stage for every row.

    Args:
        stack: the software.
        structure: what the formulas branch on.
        shared: from `shared_terms`.
        place: which stage, one entry a row or scalar.
    """
    state, sizes, p = stack.state, shared.sizes, shared.parameters
    parameters = place.layers * p.layer
    embedding = _where_held(place.embedding, p.embedding)
    head = _where_held(place.head, p.head - _where_held(place.embedding, p.tied_head))
    parameters = parameters + embedding + head
    fp8_copies: Floats | float = 0.0
    if stack.precision not in ("bf16", "fp16") and state.fp8_copies:
        fp8_copies = place.layers * (state.fp8_copies * p.layer_matrices)
    buffers = shared.buffers
    if stack.bucket_parameters_max:
        largest: Floats | float = stack.bucket_parameters_max
        if stack.bucket_takes_whole_tensors:
            largest = np.maximum(largest, embedding)
        bucket = np.minimum(parameters, largest)
        buffers = buffers + np.where(sizes.dp > 1, bucket * stack.bucket_bytes_per_parameter, 0.0)
    micro_batches, layer_batches = in_flight(structure.schedule, shared, place)
    activations = layer_batches * shared.layer_kept
    if stack.dropout:
        # The embedding keeps one dropout mask.
        masks = micro_batches * (shared.stream * (MASK / ELEMENT))
        activations = activations + _where_held(place.embedding, masks)
    if stack.activations.pipeline_outputs_kept:
        activations = activations + micro_batches * (1.0 - place.head) * shared.stream
    backward, loss = shared.backward, _where_held(place.head, shared.loss)
    if structure.sharding == "zero3":
        gathered_layer, gathered_loss = _gathered(stack, shared, place, embedding, head)
        backward, loss = backward + gathered_layer, loss + gathered_loss
    return StageMemory(
        parameters=parameters,
        rates=shared.rates,
        fp8_copies=fp8_copies,
        buffers=buffers,
        activations=activations,
        backward=backward,
        loss=loss,
    )


def _where_held(flag: Floats | float, value: Floats | float) -> Floats | float:
    """Return flag x value; scalar flags of 0 and 1 cost nothing."""
    if isinstance(flag, float):
        return value if flag else 0.0
    return flag * value


def _gathered(
    stack: Stack, shared: Shared, place: Place, embedding: Floats | float, head: Floats | float
) -> tuple[Floats, Floats]:
    """Return what zero3 has made whole while a layer and while the loss runs backward."""
    how, p = stack.gathering, shared.parameters
    ends = (embedding + head) * how.weights if how.ends_stay else 0.0
    always = ends + head * how.gradients
    running = np.minimum(place.layers, how.layers_ahead) * how.weights + how.gradients
    at_loss: Floats | float = how.weights
    if how.accumulated:
        # Between the micro-batches of a pipeline nothing is sharded again.
        staying = place.layers * (how.weights + how.accumulated)
        running = np.where(shared.sizes.pp > 1, staying, running)
        at_loss = np.where(shared.sizes.pp > 1, staying, at_loss)
    backward = always + (running + how.reduction) * p.layer
    sharded = shared.sharded
    return np.where(sharded, backward, 0.0), np.where(sharded, always + at_loss * p.layer, 0.0)


def in_flight(schedule: str, shared: Shared, place: Place) -> tuple[Floats, Floats]:
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
        shared: from `shared_terms`.
        place: which stage.
    """
    sizes = shared.sizes
    m, pp, v = sizes.num_micro_batches, sizes.pp, sizes.virtual_stages
    if schedule == "gpipe":
        return m, m * place.layers
    if schedule == "zb-h1":
        deep = np.minimum(m, pp)
        return deep, deep * place.layers
    micro_batches = np.minimum(m, pp - place.stage)
    plain = micro_batches * place.layers
    if not shared.interleaved:
        return micro_batches, plain
    chunks = np.minimum(m * v, 2.0 * (pp - place.stage - 1.0) + (v - 1.0) * pp + 1.0)
    return micro_batches, np.where(v > 1, chunks * place.layers / v, plain)
