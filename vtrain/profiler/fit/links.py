"""Constants of collectives from a profile's collectives.csv, and the cluster file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.hardware import COLLECTIVES
from vtrain.latency.fit.collectives import intra_form
from vtrain.latency.fit.robust import Error, cross_validate, fit
from vtrain.presets import cluster_table
from vtrain.profiler.fit.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain.profiler.fit.scale import Scale
    from vtrain.profiler.meta import Meta
    from vtrain.profiler.rows import Row

Table = dict[str, Any]

LEAST_ROWS = 4
BASE_CLUSTER = "a100-sxm-80g"
"""Cluster whose links stand in where none were measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """Fitted terms by operation, as TOML tables, and their held-out errors.

    Attributes:
        terms: a0, a1, bandwidth, square-root term of each measured operation.
        errors: error on held-out sizes.
        ranks: most ranks measured in one node.
    """

    terms: dict[str, Table] = field(default_factory=dict)
    errors: dict[str, Error] = field(default_factory=dict)
    ranks: int = 1


def bus_bytes(op: str, size: float, ranks: float) -> float:
    """Return bus traffic of a message (nccl-tests, PERFORMANCE.md)."""
    share = (ranks - 1.0) / ranks
    return size * {"all_reduce": 2.0 * share, "send_recv": 1.0}.get(op, share)


def fit_links(rows: Sequence[Row], planned: float) -> Links:
    """Fit every operation measured inside one node.

    Args:
        rows: collectives.csv.
        planned: bytes vtrain plans for each byte that travels.
    """
    terms: dict[str, Table] = {}
    errors: dict[str, Error] = {}
    most = 1
    for op in COLLECTIVES:
        mine = [
            row for row in rows if row["op"] == op and row["bytes"] and row["time_us"]
            and row["nodes"] == "1"
        ]  # fmt: skip
        if len(mine) < LEAST_ROWS:
            continue
        ranks, seconds = numbers(mine, "gpus"), numbers(mine, "time_us") * 1e-6
        traffic = np.array([
            planned * bus_bytes(op, size, count)
            for size, count in zip(numbers(mine, "bytes"), ranks, strict=True)
        ])  # fmt: skip
        form = intra_form(ranks, traffic)
        # Shared memory between processes: slower to start, and slower, than any GPU link.
        form = replace(
            form, low=(1e-7, form.low[1], 1e-12, *[1e7] * (len(form.low) - 3)),
            high=(1e-2, form.high[1], 1e-5, *form.high[3:]),
            start=(min(1e-3, float(seconds.min())), *form.start[1:3],
                   *[float((traffic / seconds).max())] * (len(form.low) - 3)),
        )  # fmt: skip
        found = fit(form, seconds, np.arange(seconds.size))
        counts = np.unique(ranks)
        by_ranks = np.interp(np.arange(2, int(counts.max()) + 1), counts, found[3:])
        terms[op] = {
            "a0_s": float(found[0]), "a1_s": float(found[1]) if counts.size > 1 else 0.0,
            "bandwidth_bytes_per_s": float(found[-1]), "sqrt_s_per_sqrt_byte": float(found[2]),
        }  # fmt: skip
        if counts.size > 1:
            terms[op]["bandwidth_by_ranks"] = [float(x) for x in by_ranks]
        sizes = np.unique(traffic, return_inverse=True)[1].ravel().astype(np.intp)
        errors[op] = cross_validate(form, seconds, sizes)
        most = max(most, int(counts.max()))
    return Links(terms=terms, errors=errors, ranks=most)


def cluster_toml(meta: Meta, scale: Scale, links: Links) -> Table:
    """Return the cluster file: measured links over those of the base cluster.

    A profile without collectives is a cluster of one device, unless its device is a shipped one,
    whose cluster then lends its links.
    """
    base = cluster_table(meta.base or BASE_CLUSTER)
    base.pop("aliases", None)
    measured = bool(links.terms)
    ranks = max(1, links.ranks)
    table: Table = {**base, "name": meta.name, "device": "./device.toml"}
    sources: Table = {
        key: {"source": f"not measured: {meta.base or BASE_CLUSTER}", "date": meta.date}
        for key in table if key != "sources"
    }  # fmt: skip
    sources["name"] = {"source": "ours", "date": meta.date}
    sources["device"] = {"source": "this profile", "date": meta.date}
    if not meta.base:
        one = {"gpus_per_node": ranks, "nvlink_domain": ranks, "nics_per_node": 1,
               "max_gpus": ranks}  # fmt: skip
        table |= one
        for key in one:
            sources[key] = {"source": f"ranks measured by {meta.command}", "date": meta.date}
    if measured:
        table["intra"] = {**base["intra"], **links.terms}
        for op, error in links.errors.items():
            sources[f"intra.{op}"] = {
                "source": f"fitted from collectives.csv of this profile: {meta.gpu}, "
                f"up to {links.ranks} ranks",
                "rows": error.rows, "cv_mape_pct": round(error.mape_pct, 2), "date": meta.date,
                "command": meta.command,
            }  # fmt: skip
        if "all_to_all" not in links.terms and not meta.base:
            table["intra"]["all_to_all"] = dict(
                links.terms.get("all_gather", base["intra"]["all_to_all"])
            )
    table["sources"] = sources
    return table
