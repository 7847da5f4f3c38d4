"""The nearest choice that a framework would accept, for a plan that it would refuse.

Called with a refusal in hand, so it may look at every candidate; what it names is valid itself.
"""

from __future__ import annotations

from math import gcd
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.enumeration import divisors
from vtrain.validity import micro_batches_mask, structure_mask, whole_nodes_mask

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.stack import Stack
    from vtrain.validity import Context

    IntArray = npt.NDArray[np.int64]

_LARGEST_CP = 1024
_DEGREES = ("tp", "cp", "pp", "virtual_stages")


def nearest_structure(context: Context, plan: Plan, gpus: int | None = None) -> str | None:
    """Return the degrees to change, fewest first, so that every structural rule holds.

    Args:
        context: architecture, cluster, stack, sequence length.
        plan: one that breaks a rule.
        gpus: a count that the degrees should divide, where there is a choice.

    Returns:
        Words such as `tp=8, pp=4`; None where no degrees help.
    """
    own = {name: getattr(plan, name) for name in _DEGREES}
    axes = np.meshgrid(*_candidates(context, plan), np.array([1, 0]), indexing="ij")
    tp, cp, pp, virtual_stages, keep_sequence = (axis.ravel() for axis in axes)
    table = SimpleNamespace(
        tp=tp, cp=cp, pp=pp, virtual_stages=virtual_stages,
        sequence_parallel=(keep_sequence == 1) & plan.sequence_parallel & (tp > 1),
    )  # fmt: skip
    rows = np.flatnonzero(structure_mask(context, table))
    if not len(rows):
        return None
    found = {name: getattr(table, name)[rows] for name in _DEGREES}
    # With tp = 1 sequence parallelism is off without anybody saying so.
    off = (
        plan.sequence_parallel
        & ~table.sequence_parallel[rows]
        & ((found["tp"] > 1) | (plan.tp == 1))
    )
    changed = off + np.sum([found[name] != own[name] for name in _DEGREES], axis=0)
    distance = np.sum([np.abs(np.log2(found[name] / own[name])) for name in _DEGREES], axis=0)
    shards = found["tp"] * found["cp"] * found["pp"]
    left_over = np.zeros(len(rows)) if gpus is None else gpus % shards != 0
    best = int(np.lexsort((distance, left_over, changed))[0])
    words = [
        f"{name}={int(found[name][best])}" for name in _DEGREES if found[name][best] != own[name]
    ]
    if off[best]:
        words.append("sequence parallelism off")
    return f"nearest valid: {', '.join(words)}"


def nearest_gpus(context: Context, plan: Plan, gpus: int, batch: int) -> str:
    """Return the GPU count, and where needed the batch, that goes with the degrees of a plan.

    Args:
        context: architecture, cluster, stack, sequence length.
        plan: its degrees and micro-batch; replicas and batch do not matter.
        gpus: the count asked for.
        batch: sequences of a step asked for.
    """
    shards = plan.tp * plan.cp * plan.pp
    dp = np.arange(1, context.cluster.max_gpus // shards + 1, dtype=np.int64)
    dp = dp[whole_nodes_mask(context.cluster, dp * shards)]
    if not len(dp):
        return (
            f"no count up to {context.cluster.max_gpus} is whole nodes of "
            f"{context.cluster.gpus_per_node} and a multiple of {shards}: take smaller degrees"
        )
    dp = dp[np.argsort(np.abs(dp * shards - gpus), kind="stable")]
    goes = batch % (dp * plan.micro_batch_size) == 0
    goes[goes] = micro_batches_mask(
        context.stack, np.full(goes.sum(), plan.pp), np.full(goes.sum(), plan.virtual_stages),
        batch // (dp[goes] * plan.micro_batch_size),
    )  # fmt: skip
    if goes.any():
        return f"nearest valid: gpus={int(dp[goes][0]) * shards}"
    near = int(dp[0])
    return (
        f"nearest valid: gpus={near * shards}, "
        f"global_batch_size={nearest_batch(context.stack, plan, near, batch)}"
    )


def nearest_batch(stack: Stack, plan: Plan, dp: int, batch: int) -> int:
    """Return the nearest batch that replicas, micro-batches and schedule divide.

    Args:
        stack: whose schedules run it.
        plan: its stages and micro-batch.
        dp: data-parallel replicas.
        batch: sequences of a step asked for.
    """
    unit = dp * plan.micro_batch_size
    step = plan.pp if plan.virtual_stages > 1 else 1
    less = stack.min_micro_batches_less_stages
    least = 1 if less is None else max(1, plan.pp + less)
    rounds = max(-(-least // step), round(batch / (unit * step)))
    return rounds * step * unit


def nearest_count(cluster: Cluster, gpus: int) -> int:
    """Return the nearest GPU count that is whole nodes, or within one, of a cluster."""
    counts = np.arange(1, cluster.max_gpus + 1, dtype=np.int64)
    counts = counts[whole_nodes_mask(cluster, counts)]
    return int(counts[np.argmin(np.abs(counts - gpus))])


def _candidates(context: Context, plan: Plan) -> list[IntArray]:
    """Return the values worth trying of each of _DEGREES."""
    arch = context.architecture
    splits = gcd(
        arch.num_attention_heads, arch.num_key_value_heads, arch.ffn_hidden_size, arch.hidden_size
    )
    layers = {*divisors(arch.num_layers), *divisors(arch.num_layers + 2), arch.num_layers}
    if plan.schedule == "1f1b" and context.stack.supports_interleaving:
        chunks = {plan.virtual_stages, *layers}
    else:
        chunks = {1}
    found = (
        {plan.tp, *divisors(splits)},
        {plan.cp, *(d for d in range(1, _LARGEST_CP + 1) if context.seq_length % d == 0)},
        {plan.pp, *layers},
        chunks,
    )
    return [np.array(sorted(values), dtype=np.int64) for values in found]
