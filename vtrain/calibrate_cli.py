"""`vtrain calibrate`: site factors from the iteration lines of training logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from vtrain.cli_options import build_plan, load_setting, plan_options, setting_options

if TYPE_CHECKING:
    from vtrain.calibration_run import Reading
    from vtrain.cli_options import Setting

_SETTING = ("model", "cluster", "stack", "seq_length", "site")
_WHOLE = {
    "gpus": "gpus", "tp": "tp", "pp": "pp", "cp": "cp", "vpp": "virtual_stages",
    "micro_batch": "micro_batch_size", "global_batch": "global_batch_size",
}  # fmt: skip
_WORDS = ("recompute", "sharding", "schedule")


@click.command("calibrate")
@click.option(
    "--log", "logs", multiple=True, required=True, metavar="FILE[@tp=4,pp=2,...]",
    help="A training log; what follows @ overrides the plan for this file. Repeatable.",
)  # fmt: skip
@click.option("--format", "format_", metavar="NAME", help="Of the logs; found out by default.")
@setting_options
@plan_options
@click.option("--out", default="site.toml", show_default=True, metavar="FILE", help="Site file.")
@click.option(
    "--force", is_flag=True,
    help="Write over --out, and in spite of an implausible log or a fit that is refused.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def calibrate_command(
    logs: tuple[str, ...], format_: str | None, out: str, force: bool, as_json: bool, **options: Any
) -> None:
    """Fit at most four factors to measured steps, so that predictions match this site.

    Reads logs of Megatron-LM, Megatron-DeepSpeed, NeMo, torchtitan, nanotron, llm-foundry and
    nanoGPT, or a CSV of steps. Warm-up and outliers are left out and counted; a log that cannot
    be true is refused with the arithmetic. Every command then takes the file as --site.

    A CSV has one row a step and a header line with one of step_time_s, step_time_ms (time of a
    step), tokens_per_s, samples_per_s (of all GPUs) or tokens_per_s_per_gpu; it may have number
    (of the step), global_batch_size, consumed_samples (sequences), tflops_per_gpu, mfu (0.4, not
    40) and memory_bytes. Other columns are ignored.

    The error before and after the fit is printed for each log, in % of the measured step. Above
    15 % after the fit a log is warned of, with the input that is most likely wrong. When half of
    the logs stay more than 25 % off, nothing is written (exit code 2) unless --force is given:
    that is three times the largest error that fits of eight steps leave on published runs whose
    plans do not stall.
    """
    import json
    from pathlib import Path

    from vtrain.calibration_report import document, text_lines, write_site
    from vtrain.calibration_run import calibrate
    from vtrain.errors import UserInputError

    if Path(out).exists() and not force:
        raise UserInputError(f"{out} exists", hint="--force writes over it")
    setting = load_setting(**{key: options.pop(key) for key in _SETTING})
    readings = [_reading(entry, format_, setting, options) for entry in logs]
    result = calibrate(setting, readings)
    written = force or result.refusal is None
    if written:
        write_site(result, out, forced=force)
    if as_json:
        click.echo(json.dumps(document(result, out, written=written), indent=2))
    else:
        for line in text_lines(result):
            click.echo(line)
    for warning in result.warnings:
        # A refusal ends with this clause.
        if written or warning != result.likely:
            click.echo(f"warning: {warning}", err=True)
    if result.refusal is not None and not written:
        raise UserInputError(result.refusal, hint=f"--force writes {out} all the same")
    if not as_json:
        click.echo(f"{out}: use it with --site {out}")


def _reading(entry: str, format_: str | None, setting: Setting, options: dict[str, Any]) -> Reading:
    """Read one log with its plan."""
    from pathlib import Path

    from vtrain.calibration_run import Reading
    from vtrain.formats.logs import read_log

    name, _, changes = entry.rpartition("@") if "@" in entry else (entry, "", "")
    if changes and ("=" not in changes or Path(entry).exists()):
        name, changes = entry, ""
    plan = build_plan(setting, **{**options, **_overrides(changes)})
    return Reading(log=read_log(name, format_), plan=plan)


def _overrides(text: str) -> dict[str, Any]:
    """Return the plan options behind an @."""
    from vtrain.errors import UserInputError
    from vtrain.units import parse_count

    out: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        key = key.replace("-", "_")
        if key in _WHOLE:
            out[_WHOLE[key]] = parse_count(value, what=key)
        elif key in _WORDS and value:
            out[key] = value
        elif key == "sequence_parallel" and value in ("true", "false"):
            out[key] = value == "true"
        else:
            raise UserInputError(
                f"cannot read {part!r} behind @",
                hint=f"any of {', '.join([*_WHOLE, *_WORDS, 'sequence_parallel'])}",
            )
    return out
