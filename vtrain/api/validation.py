"""Predictions against measured runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.validation.runs import MeasuredRun
    from vtrain.validation.score import Entry, Report

    Runs: TypeAlias = DataFrame | str | Path

_SHOWN = (
    "gpu", "framework", "judged", "time_mape_pct", "time_median_ape_pct", "time_bias_pct",
    "interval_coverage_pct", "memory_mape_pct", "plan_regret_median_pct",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """How far predictions are from measured runs, by source x GPU x framework.

    Attributes:
        report: everything that was judged.
    """

    report: Report

    @property
    def table(self) -> DataFrame:
        """One row a group, nothing fitted on its source: errors in percent."""
        return _frame(self.report.zero_shot)

    @property
    def few_shot(self) -> DataFrame:
        """The same after site factors were fitted to a few rows, means over the seeds."""
        return _frame(self.report.few_shot)

    @property
    def rows(self) -> DataFrame:
        """One row a judged run: measured, predicted with its interval, error."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.report.rows])

    def document(self) -> dict[str, Any]:
        """Return what `vtrain validate --json` prints."""
        from vtrain.validation.report import report_json

        return report_json(self.report)

    def __str__(self) -> str:
        """Return the tables that the command prints."""
        from vtrain.validation.report import report_text

        return report_text(self.report)

    def _repr_html_(self) -> str:
        table = self.table
        return str(table[[c for c in _SHOWN if c in table]].round(1).to_html())


def validate(
    runs: Runs | Sequence[Runs],
    *,
    sources: str | Sequence[str] = (),
    min_mfu: float = 0.0,
    max_memory_share: float = float("inf"),
    few_shot: int = 0,
    seeds: int = 5,
) -> Validation:
    """Compare predictions with measured training runs, as `vtrain validate` does.

    Args:
        runs: a frame or a CSV file with the columns of `vtrain.validation.runs`; or several.
        sources: judge only these prefixes of run_id.
        min_mfu: leave out rows below this MFU (0.3, not 30).
        max_memory_share: leave out plans predicted to use more than this share of memory.
        few_shot: rows that fit site factors; 0 leaves that part out.
        seeds: hash seeds that pick those rows.

    Raises:
        UserInputError: unreadable or missing columns, an unknown source.
    """
    from vtrain.validation.score import Options, validate_runs

    several = [runs] if isinstance(runs, str | Path) or hasattr(runs, "to_csv") else list(runs)
    measured = [run for item in several for run in _read(item)]
    chosen = (sources,) if isinstance(sources, str) else tuple(sources)
    options = Options(
        sources=chosen, min_mfu=min_mfu, max_memory_share=max_memory_share, few_shot=few_shot,
        seeds=seeds,
    )  # fmt: skip
    return Validation(report=validate_runs(measured, options))


def _read(runs: Any) -> list[MeasuredRun]:
    """Read a file; a frame goes through one, so that both are checked alike."""
    from vtrain.validation.runs import read_runs

    if isinstance(runs, str | Path):
        return read_runs(Path(runs))
    with tempfile.TemporaryDirectory(prefix="vtrain-") as folder:
        path = Path(folder) / "frame.csv"
        runs.to_csv(path, index=False)
        return read_runs(path)


def _frame(entries: Sequence[Entry]) -> DataFrame:
    import pandas as pd

    if not entries:
        return pd.DataFrame()
    return pd.DataFrame([asdict(entry) for entry in entries]).set_index("source")
