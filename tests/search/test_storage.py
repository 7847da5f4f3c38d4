"""A run folder is written whole, never overwritten by accident, and goes on where it stopped."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from vtrain_search.case_search import Settings, Trial
from vtrain_search.driver import search
from vtrain_search.evaluator import Outcome
from vtrain_search.executors import InlineExecutor
from vtrain_search.problem import Problem
from vtrain_search.space import Point
from vtrain_search.storage import JOURNAL_FILE, RunFolder, trials_csv

from vtrain.design import Design
from vtrain.errors import UserInputError

SETTINGS = Settings(max_trials=24)


class Crash(Exception):
    """Stands for the machine going down."""


class CrashingFolder:
    """Passes trials on to a run folder and fails after a number of batches."""

    def __init__(self, folder: RunFolder, batches: int) -> None:
        self._folder = folder
        self._left = batches

    def recorded(self, case: int, batch: int, position: int, point: Point) -> Outcome | None:
        return self._folder.recorded(case, batch, position, point)

    def record(self, case: int, trials: Sequence[Trial]) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1
        self._folder.record(case, trials)


def unbroken(problem: Problem) -> str:
    found = search(problem, SETTINGS, InlineExecutor(problem))
    return trials_csv(["b"], [found.searches[0].trials])


def begin(path: Path, problem: Problem, batches: int) -> None:
    """Run until some batches are recorded, then crash."""
    folder = RunFolder.create(path)
    folder.write_run({"schema_version": 1})
    folder.open_journal(["b"])
    with pytest.raises(Crash):
        search(problem, SETTINGS, InlineExecutor(problem), recorder=CrashingFolder(folder, batches))
    folder.close()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_resumed_run_ends_in_the_same_bytes(
    tmp_path: Path, small_problem: Problem, batches: int
) -> None:
    """Whatever was finished before the crash, the trials are those of an unbroken run."""
    begin(tmp_path, small_problem, batches)
    folder = RunFolder.resume(tmp_path)
    kept = folder.open_journal(["b"])
    found = search(small_problem, SETTINGS, InlineExecutor(small_problem), recorder=folder)
    folder.close()
    assert folder.replayed == kept
    assert trials_csv(["b"], [found.searches[0].trials]) == unbroken(small_problem)


@pytest.mark.parametrize("cut", [1, 200])
def test_a_journal_cut_in_mid_line_keeps_its_whole_trials(
    tmp_path: Path, small_problem: Problem, cut: int
) -> None:
    """A torn last line is dropped and counted; the rest is replayed and the bytes are the same."""
    begin(tmp_path, small_problem, 2)
    journal = tmp_path / JOURNAL_FILE
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    folder = RunFolder.resume(tmp_path)
    kept = folder.open_journal(["b"])
    assert folder.dropped_bytes > 0
    assert kept == 15
    found = search(small_problem, SETTINGS, InlineExecutor(small_problem), recorder=folder)
    folder.close()
    assert trials_csv(["b"], [found.searches[0].trials]) == unbroken(small_problem)


def test_the_journal_is_a_study_over_the_joint_design(
    tmp_path: Path, small_problem: Problem
) -> None:
    """Optuna opens the journal and finds architecture, tokens, batch and plan as parameters."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    begin(tmp_path, small_problem, 2)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / JOURNAL_FILE)))
    study = optuna.load_study(study_name="0: b", storage=storage)
    best = study.best_trial
    assert {"hidden_size", "layers", "tokens", "gpus", "tp", "pp", "dp", "recompute"} <= set(
        best.params
    )
    assert best.value == best.user_attrs["row"]["loss"]
    assert len(study.trials) == 16


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """An existing run needs --force; a folder in use is refused even then."""
    folder = RunFolder.create(tmp_path / "run")
    folder.write_run({})
    with pytest.raises(UserInputError, match="another search is using"):
        RunFolder.create(tmp_path / "run", force=True)
    folder.close()
    with pytest.raises(UserInputError, match=r"holds a run already.*--resume"):
        RunFolder.create(tmp_path / "run")
    RunFolder.create(tmp_path / "run", force=True).close()
    assert not (tmp_path / "run" / "run.json").exists()
    with pytest.raises(UserInputError, match=r"no run\.json"):
        RunFolder.resume(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A path below a file is refused with the reason."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserInputError, match="cannot make run folder"):
        RunFolder.create(tmp_path / "file" / "run")


def test_another_question_is_not_resumed(tmp_path: Path, small_problem: Problem) -> None:
    """Stored trials of a different seed do not pass for this run's."""
    begin(tmp_path, small_problem, 3)
    folder = RunFolder.resume(tmp_path)
    folder.open_journal(["b"])
    with pytest.raises(UserInputError, match="different search"):
        search(
            small_problem, Settings(seed=7, max_trials=24), InlineExecutor(small_problem),
            recorder=folder,
        )  # fmt: skip
    folder.close()


def test_results_read_back_as_designs(tmp_path: Path, small_problem: Problem) -> None:
    """trials.csv and best.toml hold whole designs, and no clock."""
    found = search(small_problem, SETTINGS, InlineExecutor(small_problem))
    best = found.searches[0].best
    assert best is not None
    folder = RunFolder.create(tmp_path)
    folder.write_results(["b"], [found.searches[0].trials], [best.outcome.row])
    folder.close()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text())))
    assert len(rows) == len(found.searches[0].trials)
    feasible = [r for r in rows if r["feasible"] == "true"]
    own = Design.from_row(best.outcome.row)
    assert own in [Design.from_row(r) for r in feasible]
    stored = tomllib.loads((tmp_path / "best.toml").read_text())["rows"]
    assert Design.from_row(stored[0]) == own
    assert json.dumps(best.outcome.row)
