"""Devices and clusters by name or file.

Scheme of the data files: one TOML a device or cluster; the table `[sources]` is keyed by the
dotted name of a field or of a whole table (`"gemm.bf16"` covers every value under it; the longest
matching key counts) and holds `{source, date}` plus, for fitted values, what the fit reports
(`command`, `rows`, `cv_mape_pct`, ...). Every value is covered; a contract test keeps it so.

A cluster names its device by preset or by a path relative to its own file. A user's file may
start from a shipped one with `base = "h100-sxm-80g"` and state only what differs.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vtrain.errors import UserInputError, unknown_name
from vtrain.hardware import (
    AttentionConstants,
    Cluster,
    CollectiveFit,
    CollectiveTerms,
    Device,
    GemmConstants,
    MemoryBoundConstants,
    NetworkFit,
    TileConstants,
)
from vtrain.stack import (
    ActivationBytes,
    FittedConstant,
    Gathering,
    HostCost,
    Overlap,
    Stack,
    StateBytes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Table = dict[str, Any]

# Tables of a stack file that become values of their own.
_STACK_PARTS: tuple[tuple[str, type], ...] = (
    ("overlap", Overlap),
    ("host", HostCost),
    ("state", StateBytes),
    ("activations", ActivationBytes),
    ("gathering", Gathering),
)


def device_names() -> list[str]:
    """Every shipped device, sorted."""
    return sorted(_catalogue("devices"))


def cluster_names() -> list[str]:
    """Every shipped cluster, sorted; each also answers to its aliases (`A100`, `H100`, ...)."""
    return sorted(_catalogue("clusters"))


def device_table(name: str) -> Table:
    """Parsed TOML of a shipped device, a fresh copy.

    Raises:
        UserInputError: unknown name.
    """
    return _shipped("device", "devices", name)


def cluster_table(name: str) -> Table:
    """Parsed TOML of a shipped cluster, a fresh copy.

    Raises:
        UserInputError: unknown name.
    """
    return _shipped("cluster", "clusters", name)


def load_device(name_or_path: str | Path) -> Device:
    """Read a device.

    Args:
        name_or_path: a shipped name or alias, in any case, or a TOML file.

    Raises:
        UserInputError: unknown name, unreadable file, or a value that no device can have.
    """
    table, where = _read("device", "devices", name_or_path)
    return _device(table, where)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster and its device.

    Args:
        name_or_path: a shipped name or alias, in any case, or a TOML file.

    Raises:
        UserInputError: unknown name, unreadable file, or a value that no cluster can have.
    """
    table, where = _read("cluster", "clusters", name_or_path)
    device_ref = str(_take(table, "device", where))
    if _is_path(device_ref) and where is not None:
        device = load_device(where.parent / device_ref)
    else:
        device = load_device(device_ref)
    intra = {
        op: _build(CollectiveTerms, terms, where)
        for op, terms in _take(table, "intra", where).items()
    }
    inter = _build(NetworkFit, _take(table, "inter", where), where)
    table.pop("aliases", None)
    parts = {"device": device, "intra": CollectiveFit(terms=intra), "inter": inter}
    return _build(Cluster, {**table, **parts}, where)


def stack_names() -> list[str]:
    """Every shipped stack, sorted."""
    return sorted(_catalogue("stacks"))


def load_stack(name_or_path: str | Path) -> Stack:
    """Read a software stack: tables `[time]` and `[memory]` hold its fields, grouped for readers.

    Args:
        name_or_path: a shipped name or alias, in any case, or a TOML file.

    Raises:
        UserInputError: unknown name, unreadable file, or a value that no stack can have.
    """
    table, where = _read("stack", "stacks", name_or_path)
    table.pop("aliases", None)
    values = {**table, **table.get("time", {}), **table.get("memory", {})}
    values.pop("time", None)
    values.pop("memory", None)
    for key, kind in _STACK_PARTS:
        if key in values:
            part = values[key]
            if key == "host":
                pairs = {k: [tuple(p) for p in v] for k, v in part.items() if isinstance(v, list)}
                part = {**part, **pairs}
            values[key] = _build(kind, part, where)
    values["fitted"] = {
        name: _build(FittedConstant, part, where) for name, part in values.get("fitted", {}).items()
    }
    return _build(Stack, values, where)


def _device(table: Table, where: Path | None) -> Device:
    gemm = {}
    for precision, values in _take(table, "gemm", where).items():
        tile = values.pop("tile", None)
        built = None if tile is None else _build(TileConstants, tile, where)
        gemm[precision] = _build(GemmConstants, {**values, "tile": built}, where)
    sm_count = _take(dict(table), "sm_count", where)
    attention = {
        generation: _build(AttentionConstants, {"sm_count": float(sm_count), **values}, where)
        for generation, values in _take(table, "attention", where).items()
    }
    memory = _build(MemoryBoundConstants, _take(table, "memory_bound", where), where)
    table.pop("aliases", None)
    parts = {"gemm": gemm, "attention": attention, "memory_bound": memory}
    return _build(Device, {**table, **parts}, where)


def _build(kind: type[T], values: Mapping[str, Any], where: Path | None) -> T:
    """Construct a dataclass from a TOML table; unknown and missing keys are the user's to mend."""
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise UserInputError(
                f"{_label(where)}: unknown key {key!r} in {kind.__name__}",
                hint=f"valid: {', '.join(sorted(known))}",
            )
    tidy = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    try:
        return kind(**tidy)
    except TypeError as error:
        raise UserInputError(f"{_label(where)}: {kind.__name__} is incomplete: {error}") from error


def _read(kind: str, folder: str, name_or_path: str | Path) -> tuple[Table, Path | None]:
    text_name = str(name_or_path)
    if isinstance(name_or_path, Path) or _is_path(text_name):
        path = Path(name_or_path)
        if path.is_dir():
            # A profile folder holds device.toml, cluster.toml and stack.toml.
            path = path / f"{kind}.toml"
        table = _parse(path)
        table.setdefault("name", path.stem)
        base = table.pop("base", None)
        if base is not None:
            table = _merged(_shipped(kind, folder, str(base)), table)
        return table, path
    return _shipped(kind, folder, text_name), None


def _shipped(kind: str, folder: str, name: str) -> Table:
    catalogue = _catalogue(folder)
    wanted = name.strip().lower()
    aliases = (
        {
            str(alias).lower(): stem
            for stem, text in catalogue.items()
            for alias in tomllib.loads(text).get("aliases", [])
        }
        if wanted not in catalogue
        else {}
    )
    stem = aliases.get(wanted, wanted)
    if stem not in catalogue:
        raise unknown_name(kind, name, [*catalogue, *aliases])
    # Parsed anew: callers take the table apart.
    return tomllib.loads(catalogue[stem])


@cache
def _catalogue(folder: str) -> dict[str, str]:
    """Text of every shipped file by stem."""
    root = files("vtrain").joinpath("data", folder)
    return {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in root.iterdir()
        if entry.name.endswith(".toml")
    }


def _parse(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"{path} is not valid TOML: {error}") from error


def _merged(base: Table, override: Table) -> Table:
    out = dict(base)
    for key, value in override.items():
        old = out.get(key)
        out[key] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return out


def _take(table: Table, key: str, where: Path | None) -> Any:
    if key not in table:
        raise UserInputError(f"{_label(where)}: key {key!r} is missing")
    return table.pop(key)


def _is_path(text: str) -> bool:
    return text.endswith(".toml") or "/" in text or "\\" in text


def _label(where: Path | None) -> str:
    return "shipped data" if where is None else str(where)
