"""`vtrain plans`: the valid plans of a model, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from vtrain.cli_options import load_setting, memory_limit_option, setting_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vtrain.cli_options import Setting
    from vtrain.ranking import RankedPlans

CHOICES = {
    "recompute": ("none", "selective", "full"),
    "sharding": ("none", "zero1", "zero2", "zero3"),
}


@click.command("plans")
@setting_options
@memory_limit_option
@click.option("--gpus", metavar="N[,N...]", help="GPU counts to plan for.")
@click.option(
    "--global-batch",
    "global_batch_size",
    type=click.IntRange(min=1),
    metavar="SEQUENCES",
    help="Sequences of one step.",
)
@click.option("--tokens", metavar="T", help="Tokens of the whole run: adds days and dollars.")
@click.option("--price", metavar="USD", help="Dollars per GPU-hour; the cluster's default.")
@click.option("--tp", metavar="N[,N...]", help="Only these tensor-parallel degrees.")
@click.option("--pp", metavar="N[,N...]", help="Only these pipeline degrees.")
@click.option("--cp", metavar="N[,N...]", help="Only these context-parallel degrees.")
@click.option("--vpp", "virtual_stages", metavar="N[,N...]", help="Only these virtual stages.")
@click.option(
    "--micro-batch", "micro_batch_size", metavar="N[,N...]", help="Only these micro-batch sizes."
)
@click.option(
    "--recompute",
    metavar="NAME[,NAME...]",
    help="Of none, selective, full.  [default: all three]",
)
@click.option(
    "--sharding",
    metavar="NAME[,NAME...]",
    help="Of none, zero1, zero2, zero3.  [default: the stack's own and zero1]",
)
@click.option("--pareto", is_flag=True, help="Only plans that no other beats in time and cost.")
@click.option(
    "--max-micro-batch",
    is_flag=True,
    help="For each layout the largest micro-batch that fits and the fastest.",
)
@click.option("--all", "show_all", is_flag=True, help="Also plans that do not fit.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Plans shown for each GPU count.",
)
@click.option("--csv", "csv_file", metavar="FILE", help="Write every plan to a CSV file.")
@click.option(
    "--explain",
    is_flag=True,
    help="Why near misses do not fit (where nothing does, the leanest plan), and what would "
    "make them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plans_command(
    top: int, csv_file: str | None, as_json: bool, explain: bool, max_micro_batch: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Enumerate and rank the valid plans of a model on given GPU counts.

    Every split into tp x pp x dp, virtual stages, micro-batch and recomputation that the stack
    accepts; of shardings, the stack's own and zero1, of context parallelism 1, unless --sharding
    and --cp name others. Plans that fit come first, then those that are tight: above the memory
    limit, with a step time not to be relied on.
    """
    import json

    from vtrain.errors import InfeasibleError
    from vtrain.explain import explain_misfits
    from vtrain.ranking import fits_first, largest_micro_batches, rank_plans

    keys = ("model", "cluster", "stack", "seq_length", "site", "memory_limit")
    setting = load_setting(**{key: options.pop(key) for key in keys})
    request = _read(setting, options)
    why = None
    if explain:
        everything = rank_plans(setting, **{**request, "keep_misfits": True, "pareto": False})
        why = explain_misfits(setting, everything)
    try:
        ranked = rank_plans(setting, **request)
    except InfeasibleError:
        if why is not None and not as_json:
            click.echo(why)
        raise
    if request["keep_misfits"]:
        ranked = fits_first(ranked)
    if max_micro_batch:
        ranked = largest_micro_batches(ranked)
    if csv_file:
        from vtrain.files import write_text

        write_text(csv_file, ranked.csv())
    rows = ranked.rows(top)
    if as_json:
        document = {
            "schema_version": 1,
            "counts": ranked.counts(),
            "enumerated": {
                "recompute": list(ranked.space.recompute),
                "sharding": list(ranked.space.sharding),
                "cp": list(ranked.space.cp),
            },
            "nothing_fits_on_gpus": list(ranked.barren_gpus),
            "rows": rows,
        }
        if why is not None:
            document["explanation"] = why.split("\n")
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(_table(ranked, rows))
    if why is not None:
        click.echo(why)


def _read(setting: Setting, options: dict[str, Any]) -> dict[str, Any]:
    """Turn option text into the arguments of `rank_plans`.

    Raises:
        UserInputError: for missing or unreadable values.
    """
    from vtrain.errors import UserInputError
    from vtrain.prices import default_price
    from vtrain.units import parse_number, parse_price_usd_per_gpu_hour

    if not options["gpus"]:
        raise UserInputError("--gpus is needed", hint="for example --gpus 512,1024")
    if not options["global_batch_size"]:
        raise UserInputError("--global-batch is needed", hint="for example --global-batch 1024")
    pins: dict[str, Any] = {}
    for key in ("tp", "pp", "cp", "virtual_stages", "micro_batch_size"):
        if options[key] is not None:
            pins[key] = whole_numbers(f"--{key}", options[key])
    for key, choices in CHOICES.items():
        if options[key] is not None:
            names = tuple(part.strip() for part in options[key].split(","))
            for name in names:
                if name not in choices:
                    raise UserInputError(
                        f"--{key} {name!r} is not known", hint=f"one of {', '.join(choices)}"
                    )
            pins[key] = names
    if options["price"] is not None:
        price = parse_price_usd_per_gpu_hour(options["price"])
    elif options["tokens"] is not None:
        price = default_price(setting.cluster.name).usd_per_gpu_hour
    else:  # nothing is priced, and a user's own cluster is on no list
        price = 1.0
    tokens = None
    if options["tokens"] is not None:
        tokens = parse_number(options["tokens"], what="--tokens")
    return {
        "gpus": whole_numbers("--gpus", options["gpus"]),
        "global_batch_size": options["global_batch_size"],
        "tokens": tokens,
        "price_usd_per_gpu_hour": price,
        "pins": pins,
        "pareto": options["pareto"],
        "keep_misfits": options["show_all"],
    }


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Read `8,16,32`.

    Raises:
        UserInputError: when a part is not a whole number of at least 1.
    """
    from vtrain.errors import UserInputError

    values = []
    for part in text.split(","):
        if not part.strip().isdigit() or int(part) < 1:
            raise UserInputError(
                f"{name} takes whole numbers of at least 1, got {part.strip()!r}",
                hint="for example 8,16",
            )
        values.append(int(part))
    return tuple(values)


def _table(ranked: RankedPlans, rows: list[dict[str, Any]]) -> str:
    """Return the rows as text columns, between what was enumerated and how many fit."""
    from vtrain.nearest_fit import describe_space

    heads = ("gpus", "tp", "pp", "vpp", "cp", "dp", "mbs", "recompute", "sharding", "step s",
             "MFU %", "GiB", "verdict", "days", "cost")  # fmt: skip
    lines = [heads]
    for row in rows:
        lines.append((
            str(row["gpus"]), str(row["tp"]), str(row["pp"]), str(row["virtual_stages"]),
            str(row["cp"]), str(row["dp"]), str(row["micro_batch_size"]), row["recompute"],
            row["sharding"], f"{row['step_time_s']:.4g}", f"{100 * row['mfu']:.1f}",
            f"{row['mem_peak_bytes'] / 2**30:.1f}", row["verdict"],
            "-" if row["days"] is None else f"{row['days']:.2f}",
            "-" if row["cost_usd"] is None else f"${row['cost_usd']:,.0f}",
        ))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    body = "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join((f"enumerated: {describe_space(ranked.space)}", body, *_counts(ranked)))


def _counts(ranked: RankedPlans) -> Iterator[str]:
    """Yield what the table does not show: how many fit, are tight, or exist at all."""
    limit = f"{ranked.estimate.mem_limit_bytes / 2**30:.1f} GiB"
    tight = f", {ranked.tight:,} tight (above the limit of {limit})" if ranked.tight else ""
    yield f"{ranked.fit:,} of {ranked.valid:,} valid plans fit{tight}"
    for gpus in ranked.barren_gpus:
        valid = sum(ranked.tallies[gpus])
        yield f"note: on {gpus} GPUs " + (
            f"none of {valid:,} valid plans fits" if valid else "no plan is valid"
        )
