"""The literal form of the search: Optuna samples architecture, plan, batch and tokens together.

Every sample is a valid plan by construction: a degree is drawn as a fraction that picks from the
values the degrees before it leave. Only memory, and the sanity floor, can then fail. It exists to
be compared with the default, which enumerates plans; `vtrain-search verify` measures both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtrain.enumeration import divisors
from vtrain.estimate import estimate
from vtrain.plan import Plan, PlanTable
from vtrain.validity import Context, micro_batches_mask, structure_mask
from vtrain_search.grid import gpu_counts, plan_space
from vtrain_search.inner import Cells
from vtrain_search.laws import critical_batch_tokens
from vtrain_search.objective import Scored, score, wanted_tokens
from vtrain_search.space import Point
from vtrain_search.window import TYPICAL_MFU, peak_flops, usable_gpu_hours

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain.architecture import Architecture
    from vtrain_search.problem import Case, Offer, Problem

FRACTIONS = (
    "offer", "gpus", "tp", "pp", "virtual_stages", "micro_batch_size", "global_batch_size",
    "recompute",
)  # fmt: skip
"""Parameters drawn from [0, 1) in this order; each picks from what those before it leave."""
TOKEN_SHARE = (0.5, 1.0)
"""Training tokens as a share of what budget and deadline afford."""
_GPUS_RANGE = (0.9, 2.0)
_BATCH_RANGE = (0.5, 4.0)


class JointPoint(NamedTuple):
    """One architecture with one plan; starts with the fields of `Point`."""

    hidden_size: int
    layers: int
    ffn_hidden_size: int
    num_key_value_heads: int
    head_dim: int
    cluster: str
    gpus: int
    tp: int
    pp: int
    virtual_stages: int
    micro_batch_size: int
    global_batch_size: int
    recompute: str
    token_share: float

    @property
    def architecture(self) -> Point:
        """The architecture alone."""
        return Point(*self[:5])

    @property
    def dp(self) -> int:
        """Data-parallel replicas."""
        return self.gpus // (self.tp * self.pp)


def decode(
    problem: Problem, case: Case, point: Point, params: Mapping[str, float]
) -> JointPoint | None:
    """Return the design that an architecture and fractions stand for.

    Args:
        problem: stack, pins, sequence length.
        case: offers and limits.
        point: the architecture.
        params: FRACTIONS and `token_share`.

    Returns:
        None where the pins leave a degree without any value.
    """
    architecture = problem.space.architecture(point)
    offer = _pick(case.offers, params["offer"])
    space = plan_space(offer.cluster, problem.stack, problem.pins)
    gpus = _pick(_gpus(problem, case, offer, architecture), params["gpus"])
    heads = architecture.num_key_value_heads
    tp = _pick([t for t in space.tp if heads % t == 0 and gpus % t == 0], params["tp"])
    if tp is None:
        return None
    layers = architecture.num_layers
    pps = [p for p in (space.pp or divisors(layers)) if gpus % (tp * p) == 0 and layers % p == 0]
    pp = _pick(pps, params["pp"])
    if pp is None:
        return None
    stages = space.virtual_stages or divisors(layers)
    vpps = [v for v in stages if layers % (pp * v) == 0 and v <= space.max_virtual_stages]
    vpp = _pick(vpps, params["virtual_stages"]) if pp > 1 else 1
    micro = _pick(space.micro_batch_size, params["micro_batch_size"])
    recompute = _pick(space.recompute, params["recompute"])
    if vpp is None or micro is None or recompute is None:
        return None
    batch = _batch(problem, case, offer, architecture, gpus // (tp * pp) * micro,
                   pp if vpp > 1 else 1, params["global_batch_size"])  # fmt: skip
    return JointPoint(
        *point, offer.name, int(gpus), int(tp), int(pp), int(vpp), int(micro), batch,
        str(recompute), float(params["token_share"]),
    )  # fmt: skip


def score_joint(problem: Problem, case: Case, point: JointPoint) -> tuple[Scored, Offer, float]:
    """Return the training run of one joint design, its offer, and memory over the limit.

    Args:
        problem: stack, loss model, sequence length.
        case: budget and limits.
        point: the design.
    """
    architecture = problem.space.architecture(point.architecture)
    offer = next(o for o in case.offers if o.name == point.cluster)
    plans = PlanTable.from_plans([plan_of(problem, point)])
    found = estimate(
        architecture, offer.cluster, problem.stack, plans, seq_length=problem.seq_length,
        site=problem.site, memory_limit_share=problem.memory_limit_share,
    )  # fmt: skip
    context = Context(architecture=architecture, cluster=offer.cluster, stack=problem.stack,
                      seq_length=problem.seq_length)  # fmt: skip
    valid = structure_mask(context, plans) & micro_batches_mask(
        problem.stack, plans.pp, plans.virtual_stages, plans.num_micro_batches
    )
    over = float(found.mem_peak_bytes[0] / found.mem_limit_bytes) if valid[0] else float(np.inf)
    rows = np.flatnonzero(found.fits & valid)
    cells = Cells(
        plans=plans.take(rows), step_time_s=found.step_time_s[rows],
        mem_peak_bytes=found.mem_peak_bytes[rows], mfu=found.mfu[rows], plans_seen=1,
        plans_fit=len(rows), mem_over_limit=over, mem_limit_bytes=float(found.mem_limit_bytes),
    )  # fmt: skip
    scored = score(problem, case, offer, architecture, cells)
    free = case.fixed_tokens(architecture.parameters) is None and case.target_loss is None
    if scored.best is not None and free and point.token_share < 1.0:
        tokens = point.token_share * float(scored.run.tokens[scored.best])
        scored = score(problem, replace(case, tokens=tokens), offer, architecture, cells)
    return scored, offer, over


def plan_of(problem: Problem, point: JointPoint) -> Plan:
    """Return the plan of a joint design."""
    return Plan(
        tp=point.tp, pp=point.pp, dp=point.dp, virtual_stages=point.virtual_stages,
        micro_batch_size=point.micro_batch_size, global_batch_size=point.global_batch_size,
        recompute=point.recompute, sharding=problem.stack.default_sharding,
        sequence_parallel=problem.stack.default_sequence_parallel and point.tp > 1,
    )  # fmt: skip


def heuristic_fractions(tp: float) -> dict[str, float]:
    """Return the fractions of a common starting plan: few stages, small micro-batches."""
    return {
        "offer": 0.0, "gpus": 0.1, "tp": tp, "pp": 0.3, "virtual_stages": 0.5,
        "micro_batch_size": 0.0, "global_batch_size": 0.3, "recompute": 0.0, "token_share": 1.0,
    }  # fmt: skip


def _pick(values: Sequence[Any], fraction: float) -> Any:
    if not len(values):
        return None
    return values[min(int(fraction * len(values)), len(values) - 1)]


def _gpus(problem: Problem, case: Case, offer: Offer, architecture: Architecture) -> Sequence[int]:
    """Return the GPU counts from just under what spends the budget to twice that."""
    counts = gpu_counts(offer.cluster, max_gpus=case.gpu_limit(offer), pins=problem.pins)
    flops = architecture.training_flops_per_token(problem.seq_length)
    given = wanted_tokens(problem, case, architecture)
    full = usable_gpu_hours(problem, case, offer, flops, given) * 3600.0 / case.deadline_s
    low, high = (full * factor for factor in _GPUS_RANGE)
    near = [int(c) for c in counts if low <= c <= high]
    return near or [int(counts[min(int(np.searchsorted(counts, full)), len(counts) - 1)])]


def _batch(
    problem: Problem, case: Case, offer: Offer, architecture: Architecture, unit: int, stages: int,
    fraction: float,
) -> int:  # fmt: skip
    """Return a batch the plan can run, around the critical one where it can."""
    if "global_batch_size" in problem.pins.exact:
        wanted = int(_pick(problem.pins.exact["global_batch_size"], fraction))
        return max(1, round(wanted / unit)) * unit
    flops = architecture.training_flops_per_token(problem.seq_length)
    given = wanted_tokens(problem, case, architecture)
    hours = usable_gpu_hours(problem, case, offer, flops, given)
    tokens = given or TYPICAL_MFU * peak_flops(problem, offer) * hours * 3600.0 / flops
    tokens = float(np.clip(tokens, 1e6, 1e17))
    critical = float(critical_batch_tokens(np.asarray(tokens))) / problem.seq_length
    low, high = (np.log(critical * factor) for factor in _BATCH_RANGE)
    step = unit * stages
    return max(1, round(float(np.exp(low + fraction * (high - low))) / step)) * step
