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
    from vtrain.latency.fit.writer import fit_all, fit_order, write_fits, write_report

    devices, clusters, scores = fit_all(
        profiles, fit_order(chosen), lambda name: click.echo(f"fitting {name}", err=True)
    )
    for score in scores:
        click.echo(
            f"{score.device:18} {score.operator:34} {score.model:22} "
            f"{score.error.rows:6d}  {score.error.mape_pct:6.1f} ({score.error.median_ape_pct:.1f})"
        )
    if out is not None:
        write_fits(out, devices, clusters)
    if report is not None:
        write_report(report, scores)
