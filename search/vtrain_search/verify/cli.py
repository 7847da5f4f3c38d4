"""`vtrain-search verify`: the gap between the search's answer and the best of a grid."""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import rich_click as click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain_search.problem import Problem
    from vtrain_search.verify.grid import GridResult
    from vtrain_search.verify.regret import Regret

SPACES = ("bilevel", "joint")


@click.command("verify", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--reference", "references", multiple=True, metavar="NAME|all",
              help="A reference problem; repeatable.")  # fmt: skip
@click.option("--budget", "budgets", multiple=True, metavar="BUDGET",
              help="Your own question instead.")  # fmt: skip
@click.option("--cluster", "clusters", multiple=True, metavar="NAME|FILE", help="Its cluster.")
@click.option("--max-gpus", type=click.IntRange(min=1), metavar="N", help="Its GPU cap.")
@click.option("--deadline", default="", metavar="TIME", help="Its deadline.")
@click.option("--memory-limit", default="", metavar="SHARE",
              help="Its memory limit, for example 0.85. [default: 0.90]")  # fmt: skip
@click.option("--seeds", default="0,1,2", show_default=True, metavar="N,N,...",
              help="Seeds of the searches.")  # fmt: skip
@click.option("--space", "spaces", multiple=True, type=click.Choice(SPACES),
              help="Forms of the search to measure. [default: bilevel]")  # fmt: skip
@click.option(
    "--share",
    type=click.FloatRange(0.0, 1.0),
    default=0.25,
    show_default=True,
    help="Shapes up to this share of the budget off, by the scan, are in the grid.",
)
@click.option("--points", type=float, default=1e8, show_default=True, metavar="N",
              help="(design, plan) points the grid should hold.")  # fmt: skip
@click.option("--workers", default="auto", show_default=True, metavar="N|auto",
              help="Processes that evaluate.")  # fmt: skip
@click.option("--ray-address", metavar="ADDRESS", help="Join this Ray cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a Markdown table.")
def verify_command(**options: Any) -> int:
    """Enumerate a whole grid and print how far the search's answer is from its best.

    The grid holds every width and depth that, by a coarse scan, costs up to a quarter of the
    budget, each with every plan; nothing is sampled. The gap is the share of the budget that would
    buy it back.
    """
    from vtrain.errors import UserInputError
    from vtrain_search.build import Request, build_problem
    from vtrain_search.verify.problems import REFERENCES, reference

    if options["budgets"]:
        request = Request(
            budgets=options["budgets"], clusters=options["clusters"],
            max_gpus=options["max_gpus"], deadline=options["deadline"],
            memory_limit=options["memory_limit"],
        )  # fmt: skip
        named = [(", ".join(options["budgets"]), request)]
    else:
        names = options["references"] or ("all",)
        chosen = REFERENCES if "all" in names else [reference(name) for name in names]
        named = [(item.name, item.request) for item in chosen]
    try:
        seeds = [int(word) for word in options["seeds"].split(",")]
    except ValueError:
        raise UserInputError(
            f"--seeds {options['seeds']} must be whole numbers", hint="for example 0,1,2"
        ) from None
    spaces = options["spaces"] or ("bilevel",)
    rows = []
    if not options["as_json"]:
        click.echo(_HEAD)
    for name, request in named:
        row = verify_problem(name, build_problem(request), seeds, spaces, options)
        rows.append(row)
        if not options["as_json"]:
            click.echo(_line(row))
    if options["as_json"]:
        click.echo(json.dumps({"schema_version": 1, "rows": rows}, indent=2))
    return 0


def verify_problem(
    name: str,
    problem: Problem,
    seeds: Sequence[int],
    spaces: Sequence[str],
    options: dict[str, Any],
) -> dict[str, Any]:
    """Enumerate the grid of one problem, search it with every seed, and return its row."""
    from vtrain_search.run_options import RunOptions
    from vtrain_search.samplers import quiet_optuna
    from vtrain_search.search_state import Settings
    from vtrain_search.verify.grid import enumerate_grid
    from vtrain_search.verify.regret import measure
    from vtrain_search.workers import make_executor

    quiet_optuna()
    # `auto` counts budgets; a grid is worth many of them.
    run = RunOptions(workers=options["workers"], ray_address=options["ray_address"], quiet=True)
    executor = make_executor(problem, run, work_s=1e3)
    try:
        start = time.perf_counter()
        grid = enumerate_grid(
            problem, executor, share=options["share"], least_points=options["points"],
            on_progress=_progress(name),
        )  # fmt: skip
        grid_s = time.perf_counter() - start
        if grid is None:
            return {"problem": name, "feasible": False}
        measured = {
            space: [
                measure(problem, Settings(seed=seed, space=space), executor, grid) for seed in seeds
            ]
            for space in spaces
        }
    finally:
        executor.close()
    return _row(name, grid, grid_s, measured)


def _progress(name: str) -> Any:
    last = [time.monotonic()]

    def show(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 10.0:
            last[0] = time.monotonic()
            sys.stderr.write(f"vtrain-search verify: {name}: {done} of {total} architectures\n")

    return show


def _row(
    name: str, grid: GridResult, grid_s: float, measured: dict[str, list[Regret | None]]
) -> dict[str, Any]:
    best = grid.outcome.row
    searches = {}
    for space, found in measured.items():
        done = [r for r in found if r is not None]
        shares = [r.share for r in done]
        searches[space] = {
            "found": len(done),
            "of": len(found),
            "shares": shares,
            "median": median(shares) if shares else None,
            "worst": max(shares) if len(done) == len(found) else None,
            "trials": median(r.trials for r in done) if done else None,
            "wall_s": median(r.wall_s for r in done) if done else None,
        }
    return {
        "problem": name,
        "feasible": True,
        "architectures": grid.architectures,
        "wide": grid.wide,
        "points": grid.plans,
        "grid_s": grid_s,
        "loss": grid.outcome.row["loss"],
        "layers": best["layers"],
        "hidden_size": best["hidden_size"],
        "gpus": best["gpus"],
        "searches": searches,
    }


_HEAD = (
    "| problem | grid: architectures | (design, plan) points | best of the grid | search | "
    "median gap | worst gap | trials | seconds |\n|---|---|---|---|---|---|---|---|---|"
)


def _line(row: dict[str, Any]) -> str:
    if not row["feasible"]:
        return f"| {row['problem']} | nothing is feasible | | | | | | | |"
    lines = []
    for space, s in row["searches"].items():
        gaps = [f"{100 * s[k]:.2f} %" if s[k] is not None else "none" for k in ("median", "worst")]
        design = f"{row['layers']} x {row['hidden_size']} on {row['gpus']:,}: {row['loss']:.5f}"
        trials = f"{s['trials']:.0f} | {s['wall_s']:.1f}" if s["trials"] is not None else " | "
        lines.append(
            f"| {row['problem']} | {row['architectures']:,} | {row['points']:.2g} | {design} | "
            f"{space} | {gaps[0]} | {gaps[1]} | {trials} |"
        )
    return "\n".join(lines)
