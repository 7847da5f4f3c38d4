"""`vtrain plans`: every valid plan of a model, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from vtrain.cli_options import load_setting, memory_limit_option, setting_options

if TYPE_CHECKING:
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
@click.option("--recompute", metavar="NAME[,NAME...]", help="none, selective, full.")
@click.option("--sharding", metavar="NAME[,NAME...]", help="none, zero1, zero2, zero3.")
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
    help="Why the fastest plans that do not fit do not, and what would make them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plans_command(
    top: int, csv_file: str | None, as_json: bool, explain: bool, max_micro_batch: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Enumerate and rank every valid plan of a model on given GPU counts."""
    import json

    from vtrain.ranking import largest_micro_batches, rank_plans

    keys = ("model", "cluster", "stack", "seq_length", "site", "memory_limit")
    setting = load_setting(**{key: options.pop(key) for key in keys})
    request = _read(setting, options)
    if explain:
        everything = rank_plans(setting, **{**request, "keep_misfits": True, "pareto": False})
    ranked = rank_plans(setting, **request)
    if max_micro_batch:
        ranked = largest_micro_batches(ranked)
    if csv_file:
        from vtrain.files import write_text

        write_text(csv_file, ranked.csv())
    rows = ranked.rows(top)
    if as_json:
        document = {"schema_version": 1, "counts": ranked.counts(), "rows": rows}
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(_table(ranked, rows))
    if explain:
        from vtrain.explain import explain_misfits

        click.echo(explain_misfits(setting, everything))


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
        if options[key]:
            pins[key] = whole_numbers(f"--{key}", options[key])
    for key, choices in CHOICES.items():
        if options[key]:
            names = tuple(part.strip() for part in options[key].split(","))
            for name in names:
                if name not in choices:
                    raise UserInputError(
                        f"--{key} {name!r} is not known", hint=f"one of {', '.join(choices)}"
                    )
            pins[key] = names
    price = parse_price_usd_per_gpu_hour(options["price"]) if options["price"] else None
    if price is None:
        price = default_price(setting.cluster.name).usd_per_gpu_hour
    return {
        "gpus": whole_numbers("--gpus", options["gpus"]),
        "global_batch_size": options["global_batch_size"],
        "tokens": parse_number(options["tokens"], what="--tokens") if options["tokens"] else None,
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
    """Return the rows as text columns."""
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
    counts = ranked.counts()
    return f"{body}\n{counts['fit']:,} of {counts['valid']:,} valid plans fit"
