"""Which plans a framework would refuse to start, each rule with its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from vtrain.errors import UserInputError
from vtrain.plan import PlanTable

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.stack import Stack

BoolArray = npt.NDArray[np.bool_]


class Columns(Protocol):
    """The columns of a plan table a rule may look at; arrays that broadcast together."""

    @property
    def tp(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def cp(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def pp(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def virtual_stages(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def sequence_parallel(self) -> npt.NDArray[np.bool_]: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What a rule may know beside the plan."""

    architecture: Architecture
    cluster: Cluster
    stack: Stack
    seq_length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One condition a plan must meet.

    Attributes:
        name: short identifier.
        source: where the rule comes from.
        holds: True for the rows that obey.
        complaint: the sentence for one plan that does not, without the way out.
    """

    name: str
    source: str
    holds: Callable[[Context, Columns], BoolArray]
    complaint: Callable[[Context, Plan], str]


def _divides(value: int, divisor: npt.NDArray[np.int64]) -> BoolArray:
    divides: BoolArray = np.asarray(value % divisor == 0)
    return divides


def _layers_hold(context: Context, t: Columns) -> BoolArray:
    layers = context.architecture.num_layers
    if context.stack.layer_split == "even":
        return _divides(layers, t.pp * t.virtual_stages)
    if context.stack.layer_split == "counted-ends":
        single: BoolArray = np.asarray(t.pp == 1)
        return _divides(layers + 2, t.pp * t.virtual_stages) | single
    enough: BoolArray = np.asarray(t.pp * t.virtual_stages <= layers)
    return enough


def _divisor_complaint(field: str, value_of: Callable[[Context], int]) -> Callable[..., str]:
    def complain(context: Context, plan: Plan) -> str:
        return f"tp={plan.tp} must divide {field}={value_of(context)}"

    return complain


def _stages_complaint(context: Context, plan: Plan) -> str:
    layers, split = context.architecture.num_layers, context.stack.layer_split
    counted = "num_layers + 2" if split == "counted-ends" else "num_layers"
    slots = layers + 2 if split == "counted-ends" else layers
    return (
        f"pp x virtual_stages = {plan.pp} x {plan.virtual_stages} must "
        f"{'not exceed' if split == 'cost-rule' else 'divide'} {counted}={slots}"
    )


STRUCTURE_RULES: tuple[Rule, ...] = (
    Rule(
        name="heads-by-tp",
        source="Megatron-LM megatron/training/arguments.py; core/transformer/attention.py",
        holds=lambda c, t: _divides(c.architecture.num_attention_heads, t.tp),
        complaint=_divisor_complaint(
            "num_attention_heads", lambda c: c.architecture.num_attention_heads
        ),
    ),
    Rule(
        name="key-value-heads-by-tp",
        source="Megatron-LM core/transformer/transformer_config.py (num_query_groups)",
        holds=lambda c, t: _divides(c.architecture.num_key_value_heads, t.tp),
        complaint=_divisor_complaint(
            "num_key_value_heads", lambda c: c.architecture.num_key_value_heads
        ),
    ),
    Rule(
        name="ffn-by-tp",
        source="Megatron-LM core/tensor_parallel/layers.py (divide)",
        holds=lambda c, t: (
            _divides(c.architecture.ffn_hidden_size, t.tp)
            & _divides(c.architecture.hidden_size, t.tp)
        ),
        complaint=_divisor_complaint("ffn_hidden_size", lambda c: c.architecture.ffn_hidden_size),
    ),
    Rule(
        name="layers-by-stages",
        source="Megatron-LM megatron/training/arguments.py (num_layers % pipeline size)",
        holds=_layers_hold,
        complaint=_stages_complaint,
    ),
    Rule(
        name="interleaving-needs-stages",
        source="Megatron-LM megatron/training/arguments.py (interleaved schedule needs pp > 1)",
        holds=lambda c, t: (
            (t.virtual_stages == 1) | ((t.pp > 1) & bool(c.stack.supports_interleaving))
        ),
        complaint=lambda c, p: (
            f"virtual_stages={p.virtual_stages} needs pp > 1 and a stack that interleaves "
            f"(pp={p.pp}, stack {c.stack.name})"
        ),
    ),
    Rule(
        name="sequence-by-cp",
        source="Megatron-LM core/utils.py (2 x cp chunks for a balanced causal mask)",
        holds=lambda c, t: (t.cp == 1) | _divides(c.seq_length, 2 * t.cp),
        complaint=lambda c, p: (
            f"2 x cp = {2 * p.cp} must divide the sequence length {c.seq_length}"
        ),
    ),
    Rule(
        name="sequence-by-tp",
        source="Megatron-LM megatron/training/arguments.py (sequence parallel)",
        holds=lambda c, t: ~np.asarray(t.sequence_parallel) | _divides(c.seq_length, t.tp * t.cp),
        complaint=lambda c, p: (
            f"with sequence parallelism tp x cp = {p.tp * p.cp} must divide the sequence length "
            f"{c.seq_length}"
        ),
    ),
    Rule(
        name="sequence-parallel-needs-tp",
        source="Megatron-LM megatron/training/arguments.py",
        holds=lambda c, t: ~np.asarray(t.sequence_parallel) | (t.tp > 1),
        complaint=lambda c, p: "sequence parallelism needs tp > 1",
    ),
    Rule(
        name="learned-positions",
        source="a learned position table has no row beyond its length",
        holds=lambda c, t: np.broadcast_to(
            np.asarray(
                c.architecture.position != "learned" or c.seq_length <= c.architecture.max_positions
            ),
            np.shape(t.tp),
        ),
        complaint=lambda c, p: (
            f"sequence length {c.seq_length} exceeds max_positions={c.architecture.max_positions}"
        ),
    ),
)


def structure_mask(context: Context, columns: Columns) -> BoolArray:
    """Return which rows obey every rule that needs neither GPU count nor batch.

    Args:
        context: architecture, cluster, stack and sequence length.
        columns: arrays of one shape.

    Returns:
        Boolean array of that shape.
    """
    mask = np.ones(np.shape(columns.tp), dtype=bool)
    for rule in STRUCTURE_RULES:
        mask &= rule.holds(context, columns)
    return mask


def micro_batches_mask(
    stack: Stack,
    pp: npt.NDArray[np.int64],
    virtual_stages: npt.NDArray[np.int64],
    num_micro_batches: npt.NDArray[np.int64],
) -> BoolArray:
    """Return which rows run a number of micro-batches their schedule accepts.

    Interleaved 1F1B needs a multiple of pp (Megatron-LM
    core/pipeline_parallel/schedules.py); some engines assert a least number as well
    (nanotron `pipeline_parallel/engine.py`: gradient accumulation >= pp - 1).
    """
    mask: BoolArray = (virtual_stages == 1) | (num_micro_batches % pp == 0)
    if stack.min_micro_batches_less_stages is not None:
        mask &= num_micro_batches - pp >= stack.min_micro_batches_less_stages
    return mask


def whole_nodes_mask(cluster: Cluster, gpus: npt.NDArray[np.int64]) -> BoolArray:
    """Return which GPU counts are whole nodes (or fit in one) and exist in the cluster."""
    node = cluster.gpus_per_node
    mask: BoolArray = ((gpus <= node) | (gpus % node == 0)) & (gpus <= cluster.max_gpus)
    return mask & (gpus >= 1)


def is_valid(context: Context, plan: Plan) -> bool:
    """Return whether a framework would start a plan."""
    table = PlanTable.from_plans([plan])
    micro_batches = micro_batches_mask(
        context.stack, table.pp, table.virtual_stages, table.num_micro_batches
    )
    whole_nodes = whole_nodes_mask(context.cluster, table.gpus)
    return bool((structure_mask(context, table) & micro_batches & whole_nodes)[0])


def check_structure(context: Context, plan: Plan, gpus: int | None = None) -> None:
    """Refuse degrees that the model or its sequence cannot be split by.

    Args:
        context: architecture, cluster, stack and sequence length.
        plan: only its degrees matter.
        gpus: a count the nearest valid degrees should divide.

    Raises:
        UserInputError: with the first broken rule, its values and the nearest valid choice.
    """
    table = PlanTable.from_plans([plan])
    for rule in STRUCTURE_RULES:
        if not bool(rule.holds(context, table)[0]):
            from vtrain.nearest_valid import nearest_structure

            hint = nearest_structure(context, plan, gpus)
            if rule.name == "learned-positions":  # no degree mends it
                hint = f"nearest valid: a sequence of {context.architecture.max_positions}"
            raise UserInputError(rule.complaint(context, plan), hint=hint)


def check_gpus(context: Context, plan: Plan, gpus: int, batch: int) -> None:
    """Refuse a GPU count that a plan's degrees or the nodes do not divide.

    Args:
        context: architecture, cluster, stack and sequence length.
        plan: its degrees and micro-batch; replicas and batch do not matter.
        gpus: the count.
        batch: sequences of a step, which the nearest count should divide as well.

    Raises:
        UserInputError: with the rule, the count and the nearest valid one.
    """
    from vtrain.nearest_valid import nearest_gpus

    shards, cluster = plan.tp * plan.cp * plan.pp, context.cluster
    if gpus % shards:
        raise UserInputError(
            f"tp x cp x pp = {plan.tp} x {plan.cp} x {plan.pp} = {shards} must divide gpus={gpus}",
            hint=nearest_gpus(context, plan, gpus, batch),
        )
    if not bool(whole_nodes_mask(cluster, np.array([gpus]))[0]):
        raise UserInputError(
            f"gpus={gpus} must be whole nodes of {cluster.gpus_per_node} and at most "
            f"{cluster.max_gpus} on {cluster.name}",
            hint=nearest_gpus(context, plan, gpus, batch),
        )


def check_batch(context: Context, plan: Plan, dp: int, batch: int) -> None:
    """Refuse a batch that replicas and micro-batches do not divide, or the schedule cannot run.

    Args:
        context: architecture, cluster, stack and sequence length.
        plan: its stages and micro-batch; replicas and batch do not matter.
        dp: data-parallel replicas.
        batch: sequences of a step.

    Raises:
        UserInputError: with the rule, the batch and the nearest valid one.
    """
    from vtrain.nearest_valid import nearest_batch

    stack, unit = context.stack, dp * plan.micro_batch_size
    m = batch // unit
    if batch % unit:
        rule = (
            f"global_batch_size={batch} must be a multiple of dp x micro_batch_size = {dp} x "
            f"{plan.micro_batch_size} = {unit}"
        )
    elif plan.virtual_stages > 1 and m % plan.pp:
        rule = f"interleaving needs micro-batches ({m}) to be a multiple of pp={plan.pp}"
    else:
        least = plan.pp + (stack.min_micro_batches_less_stages or 0)
        if stack.min_micro_batches_less_stages is None or m >= least:
            return
        rule = f"stack {stack.name} needs at least {least} micro-batches at pp={plan.pp}, got {m}"
    near = nearest_batch(stack, plan, dp, batch)
    raise UserInputError(rule, hint=f"nearest valid: global_batch_size={near}")


def check_plan(context: Context, plan: Plan) -> None:
    """Refuse a plan that its framework would refuse.

    Raises:
        UserInputError: with the first broken rule, its values and the nearest valid choice.
    """
    check_structure(context, plan, plan.gpus)
    check_gpus(context, plan, plan.gpus, plan.global_batch_size)
    check_batch(context, plan, plan.dp, plan.global_batch_size)
