"""What the commands of `vtrain tenancy` do, apart from reading options and printing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE
from vtrain.tenancy.admission import ask
from vtrain.tenancy.gantt import gantt_svg
from vtrain.tenancy.generate import parse_spec
from vtrain.tenancy.job import Job
from vtrain.tenancy.outcome import METRICS, job_rows, segment_rows, summarise, to_csv
from vtrain.tenancy.speed_book import SpeedBook
from vtrain.tenancy.sweep import Case, interval, run_seeds
from vtrain.tenancy.upkeep import Upkeep
from vtrain.tenancy.workload import Workload, from_file, generated, play
from vtrain.units import format_duration, parse_duration_s, parse_number

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Outcome

Warn = Callable[[str], None]


def open_book(options: dict[str, Any]) -> SpeedBook:
    """Return the speeds of the cluster that options describe.

    Raises:
        UserInputError: missing or unknown values.
    """
    from vtrain.cli_options import read_site
    from vtrain.formats import load_architecture
    from vtrain.presets import load_cluster, load_stack

    if not options["gpus"]:
        raise UserInputError("--gpus is needed", hint="for example --gpus 1024")
    kinds = RECOMPUTE if options["recompute"] is None else tuple(options["recompute"].split(","))
    for kind in kinds:
        if kind not in RECOMPUTE:
            raise UserInputError(
                f"--recompute {kind!r} is not known", hint=f"one of {', '.join(RECOMPUTE)}"
            )
    return SpeedBook(
        load_cluster(options["cluster"]), load_stack(options["stack"]), read_site(options["site"]),
        gpus=options["gpus"], read_model=load_architecture, recompute=kinds,
    )  # fmt: skip


def read_upkeep(options: dict[str, Any]) -> Upkeep:
    """Return the failure and rescaling costs that options describe."""
    if options["rescale"] is None:
        return Upkeep(failures=options["failures"])
    text = options["rescale"].strip()
    seconds = 0.0 if text in ("0", "0s") else parse_duration_s(text)
    return Upkeep(failures=options["failures"], rescale_s=seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """A workload that was played.

    Attributes:
        document: what `vtrain tenancy run --json` prints.
        outcome: what happened to every job; None for several seeds.
        gpus_per_node: of the shared cluster.
    """

    document: dict[str, Any]
    outcome: Outcome | None
    gpus_per_node: int


def run_document(options: dict[str, Any], *, warn: Warn) -> dict[str, Any]:
    """Play a workload, write the files asked for, and return the JSON document.

    Raises:
        UserInputError: contradictory options or bad jobs.
    """
    files = any(options[key] is not None for key in ("log_file", "timeline_file", "gantt_file"))
    played = play_options(options, warn=warn, record=files)
    if played.outcome is not None:
        _write_files(options, played.outcome, played.gpus_per_node)
    return played.document


def play_options(options: dict[str, Any], *, warn: Warn, record: bool) -> Played:
    """Play the workload that options describe.

    Args:
        options: by the names of the command's options.
        warn: called with each row left out.
        record: keep who held which nodes when; one seed only.

    Raises:
        UserInputError: contradictory options or bad jobs.
    """
    if (options["jobs_file"] is None) == (options["recipe"] is None):
        raise UserInputError(
            "give either --jobs or --generate", hint="e.g. --generate jobs=64,load=0.9"
        )
    if options["seeds"] > 1 and (record or options["jobs_file"] is not None):
        raise UserInputError(
            "--seeds above 1 goes with --generate, without --log, --timeline and --gantt"
        )
    book, upkeep = open_book(options), read_upkeep(options)
    price = _price(options)
    document: dict[str, Any] = {
        "schema_version": 1,
        "assumptions": {
            "cluster": options["cluster"], "gpus": options["gpus"], "stack": options["stack"],
            "recompute": options["recompute"] or "any", "policy": options["policy"],
            "speed": options["speed"], "seed": options["seed"],
            "price_usd_per_gpu_hour": price, "failures": upkeep.failures,
            "failures_per_gpu_hour": upkeep.failures_per_gpu_hour,
            "restart_s": upkeep.restart_s, "rescale_s": upkeep.rescale_s,
            "workload": str(
                options["recipe"] if options["jobs_file"] is None else options["jobs_file"]
            ),
        },
    }  # fmt: skip
    if options["seeds"] > 1:
        case = Case(
            spec=parse_spec(options["recipe"]), policy=options["policy"], speed=options["speed"],
            upkeep=upkeep, price_usd_per_gpu_hour=price,
        )  # fmt: skip
        seeds = range(options["seed"], options["seed"] + options["seeds"])
        rows = run_seeds(case, book, seeds, workers=options["workers"])
        document |= {"seeds": options["seeds"], "means": _means(rows), "runs": rows}
        return Played(document=document, outcome=None, gpus_per_node=book.gpus_per_node)
    workload = _workload(options, book, upkeep)
    for item in workload.bad:
        warn(f"row {item.row} left out: {item.reason}")
    outcome = play(
        workload, book, upkeep, policy=options["policy"], seed=options["seed"], record=record
    )  # fmt: skip
    figures = summarise(outcome, gpus_per_node=book.gpus_per_node, price_usd_per_gpu_hour=price)
    skipped = [{"row": item.row, "reason": item.reason} for item in workload.bad]
    document |= {**figures, "skipped": skipped,
                 "jobs_log": job_rows(outcome, gpus_per_node=book.gpus_per_node)}  # fmt: skip
    return Played(document=document, outcome=outcome, gpus_per_node=book.gpus_per_node)


def run_table(document: dict[str, Any]) -> str:
    """Return the figures of a run as text."""
    given = document["assumptions"]
    head = (
        f"{given['workload']} on {given['gpus']} GPUs of {given['cluster']}, policy "
        f"{given['policy']}, speed {given['speed']}, failures {given['failures']}"
    )
    lines = [head]
    for name in METRICS:
        if "means" in document:
            found = document["means"][name]
            value = "-" if found is None else (
                f"{_show(name, found['mean'])} ± {_show(name, found['half_width_95'])}"
            )  # fmt: skip
        else:
            value = _show(name, document[name])
        lines.append(
            f"{name.removesuffix('_s').removesuffix('_usd').replace('_', ' '):>18}  {value}"
        )
    if "jobs" in document:
        lines.append(f"{'completed':>18}  {document['completed']} of {document['jobs']}")
    return "\n".join(lines)


def admit_document(options: dict[str, Any], *, warn: Warn) -> dict[str, Any]:
    """Answer whether a job can be promised, and return the JSON document.

    Raises:
        UserInputError: missing values or bad jobs.
        InfeasibleError: no plan of the job fits the cluster.
    """
    book, upkeep = open_book(options), read_upkeep(options)
    job = _asked(options, book)
    curve = book.curve(job, options["speed"], upkeep)
    others = Workload(jobs=(), curves=())
    if options["jobs_file"] is not None:
        others = from_file(
            options["jobs_file"], book, upkeep, speed=options["speed"],
            skip_bad=options["skip_bad"],
        )  # fmt: skip
        for item in others.bad:
            warn(f"row {item.row} left out: {item.reason}")
    answer = ask(job, curve, others.jobs, others.curves, book, upkeep)
    promise = answer.promise
    share = [] if promise is None else [
        {"from_s": start, "gpus": curve.nodes_of[level] * book.gpus_per_node}
        for start, level in zip(promise.starts, promise.levels, strict=True)
    ]  # fmt: skip
    return {
        "schema_version": 1,
        "promised": answer.promised if job.has_deadline else None,
        "model": job.model, "steps": job.steps, "arrival_s": job.arrival_s,
        "deadline_s": job.deadline_s if job.has_deadline else None,
        "earliest_s": answer.earliest_s if math.isfinite(answer.earliest_s) else None,
        "alone_s": answer.alone_s,
        "share": share, "share_end_s": None if promise is None else promise.end,
        "other_jobs": len(others.jobs), "others_rejected": answer.rejected_before,
    }  # fmt: skip


def admit_text(document: dict[str, Any]) -> str:
    """Return the answer as text."""
    start = document["arrival_s"]
    lines = []
    if document["promised"] is not None:
        within = format_duration(document["deadline_s"] - start)
        lines.append(f"{'yes' if document['promised'] else 'no'}: {document['model']}, "
                     f"{document['steps']:,} steps within {within}")  # fmt: skip
    for row in document["share"]:
        wait_s = row["from_s"] - start
        when = "at once" if wait_s <= 0.0 else f"after {format_duration(wait_s)}"
        lines.append(f"  {when}: {row['gpus']} GPUs at least")
    if document["earliest_s"] is None:
        lines.append("no date can be promised")
    else:
        lines.append(f"earliest date that can be promised: {_after(document, 'earliest_s')}")
    lines.append(f"on an empty cluster: {_after(document, 'alone_s')}")
    return "\n".join(lines)


def _after(document: dict[str, Any], key: str) -> str:
    return f"{format_duration(document[key] - document['arrival_s'])} after it is handed in"


def _asked(options: dict[str, Any], book: SpeedBook) -> Job:
    """Return the job that the options of `admit` describe."""
    for key in ("model", "tokens"):
        if not options[key]:
            raise UserInputError(f"--{key} is needed")
    length = options["seq_length"]
    if length is None:
        length = book.own_seq_length(options["model"])
    if length is None:
        raise UserInputError(f"sequence length of {options['model']} is not known", hint="--seq")
    text = options["arrival"].strip()
    arrival_s = 0.0 if text == "0" else parse_duration_s(text)
    within_s = parse_duration_s(options["within"]) if options["within"] is not None else math.inf
    tokens = parse_number(options["tokens"], what="--tokens")
    return Job(
        name="asked", model=options["model"],
        steps=math.ceil(tokens / (options["global_batch_size"] * length)),
        global_batch_size=options["global_batch_size"], seq_length=length,
        arrival_s=arrival_s, deadline_s=arrival_s + within_s,
        max_gpus=0 if options["max_gpus"] is None else options["max_gpus"],
    )  # fmt: skip


def _price(options: dict[str, Any]) -> float:
    from vtrain.presets import load_cluster
    from vtrain.prices import default_price
    from vtrain.units import parse_price_usd_per_gpu_hour

    if options["price"] is not None:
        return parse_price_usd_per_gpu_hour(options["price"])
    return default_price(load_cluster(options["cluster"]).name).usd_per_gpu_hour


def _workload(options: dict[str, Any], book: SpeedBook, upkeep: Upkeep) -> Workload:
    if options["recipe"] is not None:
        return generated(
            parse_spec(options["recipe"]), book, upkeep, speed=options["speed"],
            seed=options["seed"],
        )  # fmt: skip
    return from_file(
        options["jobs_file"], book, upkeep, speed=options["speed"], skip_bad=options["skip_bad"]
    )  # fmt: skip


def _write_files(options: dict[str, Any], outcome: Outcome, gpus_per_node: int) -> None:
    from vtrain.files import write_text

    if options["log_file"] is not None:
        rows = job_rows(outcome, gpus_per_node=gpus_per_node)
        write_text(options["log_file"], to_csv(rows))
    if options["timeline_file"] is not None:
        write_text(options["timeline_file"], to_csv(segment_rows(outcome)))
    if options["gantt_file"] is not None:
        write_text(options["gantt_file"], gantt_of(options, outcome, gpus_per_node))


def gantt_of(options: dict[str, Any], outcome: Outcome, gpus_per_node: int) -> str:
    """Return the cluster over time as SVG."""
    title = f"{options['policy']}, {options['gpus']} GPUs, {len(outcome.states)} jobs"
    return gantt_svg(outcome, gpus_per_node=gpus_per_node, title=title)


def _means(rows: list[dict[str, Any]]) -> dict[str, dict[str, float] | None]:
    """Return mean and half-width of the 95 % interval of every metric."""
    found = {name: interval([row[name] for row in rows]) for name in METRICS}
    return {
        name: None if pair is None else {"mean": pair[0], "half_width_95": pair[1]}
        for name, pair in found.items()
    }


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.endswith("_s"):
        return f"{value / 3600.0:,.1f} h"
    if name.endswith("_usd"):
        return f"${value:,.0f}"
    return f"{value:.3g}" if name == "rejected" else f"{value:.3f}"
