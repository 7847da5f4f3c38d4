"""Fits a whole profile and writes what every command reads: device, cluster, stack, errors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from vtrain.errors import UserInputError
from vtrain.files import write_text
from vtrain.hardware import MemoryBoundConstants
from vtrain.presets import device_table
from vtrain.profiler.fit.attention import AttentionFit, fit_attention
from vtrain.profiler.fit.columns import products
from vtrain.profiler.fit.launch import Launch, launch_of, spread_launch
from vtrain.profiler.fit.links import Links, cluster_toml, fit_links
from vtrain.profiler.fit.memory import MemoryFit, fit_memory
from vtrain.profiler.fit.products import ProductFit, fit_products
from vtrain.profiler.fit.scale import PLACEHOLDER, Scale, scale_of
from vtrain.profiler.fit.stack import stack_toml
from vtrain.profiler.meta import Meta, read_meta
from vtrain.profiler.operators import DEFAULT_KERNEL
from vtrain.profiler.residual import FILE as RESIDUAL_FILE
from vtrain.profiler.residual import judge_residual
from vtrain.profiler.rows import path_of, read_rows
from vtrain.site import SiteFactors
from vtrain.site_file import site_table

if TYPE_CHECKING:
    from vtrain.latency.fit.robust import Error

Table = dict[str, Any]
COMMAND = "vtrain profile fit"
KERNEL_GENERATION = "flash2"
"""Name under which the measured attention kernel goes: what torch's default is like."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFit:
    """What the rows of a profile gave.

    Attributes:
        meta: head of the profile.
        scale: datasheet values, or stand-ins.
        products: matrix multiplication, None without rows.
        attention: fused attention, None without rows.
        memory: memory-bound kernels, None without rows.
        links: collectives.
        launch: what starting work costs.
        residual: whether the learned residual of products is used, and its held-out errors.
    """

    meta: Meta
    scale: Scale
    products: ProductFit | None
    attention: AttentionFit | None
    memory: MemoryFit | None
    links: Links
    launch: Launch
    residual: Table = field(default_factory=dict)

    def floors(self) -> tuple[ProductFit, float | None]:
        """Return the products and the floor of memory-bound kernels with launch costs in them."""
        assert self.products is not None
        if self.meta.kind == "cpu":
            return spread_launch(self.launch, self.products, self.attention, self.memory)
        return spread_launch(Launch(), self.products, self.attention, self.memory)

    @property
    def errors(self) -> list[tuple[str, Error]]:
        """Held-out error by operator."""
        out: list[tuple[str, Error]] = []
        if self.products is not None:
            out.append(("gemm, saturating", self.products.saturating))
            if self.products.tiles is not None:
                out.append(("gemm, tiles", self.products.tiles))
        if self.attention is not None:
            out.append(("attention forward", self.attention.forward))
            if self.attention.backward is not None:
                out.append(("attention backward", self.attention.backward))
        if self.memory is not None:
            out += [(f"memory-bound {name}", e) for name, e in self.memory.errors.items()]
        return [*out, *((f"collective {op}", e) for op, e in self.links.errors.items())]


def fit_profile(folder: Path) -> ProfileFit:
    """Fit the rows of a profile and write device, cluster and stack files and fit.csv into it.

    Raises:
        UserInputError: no profile, damaged rows, or nothing to fit.
    """
    meta = read_meta(folder)
    tables = {name: read_rows(path_of(folder, name), name) for name in _TABLES}
    for name, rows in tables.items():
        foreign = sorted({row["gpu"] for row in rows} - {meta.gpu})
        if foreign:
            raise UserInputError(
                f"{path_of(folder, name)} has rows of {foreign[0]!r}, the profile is of "
                f"{meta.gpu!r}",
                hint="`vtrain profile import` makes a profile of another table",
            )
    gemms = products(tables["gemm"])
    if len(gemms) == 0:
        raise UserInputError(
            f"{folder} has no measured products, so there is nothing to fit",
            hint="go on measuring with `vtrain profile run --resume`",
        )
    own = meta.kind != "import"
    scale = scale_of(meta, gemms, tables["elementwise"])
    launch = launch_of(tables["elementwise"])
    engine_s = launch.engine_s if meta.kind == "cpu" else 0.0
    found = ProfileFit(
        meta=meta, scale=scale, launch=launch,
        products=fit_products(scale, gemms, meta.kind, meta.sustained),
        attention=fit_attention(
            scale, [row for row in tables["attention"] if row["kernel"] == DEFAULT_KERNEL]
            if own else tables["attention"], meta.kind, engine_s=engine_s,
        ),
        memory=fit_memory(scale, tables["elementwise"], own=own, engine_s=engine_s),
        links=fit_links(tables["collectives"], scale.planned),
    )  # fmt: skip
    if found.products is None:
        raise UserInputError(
            f"{folder} has only {len(gemms)} measured products, too few to fit",
            hint="go on measuring with `vtrain profile run --resume`",
        )
    write_text(folder / "device.toml", tomli_w.dumps(_device_toml(found)))
    write_text(folder / "cluster.toml", tomli_w.dumps(cluster_toml(meta, scale, found.links)))
    if own:
        write_text(folder / "stack.toml", tomli_w.dumps(stack_toml(meta, launch)))
    residual = judge_residual(folder, meta, gemms, found.products.constants.floor_s)
    write_text(folder / RESIDUAL_FILE, tomli_w.dumps(residual))
    write_text(folder / "fit.csv", errors_csv(found.errors))
    if meta.world > 1 and own:
        factors = SiteFactors(matrix=meta.shared_matrix, memory=meta.shared_memory)
        about = f"{meta.world} ranks busy on one machine, at the speed of the anchor"
        write_text(folder / "site.toml", tomli_w.dumps(site_table(factors, about=about)))
    return replace(found, residual=residual)


_TABLES = ("gemm", "attention", "elementwise", "collectives")


def errors_csv(errors: list[tuple[str, Error]]) -> str:
    """Return held-out errors as CSV text."""
    lines = ["operator,rows,cv_mape_pct,cv_median_ape_pct"]
    for operator, error in errors:
        lines.append(f'"{operator}",{error.rows},{error.mape_pct:.2f},{error.median_ape_pct:.2f}')
    return "\n".join(lines) + "\n"


def _device_toml(found: ProfileFit) -> Table:
    """Return the device file: measured constants over those of the base device."""
    meta, scale = found.meta, found.scale
    device, precision = scale.device, scale.precision
    base = device_table(meta.base or PLACEHOLDER)
    table: Table = {
        "name": meta.name, "arch": device.arch, "memory_bytes": device.memory_bytes,
        "hbm_bytes_per_s": device.hbm_bytes_per_s, "l2_bytes": device.l2_bytes,
        "sm_count": device.sm_count, "tdp_w": device.tdp_w, "peak_flops": dict(device.peak_flops),
        "gemm": base["gemm"] if meta.base else {}, "attention": base["attention"],
        "memory_bound": base["memory_bound"],
    }  # fmt: skip
    measured = {"date": meta.date, "command": meta.command or COMMAND}
    borrowed = {"source": f"not measured: {meta.base or PLACEHOLDER}", "date": meta.date}
    sources: Table = {name: dict(borrowed) for name in table}
    for name, text in (
        ("peak_flops", scale.peak_source),
        ("hbm_bytes_per_s", scale.bandwidth_source),
    ):
        sources[name] = {"source": text, "date": meta.date}
    for name in ("name", "arch", "memory_bytes", "l2_bytes", "sm_count"):
        sources[name] = {"source": f"{meta.gpu}, torch {meta.torch}", "date": meta.date}
    gemm, floor_s = found.floors()
    table["gemm"][precision] = gemm.values
    sources[f"gemm.{precision}"] = {
        "source": f"fitted from gemm.csv of this profile: {meta.gpu}, {meta.dtype}",
        "rows": gemm.rows, "cv_mape_pct": round(gemm.saturating.mape_pct, 2), **measured,
    }  # fmt: skip
    if found.attention is not None:
        held = {KERNEL_GENERATION: found.attention.values}
        table["attention"] = held if not meta.base else {**table["attention"], **held}
        sources[f"attention.{KERNEL_GENERATION}"] = {
            "source": f"fitted from attention.csv of this profile: {meta.gpu}, torch's default "
            "kernel",
            "rows": found.attention.rows,
            "cv_mape_pct": round(found.attention.forward.mape_pct, 2), **measured,
        }  # fmt: skip
    if found.memory is not None:
        table["memory_bound"]["floor_s"] = floor_s
        sources["memory_bound.floor_s"] = {
            "source": "median over the classes"
            if meta.kind != "cpu"
            else "an empty layer over its kernels (launch rows of elementwise.csv)",
            **measured,
        }
        _fill_memory(table, sources, found.memory, measured, meta)
    return {**table, "sources": sources}


def _fill_memory(
    table: Table, sources: Table, found: MemoryFit, measured: Table, meta: Meta
) -> None:
    constants = table["memory_bound"]
    for item in fields(MemoryBoundConstants):
        name = item.name
        if name in found.shares:
            constants[name] = found.shares[name]
            sources[f"memory_bound.{name}"] = {
                "source": f"fitted from elementwise.csv of this profile: {meta.gpu}",
                "rows": found.rows[name],
                "cv_mape_pct": round(found.errors[name].mape_pct, 2), **measured,
            }  # fmt: skip
        elif name == "activation_fused" and "activation_eager" in found.shares:
            # torch has no fused gated activation; what runs is the eager one.
            constants[name] = found.shares["activation_eager"]
            sources[f"memory_bound.{name}"] = {
                "source": "not measured: activation_eager of this profile", "date": meta.date,
            }  # fmt: skip
