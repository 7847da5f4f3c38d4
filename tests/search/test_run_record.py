"""A run is only continued by the program that began it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from vtrain_search.build import Request, build_problem
from vtrain_search.run_options import RunOptions
from vtrain_search.run_record import open_folder
from vtrain_search.search_state import Settings
from vtrain_search.source_hash import changed_parts, source_hashes

from vtrain.errors import UserInputError


def test_hashes_are_quick_and_complete() -> None:
    """Three parts, each a short hash, in a fraction of a second; the same parts never differ."""
    source_hashes.cache_clear()
    start = time.perf_counter()
    found = source_hashes()
    assert time.perf_counter() - start < 1.0
    assert set(found) == {"simulator", "data", "search"}
    assert changed_parts(found) == []
    assert len(changed_parts(None)) == 3


def test_another_build_may_not_go_on(tmp_path: Path) -> None:
    """One line names what changed and both hashes; a record without any is unknown."""
    request, path = Request(budgets=("1e4usd",)), tmp_path / "run"
    problem = build_problem(request)
    made = open_folder(request, Settings(), RunOptions(save_dir=path, quiet=True), problem)
    assert made is not None
    made.close()
    resume = RunOptions(save_dir=path, resume=path, quiet=True)
    again = open_folder(request, Settings(), resume, problem)
    assert again is not None
    again.close()
    record = json.loads((path / "run.json").read_text())
    for source, part in (
        (record["source"] | {"data": "0123456789ab"}, r"data 0123456789ab \(now [0-9a-f]{12}\)"),
        (None, "simulator unknown"),
    ):
        (path / "run.json").write_text(json.dumps(record | {"source": source}))
        with pytest.raises(UserInputError, match=part) as caught:
            open_folder(request, Settings(), resume, problem)
        assert "\n" not in str(caught.value)
        assert "new folder" in str(caught.value)
