"""Every valid plan of given GPU counts and batches, as one table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vtrain.plan import RECOMPUTE, SCHEDULES, SHARDING, PlanTable
from vtrain.validity import Context, micro_batches_mask, structure_mask

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack

IntArray = npt.NDArray[np.int64]
# Elements of the (pair x shape) cross product held at a time: 4 MiB of int64, inside most caches.
_BLOCK = 1 << 19


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSpace:
    """The values each degree of freedom of a plan may take.

    Attributes:
        tp: tensor-parallel degrees.
        cp: context-parallel degrees.
        pp: pipeline degrees; empty takes every divisor of the layer count.
        virtual_stages: chunks a stage; empty takes every divisor up to max_virtual_stages.
        max_virtual_stages: bound where virtual_stages is empty.
        micro_batch_size: sequences of a micro-batch.
        recompute: names of RECOMPUTE.
        sharding: names of SHARDING.
        sequence_parallel: "auto" turns it on with tp > 1, "both" tries both, "on", "off".
        schedule: names of SCHEDULES.
        batch_tolerance: largest |log(actual batch / wanted batch)| after rounding; 0 keeps only
            plans that divide the wanted batch exactly.
    """

    tp: tuple[int, ...] = (1, 2, 4, 8)
    cp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = ()
    virtual_stages: tuple[int, ...] = ()
    max_virtual_stages: int = 12
    micro_batch_size: tuple[int, ...] = (1, 2, 4, 8, 16)
    recompute: tuple[str, ...] = RECOMPUTE
    sharding: tuple[str, ...] = ("zero1",)
    sequence_parallel: str = "auto"
    schedule: tuple[str, ...] = field(default=("1f1b",))
    batch_tolerance: float = 0.0


def default_space(cluster: Cluster, stack: Stack, *, batch_tolerance: float = 0.0) -> PlanSpace:
    """Return the plans a careful user of this stack would consider.

    Tensor parallelism stays inside an NVLink domain (powers of two), the sharding is the stack's
    own, sequence parallelism follows the stack's habit.
    """
    reach = min(cluster.nvlink_domain, 8)
    return PlanSpace(
        tp=tuple(t for t in (1, 2, 4, 8) if t <= reach),
        sharding=(stack.default_sharding,),
        sequence_parallel="auto" if stack.default_sequence_parallel else "off",
        virtual_stages=() if stack.supports_interleaving else (1,),
        batch_tolerance=batch_tolerance,
    )


def divisors(value: int) -> tuple[int, ...]:
    """Return every divisor of a positive whole number, ascending."""
    return tuple(d for d in range(1, value + 1) if value % d == 0)


def plan_shapes(context: Context, space: PlanSpace) -> SimpleNamespace:
    """Return every structurally valid combination, without GPU count and batch.

    Args:
        context: architecture, cluster, stack, sequence length.
        space: what each degree may be.

    Returns:
        Columns tp, cp, pp, virtual_stages, micro_batch_size, recompute, sharding,
        sequence_parallel, schedule and `model_parallel` = tp x cp x pp, equal lengths.
    """
    layers = context.architecture.num_layers
    pps = space.pp or divisors(layers)
    if context.stack.layer_split == "cost-rule" and not space.pp:
        pps = tuple(p for p in (1, 2, 4, 8, 16, 32, 64) if p <= layers)
    vpps = space.virtual_stages or tuple(
        v for v in divisors(layers) if v <= space.max_virtual_stages
    )
    sequence = {"auto": (2,), "both": (0, 1), "on": (1,), "off": (0,)}[space.sequence_parallel]
    axes = np.meshgrid(
        np.array(space.tp), np.array(space.cp), np.array(pps), np.array(vpps),
        np.array(space.micro_batch_size),
        np.array([RECOMPUTE.index(r) for r in space.recompute]),
        np.array([SHARDING.index(s) for s in space.sharding]),
        np.array(sequence),
        np.array([SCHEDULES.index(s) for s in space.schedule]),
        indexing="ij",
    )  # fmt: skip
    flat = [a.ravel().astype(np.int64) for a in axes]
    columns = SimpleNamespace(
        tp=flat[0], cp=flat[1], pp=flat[2], virtual_stages=flat[3], micro_batch_size=flat[4],
        recompute=flat[5].astype(np.int8), sharding=flat[6].astype(np.int8),
        sequence_parallel=np.where(flat[7] == 2, flat[0] > 1, flat[7] == 1),
        schedule=flat[8].astype(np.int8),
    )  # fmt: skip
    keep = structure_mask(context, columns)
    keep &= (columns.virtual_stages == 1) | (columns.schedule == SCHEDULES.index("1f1b"))
    kept = {name: column[keep] for name, column in vars(columns).items()}
    kept["model_parallel"] = kept["tp"] * kept["cp"] * kept["pp"]
    return SimpleNamespace(**kept)


def enumerate_plans(
    architecture: Architecture,
    cluster: Cluster,
    *,
    stack: Stack,
    seq_length: int,
    gpus: npt.ArrayLike,
    global_batch_size: npt.ArrayLike,
    space: PlanSpace | None = None,
) -> tuple[PlanTable, IntArray]:
    """Return every valid plan of every (GPU count, batch) pair.

    Args:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        seq_length: tokens of a sequence.
        gpus: GPU counts, one a pair; whole nodes are the caller's business.
        global_batch_size: wanted sequences a step, one a pair. With a batch tolerance the batch
            of a plan is the nearest one it can run; the table holds the actual one.
        space: what each degree may be; `default_space` when None.

    Returns:
        The plans, and for each the position of its pair.
    """
    space = space or default_space(cluster, stack)
    context = Context(
        architecture=architecture, cluster=cluster, stack=stack, seq_length=seq_length
    )
    shapes = plan_shapes(context, space)
    gpus = np.atleast_1d(np.asarray(gpus, dtype=np.int64))
    wanted = np.atleast_1d(np.asarray(global_batch_size, dtype=np.int64))
    per_block = max(1, _BLOCK // max(1, len(shapes.tp)))
    parts = [
        _cross(stack, shapes, gpus[i : i + per_block], wanted[i : i + per_block], i, space)
        for i in range(0, len(gpus), per_block)
    ]
    pair, shape, dp, batch = (np.concatenate(column) for column in zip(*parts, strict=True))
    table = PlanTable(
        tp=shapes.tp[shape], cp=shapes.cp[shape], pp=shapes.pp[shape], dp=dp,
        virtual_stages=shapes.virtual_stages[shape],
        micro_batch_size=shapes.micro_batch_size[shape], global_batch_size=batch,
        recompute=shapes.recompute[shape], sharding=shapes.sharding[shape],
        sequence_parallel=shapes.sequence_parallel[shape], schedule=shapes.schedule[shape],
    )  # fmt: skip
    return table, pair


def _cross(
    stack: Stack,
    shapes: SimpleNamespace,
    gpus: IntArray,
    wanted: IntArray,
    offset: int,
    space: PlanSpace,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (pair, shape, dp, batch) of the valid combinations of one block of pairs."""
    divides = gpus[:, None] % shapes.model_parallel[None, :] == 0
    pair, shape = np.nonzero(divides)
    dp = gpus[pair] // shapes.model_parallel[shape]
    unit = dp * shapes.micro_batch_size[shape]
    target = wanted[pair]
    pp = shapes.pp[shape]
    vpp = shapes.virtual_stages[shape]
    if space.batch_tolerance > 0.0:
        step = unit * np.where(vpp > 1, pp, 1)
        batch = np.maximum(1, (2 * target + step) // (2 * step)) * step
        keep = np.abs(np.log(batch / target)) <= space.batch_tolerance
    else:
        batch = target
        keep = target % unit == 0
    keep &= micro_batches_mask(stack, pp, vpp, batch // unit)
    return pair[keep] + offset, shape[keep], dp[keep], batch[keep]


def with_values(space: PlanSpace, **values: tuple[object, ...] | str) -> PlanSpace:
    """Return the space with some degrees pinned (`--fix tp=8`)."""
    return replace(space, **values)  # type: ignore[arg-type]
