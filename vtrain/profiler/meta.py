"""What a profile says of itself: machine, versions, date, how it was measured, what is missing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from vtrain.errors import UserInputError
from vtrain.files import write_text

SCHEMA_VERSION = 1
FILE = "meta.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Meta:
    """The head of a profile.

    Attributes:
        name: of the profile's device, cluster and stack.
        gpu: what the device calls itself; value of the `gpu` column of the tables.
        kind: "cuda", "cpu", or "import" for tables from elsewhere.
        dtype: dtype measured, as the tables name it.
        element_bytes: bytes of an element of it.
        memory_bytes: memory of the device.
        cache_bytes: its last-level cache.
        units: streaming multiprocessors, or threads of a CPU operator.
        base: shipped device whose datasheet values hold; empty where measured ones do.
        clock: what was read: "device events", "thread CPU time", "wall time", "as published".
        anchor_s: seconds of the anchor product that every time is stated at.
        anchor_drift: last fifth of the anchors over the first, less 1.
        clock_mhz: clocks at the start and at the end (0: not told).
        torch: torch version.
        runtime: CUDA version or vector instructions.
        driver: driver version.
        date: ISO date of the last measurement.
        command: what was run.
        sustained: rate of a large product after two seconds over its rate at first (GPUs).
        shared_matrix: time of products with all ranks busy over time alone (CPUs).
        shared_memory: the same of memory-bound kernels.
        world: ranks of the measured collectives (1: none were measured).
        planned: rows that a full run measures.
        skipped: "row: reason" of every row left out.
        warnings: what a reader must know.
    """

    name: str
    gpu: str
    kind: str
    dtype: str
    element_bytes: float
    memory_bytes: float
    cache_bytes: float
    units: int
    base: str = ""
    clock: str
    anchor_s: float
    anchor_drift: float = 0.0
    clock_mhz: tuple[float, float] = (0.0, 0.0)
    torch: str = ""
    runtime: str = ""
    driver: str = ""
    date: str
    command: str
    sustained: float = 1.0
    shared_matrix: float = 1.0
    shared_memory: float = 1.0
    world: int = 1
    planned: int = 0
    skipped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no measurement gives.

        Raises:
            UserInputError: naming the field.
        """
        for name in ("element_bytes", "memory_bytes", "cache_bytes", "units", "anchor_s", "world"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise UserInputError(f"profile: {name} must be above zero, got {value!r}")


def write_meta(folder: Path, meta: Meta) -> None:
    """Write the head of a profile."""
    table: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for item in fields(Meta):
        value = getattr(meta, item.name)
        table[item.name] = list(value) if isinstance(value, tuple) else value
    write_text(folder / FILE, tomli_w.dumps(table))


def read_meta(folder: Path) -> Meta:
    """Read the head of a profile.

    Raises:
        UserInputError: no profile, a damaged one, or one of another schema.
    """
    path = folder / FILE
    hint = "`vtrain profile run --out DIR` makes one"
    if not folder.is_dir():
        raise UserInputError(f"{folder} is not a folder, so no profile", hint=hint)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(
            f"{folder} holds no profile: cannot read {path.name}: {error.strerror}", hint=hint
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"{path} is damaged: {error}", hint=hint) from None
    version = table.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UserInputError(
            f"{path} has schema_version {version!r}, this vtrain reads {SCHEMA_VERSION}",
            hint="measure again, or use the vtrain that wrote it",
        )
    known = {item.name for item in fields(Meta)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise UserInputError(f"{path} has unknown keys: {', '.join(unknown)}", hint=hint)
    tidy: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    try:
        return Meta(**tidy)
    except TypeError as error:
        raise UserInputError(f"{path} is damaged: {error}", hint=hint) from None
