"""From an architecture table to the best training run under one budget."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.design import Design
from vtrain.goodput import CHECKPOINT_BYTES_PER_PARAMETER, goodput
from vtrain.plan import PlanTable
from vtrain.training_run import TrainingRun, training_run
from vtrain_search.laws import Designs, critical_batch_tokens
from vtrain_search.rounding import round_relative
from vtrain_search.target import tokens_for_loss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from vtrain.architecture import Architecture
    from vtrain_search.inner import Cells
    from vtrain_search.problem import Case, Offer, Problem

    FloatArray = NDArray[np.float64]


EQUAL_SHARE = 0.002
"""With pinned tokens losses this share of the budget apart are equal: the search's own tolerance
(`search_state.MIN_GAIN`). The cheaper run is then the better one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The training run and loss of every row of a table window.

    Attributes:
        cells: the rows.
        run: tokens, time and money of each.
        goodput: share of wall time that advances training.
        loss: predicted loss in nats a token, rounded; inf where a limit is broken.
        value: what is minimised: the loss, or the logarithm of dollars or seconds.
        best: row with the lowest value, None where every row breaks a limit.
    """

    cells: Cells
    run: TrainingRun
    goodput: FloatArray
    loss: FloatArray
    value: FloatArray
    best: int | None


def designs_of(
    architecture: Architecture, *, tokens: ArrayLike, batch: ArrayLike, seq_length: int
) -> Designs:
    """Return what the loss model must know of one architecture trained in different ways.

    Args:
        architecture: the model.
        tokens: training tokens.
        batch: sequences of one step.
        seq_length: tokens of a sequence.
    """
    # A gated block of inner width f has the parameters of a plain one of width 3/2 f.
    ratio = architecture.ffn_hidden_size / architecture.hidden_size * architecture.mlp_matrices / 2
    sizes = (
        architecture.parameters_non_embedding, architecture.hidden_size, architecture.num_layers,
        architecture.head_dim, ratio,
    )  # fmt: skip
    parameters, hidden_size, num_layers, head_dim, ffn_ratio = (
        np.asarray(size, dtype=np.float64) for size in sizes
    )
    return Designs(
        parameters_non_embedding=parameters,
        tokens=np.asarray(tokens, dtype=np.float64),
        hidden_size=hidden_size,
        num_layers=num_layers,
        head_dim=head_dim,
        global_batch_tokens=np.asarray(batch, dtype=np.float64) * seq_length,
        ffn_ratio=ffn_ratio,
    )


def designs_of_rows(rows: Sequence[Mapping[str, Any]]) -> Designs:
    """Return what a loss model must know of designs written as rows, in their order."""
    designs = [Design.from_row(row) for row in rows]
    parts = [
        designs_of(d.architecture, tokens=float(d.tokens or 0), batch=d.plan.global_batch_size,
                   seq_length=d.seq_length)
        for d in designs
    ]  # fmt: skip
    names = [f.name for f in fields(Designs)]
    return Designs(**{n: np.array([float(getattr(p, n)) for p in parts]) for n in names})


def score(
    problem: Problem, case: Case, offer: Offer, architecture: Architecture, cells: Cells
) -> Scored:
    """Turn step times into training runs, tokens and losses, all rows at once.

    Args:
        problem: stack, sequence length, loss model and sanity limits.
        case: budget and limits.
        offer: cluster and price.
        architecture: the model the table is about.
        cells: rows of its table.
    """
    plans = cells.plans
    share = goodput(
        plans.gpus, state_bytes=CHECKPOINT_BYTES_PER_PARAMETER * architecture.parameters
    )
    tokens: FloatArray | float | None = case.fixed_tokens(architecture.parameters)
    if case.target_loss is not None:
        tokens = tokens_for_loss(
            problem.loss,
            lambda t: designs_of(
                architecture, tokens=t, batch=plans.global_batch_size, seq_length=problem.seq_length
            ),
            case.target_loss,
            (len(cells),),
        )
    run = training_run(
        step_time_s=cells.step_time_s,
        global_batch_size=plans.global_batch_size,
        seq_length=problem.seq_length,
        gpus=plans.gpus,
        goodput=share,
        price_usd_per_gpu_hour=offer.price_usd_per_gpu_hour,
        deadline_s=case.deadline_s,
        budget_usd=case.searched.usd,
        budget_gpu_hours=case.searched.gpu_hours,
        budget_flop=case.flop,
        model_flops_per_token=architecture.training_flops_per_token(problem.seq_length),
        tokens=tokens,  # type: ignore[arg-type]  # broadcasts like every other input
    )
    allowed = (
        run.feasible
        & np.isfinite(run.steps)
        & (run.steps >= problem.min_steps)
        & (run.tokens >= problem.min_tokens_per_parameter * architecture.parameters)
        & (plans.gpus <= case.gpu_limit(offer))
    )
    loss = np.full(len(cells), np.inf)
    tolerance = 0.0
    if allowed.any():
        designs = designs_of(
            architecture,
            tokens=run.tokens[allowed],
            batch=plans.global_batch_size[allowed].astype(np.float64),
            seq_length=problem.seq_length,
        )
        loss[allowed] = round_relative(problem.loss.loss(designs))
        if case.pinned:
            slope = -problem.loss.dloss_dlntokens(designs)[np.argmin(loss[allowed])]
            tolerance = EQUAL_SHARE * float(slope)
    value = loss
    if case.objective != "loss":
        spent = run.cost_usd if case.objective == "cost" else run.wall_s
        finite = np.where(np.isfinite(loss), spent, np.inf)
        value = round_relative(np.log(finite))
    best = None
    if np.isfinite(value).any():
        # Equal values (fixed tokens): the cheaper run, then the plan in canonical order.
        ties = [getattr(plans, f.name) for f in fields(PlanTable)]
        first = value
        if case.pinned:
            # Whole steps and batches move the loss in the sixth digit; money is worth more.
            first = np.where(value - value.min() <= tolerance, value.min(), value)
        best = int(np.lexsort((*reversed(ties), round_relative(run.gpu_hours), first))[0])
    return Scored(cells=cells, run=run, goodput=share, loss=loss, value=value, best=best)


def wanted_tokens(problem: Problem, case: Case, architecture: Architecture) -> float | None:
    """Return the tokens a case asks of an architecture; None where the budget decides.

    For a target loss it is what the critical batch would need; the exact number of every plan
    follows in `score`.
    """
    if case.target_loss is None:
        return case.fixed_tokens(architecture.parameters)
    found = tokens_for_loss(
        problem.loss,
        lambda t: designs_of(
            architecture, tokens=t, batch=critical_batch_tokens(t), seq_length=1
        ),
        case.target_loss,
        (1,),
    )  # fmt: skip
    return float(found[0])
