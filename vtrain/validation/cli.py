"""`vtrain validate`: predicted against measured runs, by source."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--source", "sources", multiple=True, help="Judge only this run_id prefix.")
@click.option("--min-mfu", default=0.0, show_default=True, help="Leave out rows below this MFU.")
@click.option(
    "--max-memory-share",
    default=float("inf"),
    help="Leave out plans predicted to use more than this share of device memory.",
)
@click.option("--few-shot", default=0, show_default=True, help="Rows that fit the site factors.")
@click.option("--seeds", default=5, show_default=True, help="Hash seeds that pick those rows.")
@click.option("--rows-out", type=click.Path(path_type=Path), help="Write one line a judged row.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def validate(
    files: tuple[Path, ...],
    sources: tuple[str, ...],
    min_mfu: float,
    max_memory_share: float,
    few_shot: int,
    seeds: int,
    rows_out: Path | None,
    as_json: bool,
) -> None:
    """Compare predictions with measured training runs in FILES (CSV)."""
    from vtrain.files import write_text
    from vtrain.validation.report import report_json, report_text, rows_csv
    from vtrain.validation.runs import read_runs
    from vtrain.validation.score import Options, validate_runs

    options = Options(
        sources=sources, min_mfu=min_mfu, max_memory_share=max_memory_share, few_shot=few_shot,
        seeds=seeds,
    )  # fmt: skip
    runs = [run for path in files for run in read_runs(path)]
    report = validate_runs(runs, options)
    if rows_out is not None:
        write_text(rows_out, rows_csv(report))
    click.echo(json.dumps(report_json(report), indent=1) if as_json else report_text(report))
