"""`vtrain profile`: measure this machine, fit, and prove the fit on real training steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = click.Path(path_type=Path, file_okay=False)


def _above_zero(_context: click.Context, _option: click.Parameter, minutes: float) -> float:
    # Written so that "nan" is refused too: no time would ever be past it.
    if not minutes > 0.0:
        raise click.BadParameter(f"{minutes:g} minutes must be above 0")
    return minutes


@click.group("profile")
def profile_group() -> None:
    """Measure this machine's operators and links, and check predictions against real steps."""


@profile_group.command("run")
@click.option("--device", "kind", type=click.Choice(["cuda", "cpu"]), required=True)
@click.option("--out", type=_FOLDER, required=True, help="Profile folder to write.")
@click.option("--minutes", type=float, default=8.0, show_default=True, callback=_above_zero,
              help="Time limit.")  # fmt: skip
@click.option(
    "--gemms", type=click.IntRange(30, 150), default=48, show_default=True,
    help="Products to measure, each in three layouts.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True,
              help="Threads of one operator (CPU).")  # fmt: skip
@click.option("--name", help="Name of the profile; the folder's.")
@click.option("--resume", is_flag=True, help="Go on with the profile in --out.")
@click.option("--force", is_flag=True, help="Measure again over the profile in --out.")
@click.option("--dry-run", is_flag=True, help="Print what would be measured and stop.")
def run_command(
    kind: str, out: Path, minutes: float, gemms: int, threads: int, name: str | None,
    resume: bool, force: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Measure the operators of a device; under torchrun, its collectives.

    The folder then serves any command as --cluster and as --stack. Rows already measured are
    kept with --resume. Under `torchrun --no-python vtrain profile run` the collectives between
    the ranks are measured and added.
    """
    from vtrain.profiler.run import RunOptions, run_profile

    options = RunOptions(
        kind=kind, out=out, minutes=minutes, gemms=gemms, threads=threads,
        name=name or out.resolve().name, resume=resume, force=force,
    )  # fmt: skip
    if dry_run:
        from vtrain.profiler.run import describe_run

        click.echo(describe_run(options))
        return
    for line in run_profile(options, _progress("measuring")):
        click.echo(line)


@profile_group.command("fit")
@click.option("--profile", "folder", type=_FOLDER, required=True, help="Profile folder.")
def fit_command(folder: Path) -> None:
    """Fit the constants of a profile anew from its rows, with held-out errors."""
    from vtrain.profiler.run import fit_lines_of

    for line in fit_lines_of(folder):
        click.echo(line)


@profile_group.command("verify")
@click.option("--profile", "folder", type=_FOLDER, required=True, help="Profile folder.")
@click.option("--configs", "count", type=click.IntRange(min=1), default=12, show_default=True,
              help="Random configurations.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=1), default=7, show_default=True,
              help="Steps timed of each.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--memory/--no-memory", default=True, show_default=True,
              help="Check peak memory as well.")  # fmt: skip
@click.option("--minutes", type=float, default=30.0, show_default=True, callback=_above_zero,
              help="No configuration is begun after this.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def verify_command(
    folder: Path,
    count: int,
    repeats: int,
    seed: int,
    memory: bool,
    minutes: float,
    as_json: bool,
) -> None:
    """Run real training steps and print predicted against measured time and memory.

    Under torchrun: data-, tensor- and pipeline-parallel steps of a small model.
    """
    from vtrain.profiler.run import VerifyOptions, run_verify

    options = VerifyOptions(
        folder=folder,
        count=count,
        repeats=repeats,
        seed=seed,
        memory=memory,
        minutes=minutes,
        as_json=as_json,
    )
    for line in run_verify(options, _progress("verifying")):
        click.echo(line)


@profile_group.command("import")
@click.argument("tables", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--gpu", required=True, help="Value of the gpu column.")
@click.option("--base", help="Shipped device whose datasheet holds, e.g. h100-sxm-80g.")
@click.option("--dtype", default="bf16", show_default=True, help="Value of the dtype column.")
@click.option("--source", default="", help="Keep rows whose source contains this.")
@click.option("--out", type=_FOLDER, required=True, help="Profile folder to write.")
@click.option("--force", is_flag=True, help="Write over a profile in --out.")
def import_command(
    tables: Path, gpu: str, base: str | None, dtype: str, source: str, out: Path, force: bool
) -> None:
    """Make a profile of published operator tables in a folder TABLES.

    Reads gemm.csv, attention.csv, elementwise.csv and collectives.csv where they are; `vtrain
    profile run` writes the same columns.
    """
    from vtrain.profiler.importer import import_tables
    from vtrain.profiler.run import fit_lines_of

    meta = import_tables(tables, out, gpu=gpu, base=base, dtype=dtype, source=source, force=force)
    click.echo(f"{out}: {meta.planned} rows of {meta.gpu}")
    for line in fit_lines_of(out):
        click.echo(line)


@profile_group.command("budget")
@click.option(
    "--tables",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with a published gemm.csv.",
)
@click.option("--device", "devices", multiple=True, help="Shipped device (repeatable).")
@click.option(
    "--shapes", "counts", multiple=True, type=click.IntRange(min=15), help="Products profiled."
)
def budget_command(tables: Path, devices: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """Show held-out error against the number of profiled products, from published tables."""
    from vtrain.profiler.budget import DEVICES, budget_lines, profiling_budget

    rows = []
    for name in devices or DEVICES:
        rows += profiling_budget(tables, name, counts or (30, 120, 1000, 4000))
    for line in budget_lines(rows):
        click.echo(line)


def _progress(what: str) -> Callable[[int, int, str], None]:
    """Return a callback that keeps one line on stderr up to date."""
    import sys

    live = sys.stderr.isatty()

    def show(done: int, total: int, label: str) -> None:
        if live:
            bar = "#" * round(24 * done / max(total, 1))
            text = f"\r{what} [{bar:24}] {done}/{total} {label[:48]:48}"
            click.echo(text, err=True, nl=done == total)
        elif done == total or done % 25 == 0:
            click.echo(f"{what} {done}/{total}", err=True)

    return show
