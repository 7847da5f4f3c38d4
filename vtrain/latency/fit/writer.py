"""Turns fits into device and cluster files, and scores into a report."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from vtrain.files import write_text
from vtrain.latency.fit.borrow import BORROWED, LINKS_BORROWED, apply_borrowed
from vtrain.latency.fit.clusters import fit_links
from vtrain.latency.fit.devices import fit_operators
from vtrain.latency.fit.tables import MEASURED
from vtrain.presets import cluster_table, device_names, device_table, load_cluster, load_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vtrain.latency.fit.devices import Fitted, Scored

Table = dict[str, Any]

COMMAND = "vtrain fit-devices --profiles DIR"


def fit_all(
    profiles: Path, names: list[str], progress: Callable[[str], None]
) -> tuple[dict[str, Table], dict[str, Table], list[Scored]]:
    """Fit the devices and clusters named, in the order that donors come first.

    Args:
        profiles: folder of measured tables.
        names: shipped names; devices and clusters share them.
        progress: called with each name before it is fitted.

    Returns:
        Device tables, cluster tables (both by name, ready to write) and all scores.
    """
    stamp = {"date": date.today().isoformat(), "command": COMMAND}
    devices: dict[str, Table] = {}
    clusters: dict[str, Table] = {}
    scores: list[Scored] = []
    own: dict[str, Table] = {}
    for name in names:
        progress(name)
        table, links = device_table(name), cluster_table(name)
        if name in MEASURED:
            operators = fit_operators(profiles, load_device(name), MEASURED[name])
            network = fit_links(profiles, load_cluster(name), MEASURED[name])
            _merge(table, operators, stamp)
            _merge(links, network, stamp)
            scores += [*operators.scores, *network.scores]
        devices[name], clusters[name] = table, links
        own[name] = table
    # Two passes: a donor may itself wait for a value from another (A100 and H100 complete
    # each other's memory-bound shares), but never for the same one.
    for name in names:
        donors = {
            rule.donor: own.get(rule.donor) or device_table(rule.donor)
            for rule in BORROWED.get(name, ())
            if rule.donor
        }
        apply_borrowed(devices[name], BORROWED.get(name, ()), donors, stamp)
        links_from = {
            rule.donor: clusters.get(rule.donor) or cluster_table(rule.donor)
            for rule in LINKS_BORROWED.get(name, ())
        }
        apply_borrowed(clusters[name], LINKS_BORROWED.get(name, ()), links_from, stamp)
    _share_network(clusters, stamp)
    return devices, clusters, scores


def fit_order(chosen: Sequence[str]) -> list[str]:
    """Return the shipped devices named, all if none, in the order that donors come first.

    Raises:
        UserInputError: an unknown device.
    """
    order = [*BORROWED, *(name for name in device_names() if name not in BORROWED)]
    wanted = {load_device(name).name for name in chosen} or set(order)
    return [name for name in order if name in wanted]


def write_fits(folder: Path, devices: dict[str, Table], clusters: dict[str, Table]) -> None:
    """Write devices/NAME.toml and clusters/NAME.toml into a folder.

    Raises:
        UserInputError: when the folder cannot be written.
    """
    for kind, tables in (("devices", devices), ("clusters", clusters)):
        for name, table in tables.items():
            write_toml(folder / kind / f"{name}.toml", table)


def write_report(folder: Path, scores: list[Scored]) -> None:
    """Write the cross-validated errors into a folder: operators.csv and README.md."""
    import numpy
    import scipy

    folder.mkdir(parents=True, exist_ok=True)
    header = (
        "# Operator and collective models: held-out error\n\n"
        f"Command: `{COMMAND} --report results/operators`, "
        f"NumPy {numpy.__version__}, SciPy {scipy.__version__}.\n"
        "MAPE (median APE) in %, five-fold cross-validation; products hold out (n, k) weight "
        "matrices, attention whole shapes, collectives message sizes, the network whole "
        "cluster sizes. Roofline: datasheet peaks, nothing fitted. `every m`: the protocol of "
        "the published comparison, rows one past a multiple of 16 included."
    )
    (folder / "operators.csv").write_text(report_csv(scores), encoding="utf-8")
    (folder / "README.md").write_text(report_markdown(scores, header), encoding="utf-8")


NETWORK_DONOR = "h100-sxm-80g"


def _share_network(clusters: dict[str, Table], stamp: Table) -> None:
    """Give every cluster the one measured network curve, in units that scale with its NICs."""
    donor = clusters.get(NETWORK_DONOR) or cluster_table(NETWORK_DONOR)
    for name, table in clusters.items():
        table["inter"]["nvlink_bytes_per_s"] = table["intra"]["all_reduce"]["bandwidth_bytes_per_s"]
        table["sources"]["inter.nvlink_bytes_per_s"] = {
            "source": "bandwidth of a full domain, intra.all_reduce",
            **stamp,
        }
        if name == NETWORK_DONOR:
            continue
        for key in ("hop_s", "sqrt_s", "sqrt_hop_s", "nic_efficiency"):
            table["inter"][key] = donor["inter"][key]
        table["sources"]["inter"] = {
            "source": f"{NETWORK_DONOR} inter: the only network measured against size and node "
            "count; latency in seconds, growth in sqrt(seconds) of wire time",
            **stamp,
        }


def _merge(table: Table, fitted: Fitted, stamp: Table) -> None:
    for name, values in fitted.values.items():
        _update(table.setdefault(name, {}), values)
    for path, source in fitted.sources.items():
        table["sources"][path] = {**source, **stamp}


def _update(old: Table, new: Table) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            _update(old[key], value)
        else:
            old[key] = value


def write_toml(path: Path, table: Table) -> None:
    """Write one file whole or not at all, numbers to five digits.

    Raises:
        UserInputError: when the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, tomli_w.dumps(_rounded(table)))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float) and value != 0.0 and math.isfinite(value):
        # Datasheet values have at most six digits, fitted ones deserve no more than five.
        return float(f"{value:.6g}")
    return value


def score_rows(scores: list[Scored]) -> list[tuple[str, str, str, int, float, float]]:
    """Scores as rows: device, operator, model, rows, MAPE %, median APE %."""
    return [
        (s.device, s.operator, s.model, s.error.rows, s.error.mape_pct, s.error.median_ape_pct)
        for s in scores
    ]


def report_csv(scores: list[Scored]) -> str:
    """The scores as CSV text."""
    lines = ["device,operator,model,rows,cv_mape_pct,cv_median_ape_pct"]
    for device, operator, model, rows, mape, median in score_rows(scores):
        lines.append(f'{device},"{operator}",{model},{rows},{mape:.2f},{median:.2f}')
    return "\n".join(lines) + "\n"


def report_markdown(scores: list[Scored], header: str) -> str:
    """One line an operator and device: plain roofline beside our models, MAPE (median APE) in %."""
    grouped: dict[tuple[str, str], list[Scored]] = {}
    for score in scores:
        grouped.setdefault((score.device, score.operator), []).append(score)
    lines = [
        header,
        "",
        "| device | operator | rows | roofline | our models |",
        "|---|---|---:|---:|---|",
    ]
    for (device, operator), members in grouped.items():
        roof = next((m for m in members if m.model == "roofline"), None)
        ours = ", ".join(f"{m.model} {_cell(m)}" for m in members if m.model != "roofline")
        shown = _cell(roof) if roof else "-"
        lines.append(f"| {device} | {operator} | {members[0].error.rows} | {shown} | {ours} |")
    return "\n".join(lines) + "\n"


def _cell(score: Scored) -> str:
    return f"{score.error.mape_pct:.1f} ({score.error.median_ape_pct:.1f})"
