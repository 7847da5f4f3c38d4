"""`vtrain-search fit-law`: a team's pilot runs become a law for `--law FILE`."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import rich_click as click

from vtrain.errors import UserInputError
from vtrain.files import write_text

from .pilot_fit import PilotFit

LN2 = float(np.log(2.0))


@click.command("fit-law", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("pilots", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Law file to write.  [default: PILOTS.law.toml here]",
)
@click.option("--force", is_flag=True, help="Replace a law file with other contents.")
@click.option("--plot", type=click.Path(path_type=Path), help="SVG file to write.")
@click.option("--unit", type=click.Choice(["nats", "bits"]), help="Unit of `loss`, a token.")
@click.option(
    "--vocab-size",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Rows of the one embedding that `params` includes; 0: params exclude embeddings.",
)
@click.option("--exclude", default="", help="Rows to leave out, for example 3,17.")
@click.option(
    "--drop-lowest-ratio",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Leave out so many runs with the fewest tokens a parameter.",
)
@click.option(
    "--replicates",
    type=click.IntRange(min=100),
    default=1000,
    show_default=True,
    help="Bootstrap refits.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--huber-delta",
    type=click.FloatRange(min=0.0, min_open=True),
    help="Log residual at which the loss turns linear.  [default: 1e-3; 5e-3 below 100 runs]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="Write the files, print nothing but errors.")
def fit_law_command(
    pilots: Path,
    output: Path | None,
    force: bool,
    plot: Path | None,
    unit: str | None,
    vocab_size: int,
    exclude: str,
    drop_lowest_ratio: int,
    replicates: int,
    seed: int,
    huber_delta: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit L = E + A/N^alpha + B/D^beta to PILOTS, a CSV file of your own runs.

    Columns: params,tokens,loss[,width,depth,batch_tokens]. Where width and depth, or the batch,
    are given, their effect is taken out with the shipped terms first.
    """
    fit = run_fit(
        pilots, unit, vocab_size, exclude, drop_lowest_ratio, replicates, seed, huber_delta
    )
    target = output or Path(f"{pilots.stem}.law.toml")
    rebuilt = output is None and _made_from(target, pilots)
    write_once(target, law_text(fit, pilots, target), force=force or rebuilt)
    if plot is not None:
        from .plot import svg

        write_once(plot, svg(fit, f"{pilots.name}: {_formula(fit)}"), force=True)
    if as_json:
        click.echo(json.dumps(report(fit), indent=2))
    elif not quiet:
        click.echo(table(fit, target))


def report(fit: PilotFit) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "schema_version": 1,
        "coefficients": fit.coefficients(),
        "interval90": {name: list(edges) for name, edges in fit.interval90().items()},
        "rms_pct": fit.rms_pct,
        "heldout_rms_pct": fit.heldout_rms_pct,
        "excluded": list(fit.excluded),
        "suspect_rows": list(fit.suspects()),
        "runs": len(fit.points),
        "terms_removed": list(fit.terms_removed),
        "vocab_size": fit.vocab_size,
        "huber_delta": fit.huber_delta,
        "replicates": len(fit.draws["alpha"]),
        "seed": fit.seed,
    }


def table(fit: PilotFit, target: Path) -> str:
    """Return the human-readable result."""
    from .plot import text

    intervals = fit.interval90()
    lines = [f"{len(fit.points)} runs: {_formula(fit)}", ""]
    lines += [
        f"  {name:<6}{value:>12.5g}   90 % {intervals[name][0]:.4g} to {intervals[name][1]:.4g}"
        for name, value in fit.coefficients().items()
    ]
    held = fit.heldout_rms_pct
    lines += [
        "",
        f"  error on the fitted runs {fit.rms_pct:.2f} % rms; "
        + (
            "too few runs to hold a fifth out"
            if held is None
            else f"on the fifth with most compute, held out, {held:.2f} %"
        ),
    ]
    for compute in (1e22, 1e24):
        low, point, high = fit.tokens_per_parameter(compute)
        lines.append(
            f"  compute-optimal at {compute:.0e} FLOP: {point:.3g} tokens a parameter "
            f"({low:.2g} to {high:.2g})"
        )
    excluded = ", ".join(map(str, fit.excluded)) or "none"
    counted = (
        f"all parameters, one embedding of {fit.vocab_size:,} rows"
        if fit.vocab_size
        else "non-embedding parameters (--vocab-size says otherwise)"
    )
    if fit.suspects():
        rows = ", ".join(map(str, fit.suspects()[:10]))
        lines.append(f"  far off the fit, yet in it: rows {rows} (--exclude leaves them out)")
    lines += [
        f"  rows left out: {excluded}",
        f"  terms taken out first: {', '.join(fit.terms_removed) or 'none'}",
        f"  params taken as {counted}",
        "",
        text(fit),
        "",
        f"law file: {target}   (use it with --law {target})",
    ]
    return "\n".join(lines)


def run_fit(
    path: Path,
    unit: str | None,
    vocab_size: int,
    exclude: str,
    drop_lowest_ratio: int,
    replicates: int,
    seed: int,
    huber_delta: float | None,
) -> PilotFit:
    """Read pilot runs, leave out what the options say, and fit them."""
    from dataclasses import replace

    from .identify import refuse_other_unit
    from .pilot_fit import fit_pilots
    from .pilots import read_pilots

    pilots = read_pilots(path)
    if unit is None:
        refuse_other_unit(pilots)
    elif unit == "bits":
        pilots = replace(pilots, loss=pilots.loss * LN2)
    return fit_pilots(
        pilots,
        replicates=replicates,
        seed=seed,
        huber_delta=huber_delta,
        excluded=_row_numbers(exclude),
        drop_lowest_ratio=drop_lowest_ratio,
        vocab_size=vocab_size,
    )


def _row_numbers(words: str) -> tuple[int, ...]:
    parts = [part.strip() for part in words.split(",") if part.strip()]
    wrong = [part for part in parts if not part.isdigit()]
    if wrong:
        raise UserInputError(f"--exclude takes row numbers, got {wrong[0]!r}", hint="like 3,17")
    return tuple(int(part) for part in parts)


def _formula(fit: PilotFit) -> str:
    c = fit.coefficients()
    return f"L = {c['E']:.4g} + {c['A']:.4g}/N^{c['alpha']:.4g} + {c['B']:.4g}/D^{c['beta']:.4g}"


def law_text(fit: PilotFit, pilots: Path, target: Path) -> str:
    """Return the law file of a fit, with its interval and where it comes from."""
    from vtrain_search.laws.lawfile import dump_law

    digest = hashlib.sha256(pilots.read_bytes()).hexdigest()
    name = target.name.removesuffix(".toml").removesuffix(".law")
    found = report(fit)
    extra = {
        "interval90": found["interval90"],
        "fit": {
            key: found[key]
            for key in (
                "runs",
                "rms_pct",
                "excluded",
                "terms_removed",
                "huber_delta",
                "replicates",
                "seed",
            )
        }
        | {"pilots": pilots.name, "pilots_sha256": digest}
        | ({} if fit.heldout_rms_pct is None else {"heldout_rms_pct": fit.heldout_rms_pct}),
    }
    return dump_law(fit.law(name, f"{pilots.name}, {len(fit.points)} runs"), extra)


def _made_from(target: Path, pilots: Path) -> bool:
    """Return whether a file is an earlier fit to pilots of the same name, free to be rebuilt."""
    try:
        document = tomllib.loads(target.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    fit = document.get("fit")
    return isinstance(fit, dict) and fit.get("pilots") == pilots.name


def write_once(path: Path, content: str, *, force: bool) -> None:
    """Write a file whole or not at all; refuse to replace other contents unless forced."""
    if not force and path.is_file() and path.read_bytes() != content.encode():
        raise UserInputError(
            f"{path} exists with other contents", hint="choose another --output or add --force"
        )
    write_text(path, content)
