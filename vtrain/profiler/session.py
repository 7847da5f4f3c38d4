"""One measuring session: what is left to do, one row after another, saved as it goes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError
from vtrain.profiler.meta import FILE, Meta, read_meta, write_meta
from vtrain.profiler.operators import Operator, plan_operators
from vtrain.profiler.rows import Row, key_of, path_of, read_rows, write_rows
from vtrain.profiler.runtime import Runtime, clock_mhz, is_out_of_memory
from vtrain.profiler.timing import Stopwatch

if TYPE_CHECKING:
    from vtrain.profiler.timing import Timing

SAVE_EVERY_S = 5.0
DRIFT_WARNING = 0.05
"""Clocks, or the anchor, that move by more than this over a session are reported."""

UNREST_WARNING = 0.15
"""Spread of the anchor above which something else runs on the device."""

Progress = Callable[[int, int, str], None]
"""Rows done, rows in all, and what was just measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a session did.

    Attributes:
        meta: head of the profile as written.
        measured: rows measured now.
        kept: rows found from an earlier session.
        left: rows that the time limit left over.
        skipped: rows that could not be measured, with the reason.
        seconds: wall time of the session.
    """

    meta: Meta
    measured: int
    kept: int
    left: int
    skipped: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class _Store:
    """Rows by table, written whole every few seconds."""

    folder: Path
    rows: dict[str, list[Row]] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    saved_at: float = 0.0

    def add(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)
        self.dirty.add(table)
        if time.monotonic() - self.saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        for table in sorted(self.dirty):
            write_rows(self.folder, table, self.rows[table])
        self.dirty.clear()
        self.saved_at = time.monotonic()


def measure_operators(
    runtime: Runtime,
    folder: Path,
    *,
    name: str,
    gemms: int,
    seconds_limit: float,
    resume: bool,
    progress: Progress,
    operators: list[Operator] | None = None,
) -> Outcome:
    """Measure the operators of a device into a profile folder.

    Rows already there are kept; a row that runs out of memory is skipped and named; Ctrl-C keeps
    what is done.

    Args:
        runtime: the device.
        folder: the profile, made if need be.
        name: of the profile.
        gemms: products in each layout.
        seconds_limit: wall time after which no new row is begun.
        resume: go on with a profile that is there.
        progress: called after each row.
        operators: what to measure; the designed set where None.

    Raises:
        UserInputError: the folder holds another device's profile, or one and not `resume`.
    """
    began = time.monotonic()
    facts = runtime.facts
    plan = (
        plan_operators(facts.kind, facts.element_bytes, gemms) if operators is None else operators
    )
    earlier = _earlier(folder, runtime, resume)
    store = _Store(folder, saved_at=began)
    for table in ("gemm", "attention", "elementwise"):
        store.rows[table] = read_rows(path_of(folder, table), table) if earlier else []
    done = {(table, key_of(table, row)) for table, rows in store.rows.items() for row in rows}
    todo = [op for op in plan if (op.table, key_of(op.table, _named(op))) not in done]
    watch = Stopwatch(runtime, earlier.anchor_s if earlier else None)
    clock_first = clock_mhz(runtime)
    meta = earlier or _fresh_meta(runtime, watch, name)
    skipped: list[str] = []
    measured = attempted = 0
    with _inference_is_off(runtime):
        try:
            for position, operator in enumerate(todo):
                if time.monotonic() - began > seconds_limit:
                    break
                attempted += 1
                row = _measure_one(runtime, watch, operator, skipped)
                if row is not None:
                    store.add(operator.table, row)
                    measured += 1
                progress(position + 1, len(todo), operator.label)
            if todo:
                meta = replace(meta, sustained=watch.sustained())
        finally:
            store.save()
            meta = _closed_meta(meta, watch, clock_first, clock_mhz(runtime), skipped, len(plan))
            write_meta(folder, meta)
    return Outcome(
        meta=meta, measured=measured, kept=len(plan) - len(todo),
        left=len(todo) - attempted, skipped=tuple(skipped), seconds=time.monotonic() - began,
    )  # fmt: skip


def _measure_one(
    runtime: Runtime, watch: Stopwatch, operator: Operator, skipped: list[str]
) -> Row | None:
    try:
        timing = watch.measure(operator.build(runtime), host=operator.host)
    except Exception as error:
        # A kernel this build of torch lacks, memory that others hold: the rest is worth having.
        if not (is_out_of_memory(runtime, error) or isinstance(error, RuntimeError)):
            raise
        reason = "out of memory" if is_out_of_memory(runtime, error) else _first_line(error)
        entry = f"{operator.label}: {reason}"
        if entry not in skipped:
            skipped.append(entry)
        if runtime.cuda:
            runtime.torch.cuda.empty_cache()
        return None
    return _row(runtime, operator, timing)


def _named(operator: Operator) -> dict[str, str]:
    out = {key: str(value) for key, value in operator.columns.items()}
    if operator.table == "gemm":
        out["batch"] = "1"
    return out


def _row(runtime: Runtime, operator: Operator, timing: Timing) -> Row:
    time_us = timing.time_s * 1e6
    row = {"gpu": runtime.facts.name, "dtype": dtype_name(runtime.facts.dtype), **_named(operator)}
    row["time_us"] = f"{time_us:.4g}" if time_us < 1000 else f"{time_us:.1f}"
    if operator.flops:
        row["tflops"] = f"{operator.flops / timing.time_s / 1e12:.5g}"
    if operator.table == "elementwise":
        row["bytes_est"] = f"{operator.traffic_bytes:.0f}"
        row["achieved_gbs"] = f"{operator.traffic_bytes / timing.time_s / 1e9:.4g}"
    row["source"] = f"vtrain profile, torch {runtime.facts.torch}"
    row["spread_pct"] = f"{100 * timing.spread:.1f}"
    row["repeats"] = str(timing.repeats)
    row["raw_us"] = f"{timing.raw_s * 1e6:.4g}"
    return row


def dtype_name(dtype: str) -> str:
    """Return a torch dtype as operator tables name it."""
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(dtype, dtype)


def _earlier(folder: Path, runtime: Runtime, resume: bool) -> Meta | None:
    """Return the head of a profile that is there and may be gone on with."""
    if not (folder / FILE).exists():
        if folder.exists() and any(folder.iterdir()):
            raise UserInputError(
                f"{folder} is not empty and holds no profile", hint="choose another --out"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserInputError(f"cannot make {folder}: {error.strerror}") from None
        return None
    meta = read_meta(folder)
    if not resume:
        raise UserInputError(
            f"{folder} already holds a profile of {meta.gpu}",
            hint="--resume to go on with it, --force to measure again",
        )
    facts = runtime.facts
    ours = (facts.name, dtype_name(facts.dtype), facts.units)
    theirs = (meta.gpu, meta.dtype, meta.units)
    if ours != theirs:
        raise UserInputError(
            f"{folder} holds a profile of {theirs[0]} ({theirs[1]}, {theirs[2]} units), this is "
            f"{ours[0]} ({ours[1]}, {ours[2]} units)",
            hint="choose another --out",
        )
    return meta


def _fresh_meta(runtime: Runtime, watch: Stopwatch, name: str) -> Meta:
    facts = runtime.facts
    clock = "device events" if runtime.cuda else "thread CPU time"
    if not runtime.cuda and runtime.threads > 1:
        clock = "wall time"
    return Meta(
        name=name, gpu=facts.name, kind=facts.kind, dtype=dtype_name(facts.dtype),
        element_bytes=facts.element_bytes, memory_bytes=facts.memory_bytes,
        cache_bytes=facts.cache_bytes, units=facts.units, base=shipped_name(facts.name),
        clock=clock, anchor_s=watch.anchor_s, torch=facts.torch, runtime=facts.runtime,
        driver=facts.driver, date=_today(), command=_command(),
    )  # fmt: skip


def _closed_meta(
    meta: Meta, watch: Stopwatch, clock_first: float, clock_last: float, skipped: list[str],
    planned: int,
) -> Meta:  # fmt: skip
    warnings = []
    drift = watch.drift()
    if abs(drift) > DRIFT_WARNING:
        warnings.append(
            f"the anchor product's time moved by {100 * drift:+.0f} % over the session; times are "
            "stated at its first speed"
        )
    if clock_first and abs(clock_last / clock_first - 1.0) > DRIFT_WARNING:
        warnings.append(
            f"the clock moved from {clock_first:.0f} to {clock_last:.0f} MHz over the session"
        )
    if watch.unrest() > UNREST_WARNING:
        warnings.append(
            f"the anchor product spread by {100 * watch.unrest():.0f} %: something else uses the "
            "device"
        )
    return replace(
        meta, anchor_drift=drift, clock_mhz=(clock_first, clock_last), date=_today(),
        planned=planned, skipped=tuple(skipped), warnings=tuple(warnings),
    )  # fmt: skip


SHIPPED_NAMES = (
    ("A100-SXM4-80GB", "a100-sxm-80g"), ("A100-SXM4-40GB", "a100-sxm-40g"),
    ("A100 80GB PCIe", "a100-pcie-80g"), ("H100 80GB HBM3", "h100-sxm-80g"),
    ("H200", "h200-sxm-141g"), ("GB200", "gb200"), ("GB300", "gb300"),
    ("B200", "b200-sxm-180g"), ("B300", "b300-sxm-288g"), ("V100-SXM2-16GB", "v100-sxm-16g"),
    ("V100-SXM2-32GB", "v100-sxm-32g"),
)  # fmt: skip
"""Part of the name a driver gives, and the shipped device whose datasheet holds for it."""


def shipped_name(gpu: str) -> str:
    """Return the shipped device of a driver's name, empty where none is known."""
    return next((name for part, name in SHIPPED_NAMES if part in gpu), "")


@contextmanager
def _inference_is_off(runtime: Runtime) -> Iterator[None]:
    with runtime.torch.enable_grad():
        yield


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _command() -> str:
    return " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
