"""The journal: every finished trial as one line of an Optuna journal, with its whole design.

Optuna's dashboard opens it; the search reads it back on `--resume`. Sampling never uses it: its
extra parameters would mislead the sampler.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vtrain_search.evaluator import Outcome
from vtrain_search.joint import JointPoint
from vtrain_search.samplers import quiet_optuna
from vtrain_search.space import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.study import Study

    from vtrain_search.case_search import Trial
    from vtrain_search.search_state import Candidate

# Joint design as parameters of the stored study; the order of a row, text as categories.
_WHOLE = (
    "hidden_size", "layers", "ffn_hidden_size", "num_key_value_heads", "head_dim", "tokens",
    "global_batch_size", "gpus", "tp", "cp", "pp", "dp", "virtual_stages", "micro_batch_size",
)  # fmt: skip
_LARGEST = 1 << 60


class Place(NamedTuple):
    """Where a trial stands in a run."""

    case: int
    batch: int
    position: int


class _NoLock:
    """The run folder is locked as a whole, so the journal needs no lock of its own."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


def mend(path: Path) -> int:
    """Cut a journal back to its last whole line; return the bytes dropped.

    A killed writer or a full disk leaves a line without end, or garbage after it.
    """
    if not path.exists():
        return 0
    data = path.read_bytes()
    good = 0
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            json.loads(line)
        except ValueError:
            break
        good += len(line)
    if good < len(data):
        with path.open("r+b") as file:
            file.truncate(good)
    return len(data) - good


class Journal:
    """Journal of one run: one study a case."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        """Open or create the studies of all cases.

        Args:
            path: file of the journal.
            labels: one label a case.
        """
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        quiet_optuna()
        backend = JournalFileBackend(str(path), lock_obj=_NoLock())  # type: ignore[arg-type]
        storage = JournalStorage(backend)
        self._studies: list[Study] = [
            optuna.create_study(
                study_name=f"{i}: {label}", storage=storage, load_if_exists=True,
                direction="minimize",
            )
            for i, label in enumerate(labels)
        ]  # fmt: skip
        self._stored: dict[Place, tuple[Candidate, Outcome]] = {}
        for case, study in enumerate(self._studies):
            for trial in study.get_trials(deepcopy=False):
                place, point, outcome = _read(case, trial.user_attrs)
                self._stored[place] = (point, outcome)

    def __len__(self) -> int:
        """Return the number of stored trials."""
        return len(self._stored)

    def get(self, place: Place) -> tuple[Candidate, Outcome] | None:
        """Return the stored architecture and outcome of a place."""
        return self._stored.get(place)

    def add(self, case: int, trials: Sequence[Trial]) -> None:
        """Append the trials that are not stored yet."""
        from optuna.trial import TrialState, create_trial

        for trial in trials:
            place = Place(case, trial.batch, trial.position)
            if place in self._stored:
                continue
            outcome = trial.outcome
            params, kinds = _parameters(trial.point, outcome)
            self._studies[case].add_trial(
                create_trial(
                    state=TrialState.COMPLETE if outcome.feasible else TrialState.PRUNED,
                    value=outcome.value if outcome.feasible else None,
                    params=params,
                    distributions=kinds,
                    constraints={"feasible": outcome.violation},
                    user_attrs=_attributes(trial),
                )
            )
            self._stored[place] = (trial.point, outcome)


def _parameters(point: Candidate, outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the joint design as parameters; an infeasible trial has its architecture only."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    from vtrain.plan import RECOMPUTE, SCHEDULES, SHARDING

    row: dict[str, Any] = {**point._asdict(), **outcome.row}
    params = {name: int(row[name]) for name in _WHOLE if row.get(name) is not None}
    kinds: dict[str, Any] = {name: IntDistribution(1, _LARGEST) for name in params}
    for name, choices in (
        ("recompute", RECOMPUTE), ("sharding", SHARDING), ("schedule", SCHEDULES),
        ("sequence_parallel", (False, True)),
    ):  # fmt: skip
        if name in row:
            params[name] = row[name]
            kinds[name] = CategoricalDistribution(choices)
    return params, kinds


def _attributes(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    return {
        "batch": trial.batch,
        "position": trial.position,
        "phase": trial.phase,
        "point": list(trial.point),
        "reason": outcome.reason,
        "violation": outcome.violation,
        "plans": outcome.plans,
        "plans_fit": outcome.plans_fit,
        "row": outcome.row,
    }


def _read(case: int, attributes: dict[str, Any]) -> tuple[Place, Candidate, Outcome]:
    row = attributes["row"]
    outcome = Outcome(
        value=float(row["objective_value"]) if row else math.inf,
        row=row,
        reason=attributes["reason"],
        violation=attributes["violation"],
        plans=attributes["plans"],
        plans_fit=attributes["plans_fit"],
    )
    place = Place(case, attributes["batch"], attributes["position"])
    return place, _point(attributes["point"]), outcome


def _point(values: list[Any]) -> Candidate:
    return Point(*values) if len(values) == len(Point._fields) else JointPoint(*values)
