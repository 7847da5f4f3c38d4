"""`vtrain fit-devices`: constants of the shipped devices and clusters from measured tables."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("fit-devices")
@click.option(
    "--profiles",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with gemm.csv, attention.csv, collectives.csv and elementwise.csv.",
)
@click.option("--device", "chosen", multiple=True, help="Fit this device only (repeatable).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write devices/NAME.toml and clusters/NAME.toml here; without it nothing is written.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the cross-validated errors here (operators.csv, README.md).",
)
def fit_device(
    profiles: Path, chosen: tuple[str, ...], out: Path | None, report: Path | None
) -> None:
    """Fit operator and collective constants from measured tables, with held-out error.

    Prints one line a device, operator and model: rows and MAPE (median APE) in %, each row
    predicted by constants fitted on the other four fifths.
    """
    # Fitting pulls in pandas and scipy; the rest of the command line does without.
    from vtrain.latency.fit.borrow import BORROWED
    from vtrain.latency.fit.writer import (
        COMMAND,
        fit_all,
        report_csv,
        report_markdown,
        write_toml,
    )
    from vtrain.presets import device_names, load_device

    order = [*BORROWED, *(name for name in device_names() if name not in BORROWED)]
    wanted = {load_device(name).name for name in chosen} or set(order)
    names = [name for name in order if name in wanted]
    devices, clusters, scores = fit_all(
        profiles, names, lambda name: click.echo(f"fitting {name}", err=True)
    )
    for score in scores:
        click.echo(
            f"{score.device:18} {score.operator:34} {score.model:22} "
            f"{score.error.rows:6d}  {score.error.mape_pct:6.1f} ({score.error.median_ape_pct:.1f})"
        )
    if out is not None:
        for name, table in devices.items():
            write_toml(out / "devices" / f"{name}.toml", table)
        for name, table in clusters.items():
            write_toml(out / "clusters" / f"{name}.toml", table)
    if report is not None:
        import numpy
        import scipy

        report.mkdir(parents=True, exist_ok=True)
        header = (
            "# Operator and collective models: held-out error\n\n"
            f"Command: `{COMMAND} --report results/operators`, "
            f"NumPy {numpy.__version__}, SciPy {scipy.__version__}.\n"
            "MAPE (median APE) in %, five-fold cross-validation; products hold out (n, k) weight "
            "matrices, attention whole shapes, collectives message sizes, the network whole "
            "cluster sizes. Roofline: datasheet peaks, nothing fitted. `every m`: the protocol of "
            "the published comparison, rows one past a multiple of 16 included."
        )
        (report / "operators.csv").write_text(report_csv(scores), encoding="utf-8")
        (report / "README.md").write_text(report_markdown(scores, header), encoding="utf-8")
