"""A profile made of operator tables measured elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from vtrain.errors import UserInputError
from vtrain.presets import load_device
from vtrain.profiler.meta import FILE, Meta, write_meta
from vtrain.profiler.rows import COLUMNS, Row, path_of, read_rows, write_rows

_SUFFIXES = {"attention": ("bf16", "fp16"), "elementwise": ("bf16", "fp16")}
"""Half-precision rows that stand for each other outside products."""


def import_tables(
    tables: Path,
    out: Path,
    *,
    gpu: str,
    base: str | None,
    dtype: str = "bf16",
    source: str = "",
    force: bool = False,
) -> Meta:
    """Write the rows of one device from a folder of tables into a profile.

    Args:
        tables: folder with any of gemm.csv, attention.csv, elementwise.csv, collectives.csv.
        out: profile folder, made if need be.
        gpu: value of the `gpu` column.
        base: shipped device whose datasheet holds; the measured rates stand in without.
        dtype: value of the `dtype` column of products.
        source: keep rows whose source contains it.
        force: write over a profile that is there.

    Returns:
        The head written; its `planned` counts the rows.

    Raises:
        UserInputError: no such rows, a damaged table, or a folder that is taken.
    """
    if (out / FILE).exists() and not force:
        raise UserInputError(f"{out} already holds a profile", hint="--force writes over it")
    kept: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for table in COLUMNS:
        rows = read_rows(path_of(tables, table), table)
        seen |= {row["gpu"] for row in rows}
        dtypes = _SUFFIXES.get(table, (dtype,))
        kept[table] = [
            row
            for row in rows
            if row["gpu"] == gpu
            and source in row.get("source", "")
            and (table == "collectives" or row["dtype"] in dtypes)
        ]
    if not kept["gemm"]:
        near = ", ".join(sorted(seen)[:8]) or "none at all"
        raise UserInputError(
            f"{tables} has no {dtype} products of gpu {gpu!r}"
            + (f" from {source!r}" if source else ""),
            hint=f"GPUs in it: {near}",
        )
    device = load_device(base) if base else None
    meta = Meta(
        name=out.resolve().name, gpu=gpu, kind="import", dtype=dtype, element_bytes=2.0,
        memory_bytes=device.memory_bytes if device else 80e9,
        cache_bytes=device.l2_bytes if device else 40e6,
        units=device.sm_count if device else 108, base=base or "", clock="as published",
        anchor_s=1.0, date=datetime.now(UTC).date().isoformat(),
        command=f"vtrain profile import --gpu {gpu}",
        planned=sum(len(rows) for rows in kept.values()),
    )  # fmt: skip
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserInputError(f"cannot make {out}: {error.strerror}") from None
    for table, rows in kept.items():
        if rows:
            write_rows(out, table, rows)
        else:
            path_of(out, table).unlink(missing_ok=True)
    write_meta(out, meta)
    return meta
