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
        complaint: the sentence for one plan that does not.
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


def _nearest_divisor(value: int, wanted: int) -> int:
    return min(
        (d for d in range(1, value + 1) if value % d == 0), key=lambda d: (abs(d - wanted), d)
    )


def _divisor_complaint(field: str, value_of: Callable[[Context], int]) -> Callable[..., str]:
    def complain(context: Context, plan: Plan) -> str:
        value = value_of(context)
        near = _nearest_divisor(value, plan.tp)
        return f"tp={plan.tp} must divide {field}={value}; nearest valid: tp={near}"

    return complain


def _stages_complaint(context: Context, plan: Plan) -> str:
    layers, split = context.architecture.num_layers, context.stack.layer_split
    slots = layers + 2 if split == "counted-ends" else layers
    if split == "cost-rule":
        rule, pp, virtual = "not exceed", min(plan.pp, layers), 1
    else:
        rule, pp = "divide", _nearest_divisor(slots, plan.pp)
        virtual = _nearest_divisor(slots // pp, plan.virtual_stages)
    counted = "num_layers + 2" if slots != layers else "num_layers"
    return (
        f"pp x virtual_stages = {plan.pp} x {plan.virtual_stages} must {rule} {counted}={slots}; "
        f"nearest valid: pp={pp}, virtual_stages={virtual}"
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
            f"(pp={p.pp}, stack {c.stack.name}); nearest valid: virtual_stages=1"
        ),
    ),
    Rule(
        name="sequence-by-cp",
        source="Megatron-LM core/utils.py (2 x cp chunks for a balanced causal mask)",
        holds=lambda c, t: (t.cp == 1) | _divides(c.seq_length, 2 * t.cp),
        complaint=lambda c, p: (
            f"2 x cp = {2 * p.cp} must divide the sequence length {c.seq_length}; nearest valid: "
            f"cp={max(1, _nearest_divisor(c.seq_length, 2 * p.cp) // 2)}"
        ),
    ),
    Rule(
        name="sequence-by-tp",
        source="Megatron-LM megatron/training/arguments.py (sequence parallel)",
        holds=lambda c, t: ~np.asarray(t.sequence_parallel) | _divides(c.seq_length, t.tp * t.cp),
        complaint=lambda c, p: (
            f"with sequence parallelism tp x cp = {p.tp * p.cp} must divide the sequence length "
            f"{c.seq_length}; nearest valid: "
            f"tp={_nearest_divisor(c.seq_length // p.cp or 1, p.tp)}"
        ),
    ),
    Rule(
        name="sequence-parallel-needs-tp",
        source="Megatron-LM megatron/training/arguments.py",
        holds=lambda c, t: ~np.asarray(t.sequence_parallel) | (t.tp > 1),
        complaint=lambda c, p: "sequence parallelism needs tp > 1; nearest valid: off",
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
            f"sequence length {c.seq_length} exceeds max_positions="
            f"{c.architecture.max_positions}; nearest valid: {c.architecture.max_positions}"
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


def check_structure(context: Context, plan: Plan) -> None:
    """Refuse degrees that the model or its sequence cannot be split by.

    Raises:
        UserInputError: with the first broken rule, its values and the nearest valid choice.
    """
    table = PlanTable.from_plans([plan])
    for rule in STRUCTURE_RULES:
        if not bool(rule.holds(context, table)[0]):
            raise UserInputError(rule.complaint(context, plan))


def check_plan(context: Context, plan: Plan) -> None:
    """Refuse a plan that its framework would refuse.

    Raises:
        UserInputError: with the first broken rule, its values and the nearest valid choice.
    """
    check_structure(context, plan)
    table = PlanTable.from_plans([plan])
    m = plan.num_micro_batches
    if not bool(
        micro_batches_mask(context.stack, table.pp, table.virtual_stages, table.num_micro_batches)[
            0
        ]
    ):
        if plan.virtual_stages > 1 and m % plan.pp:
            near = max(1, round(m / plan.pp)) * plan.pp
            batch = near * plan.dp * plan.micro_batch_size
            raise UserInputError(
                f"interleaving needs micro-batches ({m}) to be a multiple of pp={plan.pp}",
                hint=f"nearest valid: global_batch_size={batch}",
            )
        least = plan.pp + (context.stack.min_micro_batches_less_stages or 0)
        raise UserInputError(
            f"stack {context.stack.name} needs at least {least} micro-batches at pp={plan.pp}, "
            f"got {m}",
            hint=f"nearest valid: global_batch_size={least * plan.dp * plan.micro_batch_size}",
        )
    if not bool(whole_nodes_mask(context.cluster, table.gpus)[0]):
        cluster = context.cluster
        node = cluster.gpus_per_node
        near = min(max(1, round(plan.gpus / node)) * node, cluster.max_gpus)
        raise UserInputError(
            f"tp x cp x pp x dp = {plan.gpus} GPUs must be whole nodes of {node} and at most "
            f"{cluster.max_gpus} on {cluster.name}",
            hint=f"nearest valid: {near}",
        )
