"""Jobs from a CSV file; bad rows are refused with their number and the reason.

Columns: `model`, `arrival_s`, and `tokens` or `steps` are needed; `job`, `deadline_s`, `gpus`,
`min_gpus`, `max_gpus`, `global_batch_size`, `seq_length`, `priority` may be there. Dates are
seconds on the cluster's clock, or durations such as `36h` and `10d` since its start. Empty cells
take the default. Row 1 is the first after the header.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError
from vtrain.tenancy.job import Job
from vtrain.units import parse_duration_s, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NEEDED = ("model", "arrival_s")
WORK = ("tokens", "steps")
OPTIONAL = (
    "job", "deadline_s", "gpus", "min_gpus", "max_gpus", "global_batch_size", "seq_length",
    "priority",
)  # fmt: skip
DEFAULT_GLOBAL_BATCH = 1024
"""Sequences of a step where the file states none: what Narayanan et al. 2021 (arXiv 2104.04473),
table 1, use at 18.4 billion parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """A row that is no job.

    Attributes:
        row: its number, 1 for the first after the header.
        reason: what is wrong with it.
    """

    row: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobText:
    """Jobs that are in memory instead of in a file.

    Attributes:
        name: what messages call them.
        text: CSV with a header.
    """

    name: str
    text: str

    def __str__(self) -> str:
        """Return the name, as a path returns its own."""
        return self.name


def read_jobs(
    path: str | Path | JobText, seq_length_of: Callable[[str], int | None]
) -> tuple[list[tuple[int, Job]], list[BadRow]]:
    """Read a file of jobs.

    Args:
        path: CSV with a header, in a file or in memory.
        seq_length_of: own sequence length of a model; raises `UserInputError` for unknown ones.

    Returns:
        The jobs with their row numbers, and the bad rows; both in the order of the file.

    Raises:
        UserInputError: when the file cannot be read or lacks a needed column.
    """
    text = path.text if isinstance(path, JobText) else _read(Path(path))
    reader = csv.DictReader(io.StringIO(text))
    _check_header(str(path), [name.strip() for name in reader.fieldnames or ()])
    jobs: list[tuple[int, Job]] = []
    bad: list[BadRow] = []
    for number, raw in enumerate(reader, start=1):
        cells = {(k or "").strip(): (v or "").strip() for k, v in raw.items() if k is not None}
        try:
            if None in raw:
                raise UserInputError("more cells than columns")
            jobs.append((number, _job(number, cells, seq_length_of)))
        except UserInputError as error:
            bad.append(BadRow(row=number, reason=str(error)))
    if not jobs and not bad:
        raise UserInputError(f"{path} holds no jobs")
    return jobs, bad


def _read(where: Path) -> str:
    try:
        return where.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UserInputError(f"cannot read jobs from {where}: {reason}") from None


def _check_header(where: str, names: list[str]) -> None:
    missing = [name for name in NEEDED if name not in names]
    if not any(name in names for name in WORK):
        missing.append("tokens (or steps)")
    if missing:
        raise UserInputError(
            f"{where} lacks column {', '.join(missing)}",
            hint=f"needed: {', '.join((*NEEDED, 'tokens'))}; optional: {', '.join(OPTIONAL)}",
        )
    known = {*NEEDED, *WORK, *OPTIONAL}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserInputError(
            f"{where} has unknown column {unknown[0]!r}", hint=f"known: {', '.join(sorted(known))}"
        )


def _job(number: int, cells: Mapping[str, str], seq_length_of: Callable[[str], int | None]) -> Job:
    for name in NEEDED:
        if not cells.get(name):
            raise UserInputError(f"{name} is empty")
    own_length = seq_length_of(cells["model"])
    batch = _count(cells, "global_batch_size", DEFAULT_GLOBAL_BATCH)
    seq_length = _count(cells, "seq_length", own_length or 0)
    deadline = cells.get("deadline_s", "")
    priority = cells.get("priority", "") or "0"
    if not priority.lstrip("-").isdigit():
        raise UserInputError(f"priority must be a whole number, got {priority!r}")
    return Job(
        name=cells.get("job", "") or f"row-{number}",
        model=cells["model"],
        steps=_steps(cells, batch, seq_length),
        global_batch_size=batch,
        seq_length=seq_length,
        arrival_s=_date(cells["arrival_s"], "arrival_s"),
        deadline_s=_date(deadline, "deadline_s") if deadline else math.inf,
        gpus=_count(cells, "gpus", 0),
        min_gpus=_count(cells, "min_gpus", 1),
        max_gpus=_count(cells, "max_gpus", 0),
        priority=int(priority),
    )


def _steps(cells: Mapping[str, str], batch: int, seq_length: int) -> int:
    """Return the optimizer steps of a row; tokens are rounded up to whole steps."""
    given = [name for name in WORK if cells.get(name)]
    if len(given) != 1:
        raise UserInputError(
            "tokens and steps are both empty" if not given else "tokens and steps are both given"
        )
    number = parse_number(cells[given[0]], what=given[0])
    if given[0] == "steps":
        if number != int(number):
            raise UserInputError(f"steps must be a whole number, got {cells['steps']!r}")
        return int(number)
    if not seq_length:
        raise UserInputError("seq_length is not known", hint="state it")
    return math.ceil(number / (batch * seq_length))


def _count(cells: Mapping[str, str], name: str, default: int) -> int:
    text = cells.get(name, "")
    if not text:
        return default
    number = parse_number(text, what=name)
    if number != int(number):
        raise UserInputError(f"{name} must be a whole number, got {text!r}")
    return int(number)


def _date(text: str, name: str) -> float:
    """Return seconds from a plain number or a duration."""
    try:
        value = float(text)
    except ValueError:
        return parse_duration_s(text)
    if not 0.0 <= value < math.inf:
        raise UserInputError(f"{name} must be finite and not negative, got {text!r}")
    return value
