"""`vtrain tenancy`: several training jobs on one cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

F = TypeVar("F", bound=Callable[..., Any])
POLICY_NAMES = ("fifo", "srtf", "edf", "las", "elasticflow", "patient")


@click.group("tenancy", context_settings={"help_option_names": ["-h", "--help"]})
def tenancy() -> None:
    """Simulate a GPU cluster that several training jobs share."""


def _cluster_options(function: F) -> F:
    """Add what describes the cluster and its upkeep."""
    for option in reversed([
        click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs shared."),
        click.option("--cluster", metavar="NAME|FILE", default="a100-sxm-80g", show_default=True,
                     help="What they are."),
        click.option("--stack", metavar="NAME|FILE", default="megatron-core-2025",
                     show_default=True, help="Training software of every job."),
        click.option("--site", metavar="FILE",
                     help="Site factors written by `vtrain calibrate`."),
        click.option("--recompute", metavar="NAME[,NAME...]",
                     help="Only plans with this recomputation: none, selective, full."),
        click.option("--speed", type=click.Choice(["vtrain", "data-parallel"]), default="vtrain",
                     show_default=True,
                     help="Speed of a job: its best plan at every GPU count, or one fixed plan "
                     "scaled by data parallelism."),
        click.option("--failures", type=click.Choice(["none", "expected", "random"]),
                     default="expected", show_default=True,
                     help="Nothing fails; jobs run at speed times goodput; or nodes fail at "
                     "random."),
        click.option("--rescale", metavar="DURATION",
                     help="Pause of a job that changes nodes, its last checkpoint apart; 10min."),
        click.option("--jobs", "jobs_file", metavar="FILE", help="CSV of jobs."),
        click.option("--skip-bad", is_flag=True, help="Leave bad rows out instead of stopping."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    ]):  # fmt: skip
        function = option(function)
    return function


@tenancy.command("run")
@_cluster_options
@click.option("--generate", "recipe", metavar="KEY=VALUE,...",
              help="Draw jobs: jobs=64,load=0.9,tightness=1.5[,models=A+B,hours_low=12,"
              "hours_high=120,share=0.5,stretch=2].")  # fmt: skip
@click.option("--policy", type=click.Choice(POLICY_NAMES), default="patient", show_default=True,
              help="Who gets which GPUs when.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the jobs drawn and of random failures.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True,
              help="Runs, from --seed on; several give means with 95 % intervals.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True,
              help="Processes for several seeds; more than one use Ray.")  # fmt: skip
@click.option("--price", metavar="USD", help="Dollars per GPU-hour; the cluster's default.")
@click.option("--log", "log_file", metavar="FILE", help="Write one CSV line a job.")
@click.option("--timeline", "timeline_file", metavar="FILE",
              help="Write one CSV line for every stretch a job held the same nodes.")  # fmt: skip
@click.option("--gantt", "gantt_file", metavar="FILE", help="Draw the cluster over time (SVG).")
def run_command(as_json: bool, **options: Any) -> None:
    """Play a workload under a policy and print what it was worth."""
    import json

    from vtrain.tenancy.commands import run_document, run_table

    document = run_document(options, warn=lambda line: click.echo(line, err=True))
    click.echo(json.dumps(document, indent=2) if as_json else run_table(document))


@tenancy.command("admit")
@_cluster_options
@click.option("--model", metavar="NAME|FILE", help="What the new job trains.")
@click.option("--tokens", metavar="T", help="Tokens it trains on.")
@click.option("--global-batch", "global_batch_size", type=click.IntRange(min=1), default=1024,
              show_default=True, metavar="SEQUENCES", help="Sequences of one step.")  # fmt: skip
@click.option("--seq", "seq_length", type=click.IntRange(min=1), metavar="TOKENS",
              help="Sequence length; the model's own.")  # fmt: skip
@click.option("--at", "arrival", metavar="DURATION", default="0", show_default=True,
              help="When it is handed in, on the clock of the jobs file.")  # fmt: skip
@click.option("--within", metavar="DURATION", help="Time from then to its deadline.")
@click.option("--max-gpus", type=click.IntRange(min=1), metavar="N",
              help="GPUs it may be given at most.")  # fmt: skip
def admit_command(as_json: bool, **options: Any) -> int:
    """Say whether a new job can be promised by a date, and by which date at the earliest."""
    import json

    from vtrain.tenancy.commands import admit_document, admit_text

    document = admit_document(options, warn=lambda line: click.echo(line, err=True))
    click.echo(json.dumps(document, indent=2) if as_json else admit_text(document))
    return 3 if document["promised"] is False else 0
