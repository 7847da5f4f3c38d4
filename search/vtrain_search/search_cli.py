"""From click's options to a run; a resumed run takes its question from the run folder."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain_search.build import Request
from vtrain_search.command import run_search
from vtrain_search.run_options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_REQUEST_FIELDS = tuple(f.name for f in fields(Request))
_SETTINGS_FIELDS = ("sampler", "seed", "trials")


def search_from_options(options: Mapping[str, Any], given: set[str]) -> int:
    """Run a search; return its exit code.

    Args:
        options: every option by name.
        given: names of the options the user wrote.

    Raises:
        UserInputError: for options that contradict each other.
    """
    from vtrain.units import parse_duration_s
    from vtrain_search.case_search import Settings

    values = dict(options)
    resume = values["resume"]
    if resume is not None:
        if values["save_dir"] not in (None, resume):
            raise UserInputError(
                "--resume and --save-dir name different folders", hint="drop --save-dir"
            )
        values.update(_stored(resume, given))
    elif values["force"] and values["save_dir"] is None:
        raise UserInputError("--force needs --save-dir", hint="it replaces the run in that folder")
    values["objective"] = values["objective"] or ""
    request = Request(**{name: values[name] for name in _REQUEST_FIELDS})
    settings = Settings(
        sampler=values["sampler"], seed=values["seed"], space=values["space"],
        max_trials=values["trials"],
    )  # fmt: skip
    run_options = RunOptions(
        workers=values["workers"],
        ray_address=values["ray_address"],
        timeout_s=parse_duration_s(values["timeout"]) if values["timeout"] else None,
        save_dir=values["save_dir"],
        resume=resume,
        force=values["force"],
        as_json=values["as_json"],
        quiet=values["quiet"],
        dry_run=values["dry_run"],
        report=values["report"],
        focus=values["focus"],
        explain=values["explain"],
        why_not=values["why_not"],
        compare_laws=values["compare_laws"],
    )
    return run_search(request, settings, run_options)


def _stored(resume: Path, given: set[str]) -> dict[str, Any]:
    """Return the question of an earlier run, less what the user states again."""
    from vtrain_search.storage import read_run

    run = read_run(resume)
    request, settings = run.get("request", {}), run.get("settings", {})
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in request.items()
        if name in _REQUEST_FIELDS and name not in given
    }
    for name, key in (
        ("sampler", "sampler"), ("seed", "seed"), ("space", "space"), ("trials", "max_trials"),
    ):  # fmt: skip
        if name not in given and key in settings:
            found[name] = settings[key]
    return found
