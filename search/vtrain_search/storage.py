"""The run folder: what a search leaves behind, and how an interrupted one goes on."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.files import write_text
from vtrain_search.journal import Journal, Place, mend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from vtrain_search.case_search import Trial
    from vtrain_search.evaluator import Outcome
    from vtrain_search.search_state import Candidate

RUN_FILE = "run.json"
JOURNAL_FILE = "trials.journal"
TRIALS_FILE = "trials.csv"
BEST_FILE = "best.toml"
TABLE_FILE = "table.csv"
LAUNCH_FOLDER = "launch"
_OWN_FILES = (RUN_FILE, JOURNAL_FILE, TRIALS_FILE, BEST_FILE, TABLE_FILE)
_LOCK_FILE = ".lock"


class RunFolder:
    """One run on disk, locked while it is open; also the driver's recorder."""

    def __init__(self, path: Path, lock: TextIO, *, resumed: bool) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._lock = lock
        self._resumed = resumed
        self._journal: Journal | None = None
        self.dropped_bytes = 0
        self.replayed = 0

    @classmethod
    def create(cls, path: Path, *, force: bool = False) -> RunFolder:
        """Make a new run folder.

        Args:
            path: folder; may exist when empty.
            force: replace an earlier run's files.

        Raises:
            UserInputError: when a run is there already, in use, or the folder cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserInputError(
                f"cannot make run folder {path}: {error.strerror}", hint="choose another --save-dir"
            ) from None
        lock = _lock(path)
        present = [name for name in _OWN_FILES if (path / name).exists()]
        if present and not force:
            lock.close()
            raise UserInputError(
                f"run folder {path} holds a run already ({', '.join(present)})",
                hint="continue it with --resume, replace it with --force, or choose another folder",
            )
        for name in present:
            (path / name).unlink()
        shutil.rmtree(path / LAUNCH_FOLDER, ignore_errors=True)
        return cls(path, lock, resumed=False)

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """Open the folder of an interrupted (or finished) run.

        Raises:
            UserInputError: when there is none, or another search is using it.
        """
        if not (path / RUN_FILE).exists():
            raise UserInputError(
                f"{path} is no run folder: it has no {RUN_FILE}",
                hint="start a run with --save-dir",
            )
        return cls(path, _lock(path), resumed=True)

    def read_run(self) -> dict[str, Any]:
        """Return what `run.json` says of the run.

        Raises:
            UserInputError: when it cannot be read.
        """
        return read_run(self.path)

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        write_text(self.path / RUN_FILE, json.dumps(run, indent=2, default=str) + "\n")

    def open_journal(self, labels: Sequence[str]) -> int:
        """Open the journal; return the number of trials an earlier run left in it."""
        path = self.path / JOURNAL_FILE
        self.dropped_bytes = mend(path)
        try:
            self._journal = Journal(path, labels)
        except OSError as error:
            raise UserInputError(f"cannot write {path}: {error.strerror}") from None
        except (KeyError, ValueError, TypeError) as error:
            raise UserInputError(
                f"{path} is not a journal of this program: {error}", hint="start again with --force"
            ) from None
        return len(self._journal)

    def recorded(self, case: int, batch: int, position: int, point: Candidate) -> Outcome | None:
        """Return the outcome an earlier run stored at this place.

        Raises:
            UserInputError: when the stored architecture is another one, so the run does not match.
        """
        found = None if self._journal is None else self._journal.get(Place(case, batch, position))
        if found is None:
            return None
        if found[0] != point:
            raise UserInputError(
                f"{self.path} was made by a different search: trial {batch}.{position} is "
                f"{tuple(found[0])}, not {tuple(point)}",
                hint="start again in another folder",
            )
        self.replayed += 1
        return found[1]

    def record(self, case: int, trials: Sequence[Trial]) -> None:
        """Append finished trials to the journal."""
        if self._journal is not None:
            try:
                self._journal.add(case, trials)
            except OSError as error:
                raise UserInputError(
                    f"cannot write {self.path / JOURNAL_FILE}: {error.strerror}"
                ) from None

    def write_results(
        self,
        labels: Sequence[str],
        trials: Sequence[Sequence[Trial]],
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write `trials.csv`, `best.toml`, `table.csv` and each answer's launch files.

        Args:
            labels: one label a case.
            trials: told trials, by case.
            rows: the design and results of each case that found one, as in `--json`.
        """
        import tomli_w

        write_text(self.path / TRIALS_FILE, trials_csv(labels, trials))
        plain = [{k: v for k, v in row.items() if _has_toml_form(v)} for row in rows]
        write_text(self.path / BEST_FILE, tomli_w.dumps({"rows": plain}))
        write_text(self.path / TABLE_FILE, table_csv(plain))
        for row in rows:
            self._write_launch(row)

    def _write_launch(self, row: Mapping[str, Any]) -> None:
        """Write what starts a design, in every format that carries it; say which could not."""
        from vtrain.design import Design
        from vtrain.formats import export_all

        folder = self.path / LAUNCH_FOLDER / _folder_name(str(row.get("budget", "")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            outcome = export_all(Design.from_row(row), folder)
        except (UserInputError, OSError) as error:
            # A cluster or stack of the user's own file goes by a name that no command knows.
            outcome = {"all": f"not written: {error}"}
        left_out = [f"{name}: {text}" for name, text in outcome.items() if text.startswith("not")]
        if left_out:
            write_text(folder / "not-written.txt", "\n".join(left_out) + "\n")

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()


def _folder_name(budget: str) -> str:
    """Return a budget's label as the name of a folder: "$1.00M" is 1.00M."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", budget).strip("-.") or "answer"


def read_run(path: Path) -> dict[str, Any]:
    """Return what the `run.json` of a folder says.

    Raises:
        UserInputError: when it cannot be read.
    """
    try:
        found = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(
            f"{path} is no run folder: {error.strerror}", hint="start a run with --save-dir"
        ) from None
    except ValueError:
        raise UserInputError(f"{path / RUN_FILE} is not valid JSON") from None
    if not isinstance(found, dict):
        raise UserInputError(f"{path / RUN_FILE} is not a run description")
    return found


def trials_csv(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> str:
    """Return every trial as CSV: place, architecture, outcome, design; no clocks.

    Args:
        labels: one label a case.
        trials: told trials, by case.
    """
    head = ["budget", "batch", "trial", "phase", "feasible", "reason", "plans", "plans_fit"]
    keys: dict[str, None] = {}
    for of_case in trials:
        for trial in of_case:
            keys.update(dict.fromkeys(trial.outcome.row))
    for name in ("hidden_size", "layers", "ffn_hidden_size", "num_key_value_heads", "head_dim"):
        keys.setdefault(name, None)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, *keys])
    for label, of_case in zip(labels, trials, strict=True):
        for t in of_case:
            o = t.outcome
            row: dict[str, Any] = {**t.point._asdict(), **o.row}
            values = [_cell(row.get(key)) for key in keys]
            place = [label, t.batch, t.position, t.phase, _cell(o.feasible), o.reason]
            writer.writerow([*place, o.plans, o.plans_fit, *values])
    return out.getvalue()


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the scaling table as CSV: one budget a row, every plain value a column."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([[_cell(row.get(key)) for key in keys] for row in rows])
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _has_toml_form(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


def _lock(path: Path) -> TextIO:
    """Hold the folder until the file is closed or the process dies, however it dies."""
    import fcntl

    name = path / _LOCK_FILE
    try:
        file = name.open("a", encoding="utf-8")
    except OSError as error:
        raise UserInputError(
            f"cannot write run folder {path}: {error.strerror}", hint="choose another --save-dir"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserInputError(
            f"another search is using run folder {path}", hint="wait, or choose another folder"
        ) from None
    return file
