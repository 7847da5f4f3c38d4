"""What `run.json` says of a run, and whether a resumed run asks the same question."""

from __future__ import annotations

import hashlib
import logging
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain_search.source_hash import changed_parts, source_hashes

if TYPE_CHECKING:
    from pathlib import Path

    from vtrain_search.build import Request
    from vtrain_search.problem import Problem
    from vtrain_search.run_options import RunOptions
    from vtrain_search.search_state import Settings
    from vtrain_search.storage import RunFolder

_log = logging.getLogger(__name__)


def fingerprint(problem: Problem) -> dict[str, str]:
    """Return a short hash of each part that decides an answer."""
    law = problem.loss.law
    parts = {
        "budgets": [(c.label, c.usd, c.gpu_hours, c.flop, c.deadline_s, c.max_gpus, c.tokens,
                     c.target_loss, c.objective)
                    for c in problem.cases],
        "offers": [(o.name, o.price_usd_per_gpu_hour, o.cluster) for c in problem.cases
                   for o in c.offers],
        "stack": problem.stack,
        "site": problem.site,
        "memory limit": problem.memory_limit_share,
        "space": (problem.space, problem.pins, problem.seq_length),
        "law": (law.name, dict(law.coefficients()), sorted(problem.loss.active_terms),
                problem.loss.unique_tokens),
    }  # fmt: skip
    return {k: hashlib.sha256(repr(v).encode()).hexdigest()[:16] for k, v in parts.items()}


def open_folder(
    request: Request, settings: Settings, options: RunOptions, problem: Problem
) -> RunFolder | None:
    """Make or reopen the run folder; a resumed run must ask the same question."""
    from vtrain import __version__
    from vtrain_search.storage import RunFolder

    path = options.resume or options.save_dir
    if path is None:
        return None
    hashes = fingerprint(problem)
    if options.resume is not None:
        folder = RunFolder.resume(path)
        try:
            _check_same(path, folder.read_run(), hashes, settings, __version__)
        except UserInputError:
            folder.close()
            raise
    else:
        folder = RunFolder.create(path, force=options.force)
        folder.write_run(
            {
                "schema_version": 1,
                "version": __version__,
                "argv": sys.argv[1:],
                "seed": settings.seed,
                "settings": asdict(settings),
                "request": asdict(request),
                "hashes": hashes,
                "source": source_hashes(),
            }
        )
    kept = folder.open_journal([case.label for case in problem.cases])
    if folder.dropped_bytes:
        _log.warning(
            "%s was cut in mid-line: dropped its last %d bytes, kept %d whole trials",
            path, folder.dropped_bytes, kept,
        )  # fmt: skip
    if options.resume is not None and not options.quiet:
        sys.stderr.write(f"vtrain-search: playing back {kept} finished trials of {path}\n")
    return folder


def _check_same(
    path: Path, stored: dict[str, Any], hashes: dict[str, str], settings: Settings, version: str
) -> None:
    """Refuse to go on with a run that was asked something else, or by another program."""
    if changed := changed_parts(stored.get("source")):
        raise UserInputError(
            f"{path} was made by another build of vtrain: version "
            f"{stored.get('version', 'unknown')} (now {version}), {', '.join(changed)}",
            hint="what it holds cannot be continued: start again in a new folder with --save-dir",
        )
    differing = [k for k, v in hashes.items() if stored.get("hashes", {}).get(k) != v]
    old = stored.get("settings", {})
    differing += [k for k in ("seed", "sampler", "space") if k in old and
                  old[k] != getattr(settings, k, None)]  # fmt: skip
    if differing:
        raise UserInputError(
            f"{path} was made with different {', '.join(differing)}",
            hint="resume with the same options, or start in another folder",
        )
