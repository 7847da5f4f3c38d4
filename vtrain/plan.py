"""Plans: how an architecture is spread over GPUs; one plan and tables of plans."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

RECOMPUTE = ("none", "selective", "full")
SHARDING = ("none", "zero1", "zero2", "zero3")
SCHEDULES = ("1f1b", "gpipe", "zb-h1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How one architecture is spread over tp x cp x pp x dp GPUs.

    Attributes:
        tp: tensor-parallel degree.
        cp: context-parallel degree.
        pp: pipeline stages.
        dp: data-parallel replicas.
        virtual_stages: chunks of layers each pipeline rank holds (1: not interleaved).
        micro_batch_size: sequences of one micro-batch on one replica.
        global_batch_size: sequences of one optimizer step.
        recompute: one of RECOMPUTE; selective recomputes attention inside the layer.
        sharding: one of SHARDING; zero3 is fully sharded data parallel.
        sequence_parallel: activations between tensor-parallel blocks are split over tp.
        schedule: one of SCHEDULES; 1f1b with virtual_stages > 1 is interleaved 1F1B.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    virtual_stages: int = 1
    micro_batch_size: int = 1
    global_batch_size: int
    recompute: str = "none"
    sharding: str = "zero1"
    sequence_parallel: bool = False
    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        """Refuse plans that contradict themselves.

        Raises:
            UserInputError: naming the rule and the nearest valid value.
        """
        for field in _SIZES:
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserInputError(f"{field} must be a whole number of at least 1, got {value!r}")
        for field, choices in (
            ("recompute", RECOMPUTE), ("sharding", SHARDING), ("schedule", SCHEDULES),
        ):  # fmt: skip
            if getattr(self, field) not in choices:
                raise UserInputError(
                    f"{field}={getattr(self, field)!r} is not known",
                    hint=f"one of {', '.join(choices)}",
                )
        if self.virtual_stages > 1 and self.schedule != "1f1b":
            raise UserInputError(
                f"virtual_stages={self.virtual_stages} needs schedule=1f1b, got {self.schedule}",
                hint="nearest valid: virtual_stages=1",
            )
        unit = self.dp * self.micro_batch_size
        if self.global_batch_size % unit:
            near = max(1, round(self.global_batch_size / unit)) * unit
            raise UserInputError(
                f"global_batch_size={self.global_batch_size} must be a multiple of "
                f"dp x micro_batch_size = {self.dp} x {self.micro_batch_size} = {unit}",
                hint=f"nearest valid: global_batch_size={near}",
            )

    @property
    def gpus(self) -> int:
        """GPUs the plan occupies."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches each replica runs in one step."""
        return self.global_batch_size // (self.dp * self.micro_batch_size)


_SIZES = ("tp", "cp", "pp", "dp", "virtual_stages", "micro_batch_size", "global_batch_size")
_CODES = {"recompute": RECOMPUTE, "sharding": SHARDING, "schedule": SCHEDULES}


class Structure(NamedTuple):
    """What a physics function branches on; the same for every row of one group."""

    recompute: str
    sharding: str
    sequence_parallel: bool
    schedule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTable:
    """Plans as columns, one row a plan; every column has the same length.

    Sizes are whole numbers (int64); recompute, sharding and schedule are positions in
    RECOMPUTE, SHARDING and SCHEDULES (int8); sequence_parallel is boolean.
    """

    tp: IntArray
    cp: IntArray
    pp: IntArray
    dp: IntArray
    virtual_stages: IntArray
    micro_batch_size: IntArray
    global_batch_size: IntArray
    recompute: npt.NDArray[np.int8]
    sharding: npt.NDArray[np.int8]
    sequence_parallel: npt.NDArray[np.bool_]
    schedule: npt.NDArray[np.int8]

    def __len__(self) -> int:
        """Return the number of plans."""
        return len(self.tp)

    @property
    def gpus(self) -> IntArray:
        """GPUs of each plan."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def num_micro_batches(self) -> IntArray:
        """Micro-batches each replica runs in one step."""
        return self.global_batch_size // (self.dp * self.micro_batch_size)

    @classmethod
    def from_plans(cls, plans: Sequence[Plan]) -> PlanTable:
        """Turn plans into a table with the same order."""
        columns: dict[str, npt.NDArray[np.generic]] = {
            field: np.array([getattr(p, field) for p in plans], dtype=np.int64) for field in _SIZES
        }
        for field, names in _CODES.items():
            codes = [names.index(getattr(p, field)) for p in plans]
            columns[field] = np.array(codes, dtype=np.int8)
        columns["sequence_parallel"] = np.array([p.sequence_parallel for p in plans], dtype=bool)
        return cls(**columns)  # type: ignore[arg-type]

    def plan(self, row: int) -> Plan:
        """Return one row as a Plan."""
        values: dict[str, object] = {field: int(getattr(self, field)[row]) for field in _SIZES}
        for field, names in _CODES.items():
            values[field] = names[int(getattr(self, field)[row])]
        values["sequence_parallel"] = bool(self.sequence_parallel[row])
        return Plan(**values)  # type: ignore[arg-type]

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> PlanTable:
        """Return the rows named by an index or boolean array, in that order."""
        return PlanTable(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def groups(self) -> Iterator[tuple[Structure, npt.NDArray[np.int64]]]:
        """Yield each structure that occurs with the rows that have it."""
        key = (
            (self.recompute.astype(np.int64) * len(SHARDING) + self.sharding) * 2
            + self.sequence_parallel
        ) * len(SCHEDULES) + self.schedule
        present = np.flatnonzero(np.bincount(key)) if len(key) else np.empty(0, dtype=np.int64)
        for value in present:
            rest, schedule = divmod(int(value), len(SCHEDULES))
            rest, sequence_parallel = divmod(rest, 2)
            recompute, sharding = divmod(rest, len(SHARDING))
            structure = Structure(
                RECOMPUTE[recompute],
                SHARDING[sharding],
                bool(sequence_parallel),
                SCHEDULES[schedule],
            )
            yield structure, np.flatnonzero(key == value)


def concatenate(tables: Sequence[PlanTable]) -> PlanTable:
    """Stack tables one after the other."""
    return PlanTable(
        **{f.name: np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(PlanTable)}
    )
