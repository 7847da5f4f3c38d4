"""`vtrain trace`: one simulated step as a file that Perfetto opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from vtrain.cli_options import plan_options, setting_options
from vtrain.design_option import design_option, read_request

if TYPE_CHECKING:
    from vtrain.simulation.timeline import Timeline


@click.command("trace")
@setting_options
@plan_options
@design_option
@click.option(
    "--out", metavar="FILE", required=True, help="Where the trace goes, for example step.json."
)
@click.option(
    "--ranks",
    metavar="all|N[,N...]",
    help="Pipeline ranks to draw; the ends and the middle of a long pipeline.",
)
@click.option("--full", is_flag=True, help="Draw every micro-batch of a long step.")
@click.option("--json", "as_json", is_flag=True, help="Print the breakdown as one JSON document.")
@click.pass_context
def trace_command(
    ctx: click.Context,
    /,
    design_file: str | None,
    out: str,
    ranks: str | None,
    full: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write one simulated step as a Chrome / Perfetto trace."""
    import json

    from vtrain.step_trace import trace_step

    setting, plan = read_request(ctx, design_file, options)
    timeline, events = trace_step(setting, plan, out, ranks=_ranks(ranks, plan.pp), full=full)
    if as_json:
        click.echo(json.dumps(_document(timeline, out, events), indent=2))
    else:
        click.echo(_text(timeline, out, events))


def _ranks(text: str | None, pp: int) -> list[int] | None:
    """Read --ranks."""
    from vtrain.errors import UserInputError

    if text is None:
        return None
    if text == "all":
        return list(range(pp))
    try:
        return [int(piece) for piece in text.split(",")]
    except ValueError:
        raise UserInputError(
            f"--ranks must be all or whole numbers, got {text!r}", hint=f"for example 0,{pp - 1}"
        ) from None


def _document(timeline: Timeline, out: str, events: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "file": out,
        "events": events,
        "step_time_s": timeline.step_time_s,
        "pipeline_s": timeline.pipeline_s,
        "micro_batches_not_drawn": sum(skip.micro_batches for skip in timeline.skips),
        "breakdown_s": {name: values.tolist() for name, values in timeline.breakdown_s.items()},
    }


def _text(timeline: Timeline, out: str, events: int) -> str:
    """Return where the step goes, on the first, the busiest and the last rank."""
    pp = timeline.plan.pp
    shown = sorted({0, timeline.critical_rank, pp - 1})
    lines = [
        f"step {timeline.step_time_s:.4g} s   {events} events in {out}",
        f"{'seconds':<16}" + "".join(f"{f'rank {rank}':>12}" for rank in shown),
    ]
    for name, seconds in timeline.breakdown_s.items():
        if seconds.any():
            lines.append(f"{name:<16}" + "".join(f"{seconds[rank]:12.4g}" for rank in shown))
    skipped = sum(skip.micro_batches for skip in timeline.skips)
    if skipped:
        lines.append(
            f"{skipped} of {timeline.plan.num_micro_batches} micro-batches repeat the ones before "
            "them and are drawn as one span (--full draws all)"
        )
    return "\n".join(lines)
