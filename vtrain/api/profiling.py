"""A machine measured, fitted, and checked on real training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.api.arguments import is_number, whole
from vtrain.cli_options import DEFAULT_STACK
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.profiler.fit.profile import ProfileFit
    from vtrain.profiler.prediction import Profile
    from vtrain.profiler.session import Outcome
    from vtrain.profiler.verify import Verdict

    Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineProfile:
    """A profile folder whose rows have been fitted.

    Attributes:
        folder: with rows, device, cluster and stack files.
        fit: what the rows gave.
        outcome: what was measured just now; None where nothing was.
    """

    folder: Path
    fit: ProfileFit
    outcome: Outcome | None = None

    @property
    def cluster(self) -> str:
        """The words that other functions take as `cluster`."""
        # A bare word is a shipped name to every function; a path has a slash.
        return str(self.folder) if len(self.folder.parts) > 1 else f"./{self.folder}"

    @property
    def stack(self) -> str:
        """The words that other functions take as `stack`; imported tables leave the default."""
        return self.cluster if (self.folder / "stack.toml").exists() else DEFAULT_STACK

    @property
    def table(self) -> DataFrame:
        """Held-out error of every operator, in percent."""
        import pandas as pd

        columns = ["operator", "rows", "mape_pct", "median_ape_pct"]
        rows = [(name, e.rows, e.mape_pct, e.median_ape_pct) for name, e in self.fit.errors]
        return pd.DataFrame(rows, columns=columns).set_index("operator")

    def rows(self, table: str) -> DataFrame:
        """Return the measured rows of one table: gemm, attention, elementwise, collectives.

        Raises:
            UserInputError: an unknown table.
        """
        import pandas as pd

        from vtrain.profiler.rows import COLUMNS, path_of

        if table not in COLUMNS:
            raise UserInputError(f"no table {table!r}", hint=f"one of {', '.join(COLUMNS)}")
        path = path_of(self.folder, table)
        return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(COLUMNS[table]))

    def __str__(self) -> str:
        """Return what the command prints."""
        from vtrain.profiler.report import fit_lines, outcome_lines

        lines = [] if self.outcome is None else list(outcome_lines(self.folder, self.outcome))
        return "\n".join([*lines, *fit_lines(self.folder, self.fit)])

    def _repr_html_(self) -> str:
        return str(self.table.round(1).to_html())


@dataclass(frozen=True, kw_only=True, slots=True)
class StepChecks:
    """Real training steps beside what a profile predicted of them.

    Attributes:
        profile: the profile.
        verdict: every configuration that ran, and those that did not.
    """

    profile: Profile
    verdict: Verdict

    @property
    def table(self) -> DataFrame:
        """One row a configuration: seconds and bytes, measured and predicted."""
        import pandas as pd

        return pd.DataFrame(self.document()["rows"])

    def document(self) -> dict[str, Any]:
        """Return what `vtrain profile verify --json` prints."""
        from vtrain.profiler.report import verdict_document

        return verdict_document(self.profile, self.verdict)

    def __str__(self) -> str:
        """Return the table that the command prints."""
        from vtrain.profiler.report import verdict_text

        return verdict_text(self.profile, self.verdict, as_json=False)

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


def profile_run(
    out: str | Path,
    *,
    device: str,
    minutes: float = 8.0,
    gemms: int = 48,
    threads: int = 1,
    name: str = "",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> MachineProfile:
    """Measure this machine's operators into a folder and fit them, as `vtrain profile run` does.

    Needs torch. Collectives need the command under torchrun.

    Args:
        out: profile folder to write.
        device: cuda or cpu.
        minutes: wall time after which no row is begun.
        gemms: products to measure, each in three layouts.
        threads: threads of one operator (CPU).
        name: of the profile; the folder's when empty.
        resume: go on with the profile in the folder.
        force: measure again over it.
        progress: called after each row with rows done, rows in all, and what was measured.

    Raises:
        UserInputError: no torch, no device, or a folder that holds something else.
    """
    from vtrain.profiler.fit.profile import fit_profile
    from vtrain.profiler.run import RunOptions, measure_device

    _refuse_torchrun("run")
    folder = Path(out)
    options = RunOptions(
        kind=device, out=folder, minutes=_above_zero(minutes),
        gemms=whole("gemms", gemms, least=30), threads=whole("threads", threads),
        name=name or folder.resolve().name, resume=resume, force=force,
    )  # fmt: skip
    outcome = measure_device(options, progress or _silent)
    return MachineProfile(folder=folder, fit=fit_profile(folder), outcome=outcome)


def profile_plan(device: str, *, gemms: int = 48) -> DataFrame:
    """Return what `profile_run` would measure, one row each, as `--dry-run` says; no torch needed.

    Args:
        device: cuda or cpu.
        gemms: products to measure, each in three layouts.
    """
    import pandas as pd

    from vtrain.profiler.run import planned_operators

    rows = [
        {"table": op.table, "operator": op.label, "flops": op.flops, "bytes": op.traffic_bytes}
        for op in planned_operators(device, whole("gemms", gemms, least=30))
    ]
    return pd.DataFrame(rows)


def profile_fit(folder: str | Path) -> MachineProfile:
    """Fit the constants of a profile anew from its rows, as `vtrain profile fit` does.

    Raises:
        UserInputError: no profile, damaged rows, or nothing to fit.
    """
    from vtrain.profiler.fit.profile import fit_profile

    return MachineProfile(folder=Path(folder), fit=fit_profile(Path(folder)))


def profile_import(
    tables: str | Path,
    out: str | Path,
    *,
    gpu: str,
    base: str | None = None,
    dtype: str = "bf16",
    source: str = "",
    force: bool = False,
) -> MachineProfile:
    """Make a profile of published operator tables, as `vtrain profile import` does.

    Args:
        tables: folder with gemm.csv and any of attention, elementwise and collectives.csv.
        out: profile folder to write.
        gpu: value of the gpu column.
        base: shipped device whose datasheet holds.
        dtype: value of the dtype column of products.
        source: keep rows whose source contains this.
        force: write over a profile in `out`.

    Raises:
        UserInputError: no such rows, a damaged table, or a folder that is taken.
    """
    from vtrain.profiler.importer import import_tables

    import_tables(
        Path(tables), Path(out), gpu=gpu, base=base, dtype=dtype, source=source, force=force
    )
    return profile_fit(out)


def profile_verify(
    folder: str | Path,
    *,
    configs: int = 12,
    repeats: int = 7,
    seed: int = 0,
    memory: bool = True,
    minutes: float = 30.0,
    progress: Progress | None = None,
) -> StepChecks:
    """Run real training steps and compare them, as `vtrain profile verify` does; needs torch.

    Args:
        folder: a profile of this machine.
        configs: random configurations.
        repeats: steps timed of each.
        seed: of the draw.
        memory: check peak memory as well.
        minutes: wall time after which no configuration is begun.
        progress: called after each configuration.

    Raises:
        UserInputError: no torch, no profile, or one of another device.
    """
    from vtrain.profiler.prediction import load_profile
    from vtrain.profiler.run import VerifyOptions, verify_device

    _refuse_torchrun("verify")
    options = VerifyOptions(
        folder=Path(folder), count=whole("configs", configs),
        repeats=whole("repeats", repeats), seed=seed, memory=memory,
        minutes=_above_zero(minutes), as_json=True,
    )  # fmt: skip
    profile = load_profile(options.folder)
    verdict = verify_device(profile, options, progress or _silent)
    return StepChecks(profile=profile, verdict=verdict)


def _silent(done: int, total: int, label: str) -> None:
    """Say nothing of progress."""


def _above_zero(minutes: float) -> float:
    # Written so that nan is refused too: no time would ever be past it.
    if not is_number(minutes) or not minutes > 0.0:
        raise UserInputError(f"minutes must be above 0, got {minutes!r}")
    return minutes


def _refuse_torchrun(what: str) -> None:
    from vtrain.profiler.run import world_size

    if world_size() > 1:
        raise UserInputError(
            f"profile_{what}() works in one process, this is one of {world_size()} of torchrun",
            hint=f"torchrun --no-python vtrain profile {what} ...",
        )
