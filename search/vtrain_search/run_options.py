"""How to run a search and what to print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How to run and what to print; none of it changes an answer except trials and timeout.

    Attributes:
        workers: "auto" or a number.
        ray_address: Ray cluster to join.
        timeout_s: stop after so many seconds with what there is.
        save_dir: run folder to make.
        resume: run folder to go on with.
        force: replace an earlier run.
        as_json: print JSON instead of the table.
        quiet: no progress.
        report: file to write a report to.
        focus: budget whose design is shown in detail; None takes the last.
        explain: say why the usual alternatives lost.
        why_not: alternatives to explain.
        dry_run: say what would be searched, and stop.
        compare_laws: say what every loss law would pick among the designs tried.
    """

    workers: str = "auto"
    ray_address: str | None = None
    timeout_s: float | None = None
    save_dir: Path | None = None
    resume: Path | None = None
    force: bool = False
    as_json: bool = False
    quiet: bool = False
    report: Path | None = None
    focus: str | None = None
    explain: bool = False
    why_not: tuple[str, ...] = ()
    dry_run: bool = False
    compare_laws: bool = False
