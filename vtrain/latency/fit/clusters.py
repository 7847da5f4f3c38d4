"""Fits the links of one cluster from collectives.csv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.latency.fit import collectives, tables
from vtrain.latency.fit.devices import Fitted, Scored
from vtrain.latency.fit.robust import cross_validate, fit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from vtrain.hardware import Cluster
    from vtrain.latency.fit.robust import Form
    from vtrain.latency.fit.tables import Frame, Rows

    Array = NDArray[np.float64]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LARGEST_GROUP = 8
"""Rank counts up to here get their own bandwidth."""


def fit_links(folder: Path, cluster: Cluster, rows: Rows) -> Fitted:
    """Fit collectives inside a domain, send/receive, and all-reduce across domains.

    Args:
        folder: the measured tables.
        cluster: datasheet values.
        rows: which rows describe the cluster.
    """
    frame = tables.read_table(folder, "collectives.csv")
    timed = frame[(frame["gpu"] == rows.gpu) & frame["time_us"].notna() & frame["bytes"].notna()]
    values: dict[str, Any] = {"intra": {}}
    sources: dict[str, dict[str, Any]] = {}
    scores: list[Scored] = []
    for op in OPERATIONS:
        found = _inside(timed, op, cluster)
        if len(found) < 20:
            continue
        terms, source, scored = _intra(found, op, cluster)
        values["intra"][op] = terms
        sources[f"intra.{op}"] = source
        scores += scored
    if rows.peer_system:
        peers = timed[(timed["op"] == "send_recv") & (timed["system"] == rows.peer_system)]
        terms, source, scored = _intra(peers[peers["nodes"] == 1], "send_recv", cluster)
        values["intra"]["send_recv"] = terms
        sources["intra.send_recv"] = source
        scores += scored
    elif values["intra"]:
        # A two-rank all-to-all is an exchange of half of the buffer with one peer; where only
        # all-reduce was measured, its two ranks send each other the buffer once each way.
        donor = "all_to_all" if "all_to_all" in values["intra"] else "all_reduce"
        values["intra"]["send_recv"] = _as_exchange(values["intra"][donor])
        sources["intra.send_recv"] = {"source": f"two-rank {donor} of the same fit"}
    for op in OPERATIONS:
        if values["intra"] and op not in values["intra"]:
            values["intra"][op] = dict(values["intra"]["all_reduce"])
            sources[f"intra.{op}"] = {
                "source": "all_reduce of the same fit: nothing else was measured"
            }
    if rows.network:
        across = timed[(timed["op"] == "all_reduce") & timed["system"].isin(rows.network)]
        network, source, scored = _inter(across, cluster)
        values["inter"] = network
        sources["inter"] = source
        scores += scored
    return Fitted(values=values, sources=sources, scores=scores)


def _inside(timed: Frame, op: str, cluster: Cluster) -> Frame:
    """Rows of one operation inside a node: dense grids, and long messages of other benchmarks."""
    one = (timed["nodes"] == 1) | timed["system"].str.contains("NVL72 1 rack", regex=False)
    inside = timed[(timed["op"] == op) & one & (timed["gpus"] >= 2)]
    dense = inside["source"].str.contains("aiconf|LUT")
    # The vTrain table of the A100 was taken with an older library: 92 us where 39 us are usual.
    dense &= inside["system"] != "8xA100 NVSwitch node"
    # Grids end at 512 MiB; full-domain runs of other laboratories pin what larger messages reach.
    large = (inside["bytes"] >= 2**29) & inside["gpus"].isin([LARGEST_GROUP, cluster.nvlink_domain])
    large &= ~inside["system"].str.contains("NVLS off|Galvatron|default algo|8xA100 NVSwitch node")
    return inside[(dense | large) & (inside["bytes"] >= 512)]


def _intra(frame: Frame, op: str, cluster: Cluster) -> tuple[dict[str, Any], Any, list[Scored]]:
    ranks = frame["gpus"].to_numpy(dtype=np.float64)
    message = frame["bytes"].to_numpy(dtype=np.float64)
    measured = tables.seconds(frame)
    bus = _bus_bytes(op, message, ranks)
    form = collectives.intra_form(ranks, bus)
    # Sizes are held out, not single rows: neighbours in rank count would give them away.
    groups = tables.group_numbers(frame, ["bytes"])
    line = _line_rate(cluster)
    forms = [
        collectives.line_rate_form(bus, line),
        collectives.alpha_beta_form(bus),
        form,
    ]
    scored = [_score(cluster, f"{op} in a domain", each, measured, groups) for each in forms]
    found = fit(form, measured, np.arange(measured.size))
    counts = np.unique(ranks)
    largest = min(LARGEST_GROUP, cluster.nvlink_domain)
    wanted = np.arange(2, largest + 1)
    bandwidth = found[3:]
    if counts.size > 2 or counts[-1] > 4:
        # In-network reduction starts above four ranks, so counts between 4 and 8 go with 8.
        at = np.searchsorted(counts, wanted)
        exact = np.isin(wanted, counts)
        low = np.interp(wanted, counts, bandwidth)
        up = bandwidth[np.minimum(at, counts.size - 1)]
        by_ranks = np.where(exact | (wanted < 4), low, up)
    else:
        by_ranks = np.interp(wanted, counts, bandwidth)
    terms: dict[str, Any] = {
        "a0_s": float(found[0]),
        "a1_s": float(found[1]) if counts.size > 1 else 0.0,
        "bandwidth_bytes_per_s": float(by_ranks[-1]),
        "sqrt_s_per_sqrt_byte": float(found[2]),
    }
    if counts.size > 1:
        terms["bandwidth_by_ranks"] = [float(value) for value in by_ranks]
    error = scored[-1].error
    systems = ", ".join(sorted(set(frame["system"])))
    source = {
        "source": f"fitted from collectives.csv: {systems}; ranks {_counts(counts)}",
        "rows": error.rows,
        "cv_mape_pct": round(error.mape_pct, 2),
        "cv_median_ape_pct": round(error.median_ape_pct, 2),
    }
    return terms, source, scored


def _inter(frame: Frame, cluster: Cluster) -> tuple[dict[str, Any], Any, list[Scored]]:
    ranks = frame["gpus"].to_numpy(dtype=np.float64)
    domains = ranks / cluster.nvlink_domain
    bus = _bus_bytes("all_reduce", frame["bytes"].to_numpy(dtype=np.float64), ranks)
    measured = tables.seconds(frame)
    line = cluster.nic_bytes_per_s * cluster.nvlink_domain
    form = collectives.inter_form(domains, bus, line, 1.0)
    groups = tables.group_numbers(frame, ["gpus"])
    forms = [
        collectives.line_rate_form(bus, line),
        collectives.alpha_beta_form(bus),
        form,
    ]
    scored = [
        _score(cluster, "all_reduce across domains", each, measured, groups) for each in forms
    ]
    found = fit(form, measured, np.arange(measured.size))
    network = {
        "hop_s": float(found[0]),
        "sqrt_s": float(found[1]),
        "sqrt_hop_s": float(found[2]),
        "nic_efficiency": float(found[3]),
    }
    error = scored[-1].error
    source = {
        "source": "fitted from collectives.csv: " + ", ".join(sorted(set(frame["system"]))),
        "rows": error.rows,
        "cv_mape_pct": round(error.mape_pct, 2),
        "cv_median_ape_pct": round(error.median_ape_pct, 2),
    }
    return network, source, scored


def _bus_bytes(op: str, message: Array, ranks: Array) -> Array:
    """Bus traffic of a message as nccl-tests counts both."""
    if op == "send_recv":
        return message
    factor = (ranks - 1.0) / ranks
    return message * (2.0 * factor if op == "all_reduce" else factor)


def _as_exchange(terms: dict[str, Any]) -> dict[str, Any]:
    by_ranks = terms.get("bandwidth_by_ranks", [terms["bandwidth_bytes_per_s"]])
    return {
        "a0_s": terms["a0_s"] + terms["a1_s"],
        "a1_s": 0.0,
        "bandwidth_bytes_per_s": by_ranks[0],
        "sqrt_s_per_sqrt_byte": terms["sqrt_s_per_sqrt_byte"],
    }


def _line_rate(cluster: Cluster) -> float:
    """Datasheet NVLink (or PCIe) bandwidth one way, by architecture of the device."""
    rates = {"Volta": 150e9, "Ampere": 300e9, "Hopper": 450e9}
    if "pcie" in cluster.name:
        return 32e9
    return rates.get(cluster.device.arch, 900e9)


def _counts(counts: Array) -> str:
    return ", ".join(str(int(value)) for value in counts)


def _score(
    cluster: Cluster, operator: str, form: Form, measured: Array, groups: NDArray[np.intp]
) -> Scored:
    error = cross_validate(form, measured, groups)
    return Scored(device=cluster.name, operator=operator, model=form.name, error=error)
