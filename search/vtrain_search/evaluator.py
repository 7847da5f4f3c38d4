"""The unit of work: one architecture under every budget that asks for it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtrain.design import Design
from vtrain_search.inner import ArchitectureTable
from vtrain_search.joint import JointPoint, score_joint
from vtrain_search.rounding import round_relative
from vtrain_search.window import search_window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.training_run import TrainingRun
    from vtrain_search.laws import LossModel
    from vtrain_search.objective import Scored
    from vtrain_search.problem import Case, Offer, Problem
    from vtrain_search.search_state import Candidate
    from vtrain_search.space import Point

    FloatArray = NDArray[np.float64]

_TABLES_KEPT = 64
LOSS_DIGITS = 4
"""Decimals of a printed loss."""
TOO_DEAR = "budget or deadline"
"""Reason of a run whose tokens are given: they cost more than the budget or last too long."""


class Task(NamedTuple):
    """One architecture and the positions of the cases that want it.

    `wide` asks for every GPU count and batch that could matter, not just the promising ones.
    """

    point: Candidate
    cases: tuple[int, ...]
    wide: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one architecture achieves under one budget.

    Attributes:
        value: what is minimised, rounded; inf where nothing is feasible.
        row: the design and its results as plain values; empty where nothing is feasible.
        reason: which limit every plan broke; empty where one is feasible.
        violation: how far from feasible, on a logarithmic scale; 0 where feasible.
        plans: plans estimated for it.
        plans_fit: those that fit in memory.
    """

    value: float
    row: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    violation: float = 0.0
    plans: int = 0
    plans_fit: int = 0

    @property
    def feasible(self) -> bool:
        """Whether any plan kept every limit."""
        return not self.reason

    @property
    def loss(self) -> float:
        """Predicted loss, rounded; inf where nothing is feasible."""
        return float(self.row["loss"]) if self.row else float(np.inf)

    @property
    def key(self) -> tuple[Any, ...]:
        """Order of outcomes: the value first, then the canonical design."""
        return (self.value, *(str(v) if v is None else v for v in self.row.values()))

    def key_for(self, case: Case) -> tuple[Any, ...]:
        """Order of outcomes of one case: with pinned tokens equal printed losses go by cost."""
        if not case.pinned or not self.row:
            return self.key
        return (round(self.value, LOSS_DIGITS), self.row["cost_usd"], *self.key)

    def settled(self) -> Outcome:
        """Return the outcome, refused where it costs more than the budget."""
        if not self.row or self.row["unspent_usd"] >= 0.0:
            return self
        cost = self.row["cost_usd"]
        return replace(
            self, value=float(np.inf), row={}, reason="budget",
            violation=float(np.log(cost / (cost + self.row["unspent_usd"]))),
        )  # fmt: skip


class Evaluator:
    """Evaluates tasks; keeps recent architecture tables, which never changes an answer."""

    def __init__(self, problem: Problem) -> None:
        """Take the constants of a search."""
        self._problem = problem
        self._tables: OrderedDict[tuple[Point, str], ArchitectureTable] = OrderedDict()

    def with_loss(self, loss: LossModel) -> Evaluator:
        """Return an evaluator that judges by another loss model and shares this one's tables."""
        other = Evaluator(replace(self._problem, loss=loss))
        other._tables = self._tables
        return other

    def evaluate(self, task: Task) -> tuple[Outcome, ...]:
        """Return one outcome for each case of the task, in its order.

        They are for a search: what costs more than a budget that only filters (`Case.searched`)
        is not refused yet.
        """
        cases = (self._problem.cases[i] for i in task.cases)
        point = task.point
        if isinstance(point, JointPoint):
            return tuple(self.joint(point, case) for case in cases)
        return tuple(self._best(point, case, wide=task.wide) for case in cases)

    def joint(self, point: JointPoint, case: Case) -> Outcome:
        """Return the run of one joint design."""
        scored, offer, over = score_joint(self._problem, case, point)
        if len(scored.cells) == 0 and np.isfinite(over):
            return _nothing(scored, "memory", float(np.log(over)))
        return self._with_offer(scored, point.architecture, case, offer)

    def scored(self, point: Point, case: Case, offer: Offer, *, wide: bool = False) -> Scored:
        """Return the scored window of one architecture, for reports that want more."""
        return search_window(self._problem, case, offer, self.table(point, offer), wide=wide)

    def table(self, point: Point, offer: Offer) -> ArchitectureTable:
        """Return the (cached) table of one architecture on one offer's cluster."""
        key = (point, offer.name)
        table = self._tables.get(key)
        if table is None:
            problem = self._problem
            table = ArchitectureTable(
                problem.space.architecture(point),
                offer.cluster,
                problem.stack,
                seq_length=problem.seq_length,
                pins=problem.pins,
                site=problem.site,
                memory_limit_share=problem.memory_limit_share,
            )
            self._tables[key] = table
            if len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return table

    def outcome(self, point: Point, case: Case, *, wide: bool = False) -> Outcome:
        """Return the best run of one architecture under one case, over all its offers."""
        return self._best(point, case, wide=wide).settled()

    def _best(self, point: Point, case: Case, *, wide: bool) -> Outcome:
        found = [
            self._with_offer(self.scored(point, case, offer, wide=wide), point, case, offer)
            for offer in case.offers
        ]
        return min(found, key=lambda o: (not o.feasible, o.violation, o.key_for(case)))

    def _with_offer(self, scored: Scored, point: Point, case: Case, offer: Offer) -> Outcome:
        problem, cells = self._problem, scored.cells
        architecture = problem.space.architecture(point)
        if scored.best is None:
            return _infeasible(problem, scored, architecture.parameters, case.deadline_s)
        i = scored.best
        run = scored.run
        design = Design(
            architecture=architecture,
            plan=cells.plans.plan(i),
            cluster=offer.name,
            stack=problem.stack_name,
            seq_length=problem.seq_length,
            tokens=int(run.tokens[i]),
        )
        row = design.to_row() | {
            "parameters": architecture.parameters,
            "parameters_non_embedding": architecture.parameters_non_embedding,
            "steps": int(run.steps[i]),
            "price_usd_per_gpu_hour": offer.price_usd_per_gpu_hour,
            "loss": float(scored.loss[i]),
            "objective_value": float(scored.value[i]),
            "step_time_s": float(cells.step_time_s[i]),
            "mfu": float(cells.mfu[i]),
            "mem_peak_bytes": float(cells.mem_peak_bytes[i]),
            "mem_limit_bytes": cells.mem_limit_bytes,
            "goodput": float(scored.goodput[i]),
            "wall_s": float(run.wall_s[i]),
            "gpu_hours": float(run.gpu_hours[i]),
            "cost_usd": float(run.cost_usd[i]),
            "unspent_usd": float(run.unspent_usd[i])
            if case.searched is case
            else case.unspent_usd(float(run.cost_usd[i]), offer),
        }
        return Outcome(
            value=float(scored.value[i]), row=row, plans=cells.plans_seen, plans_fit=cells.plans_fit
        )


def _infeasible(problem: Problem, scored: Scored, parameters: int, deadline_s: float) -> Outcome:
    """Name the limit that came closest to being kept and how far it was missed."""
    cells, run = scored.cells, scored.run
    if len(cells) == 0:
        over = cells.mem_over_limit
        reason = "memory" if np.isfinite(over) else "no valid plan"
        violation = 20.0 + (float(np.log(max(over, 1.0))) if np.isfinite(over) else 20.0)
        return _nothing(scored, reason, violation)
    reached = np.where(np.isfinite(run.tokens), 1.0, 2.0)
    floors = {
        "target": reached,
        "steps": problem.min_steps / np.maximum(run.steps, 0.5),
        "tokens a parameter": problem.min_tokens_per_parameter
        * parameters
        / np.maximum(run.tokens, 1.0),
        TOO_DEAR: np.where(run.feasible, 1.0, _excess(run, deadline_s)),
        "batch": np.where(np.isfinite(scored.loss), 1.0, 1.0 + 1e-9),
    }
    worst = np.max(np.stack(list(floors.values())), axis=0)
    row = int(np.argmin(worst))
    reason = max(floors, key=lambda name: float(floors[name][row]))
    violation = float(round_relative(np.log(worst[row])))
    return _nothing(scored, reason, violation)


def _excess(run: TrainingRun, deadline_s: float) -> FloatArray:
    """Return by what factor runs exceed their budget or deadline, whichever is more; above 1."""
    run_usd = run.cost_usd
    finite = np.isfinite(run_usd)
    budget_usd = np.add(run_usd, run.unspent_usd, where=finite, out=np.zeros_like(run_usd))
    money = np.divide(run_usd, budget_usd, where=budget_usd > 0.0, out=np.ones_like(run_usd))
    excess = np.maximum(money, run.wall_s / deadline_s)
    return np.where(np.isfinite(excess), np.maximum(excess, 1.0 + 1e-9), 2.0)


def _nothing(scored: Scored, reason: str, violation: float) -> Outcome:
    cells = scored.cells
    return Outcome(
        value=float(np.inf), reason=reason, violation=violation, plans=cells.plans_seen,
        plans_fit=cells.plans_fit,
    )  # fmt: skip
