"""Site factors from measured steps: a frame of plans and seconds, or training logs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.api.planning import simulate
from vtrain.api.setting import DEFAULT_CLUSTER, Model, make_setting
from vtrain.cli_options import DEFAULT_STACK, build_plan
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.calibrate import SiteFit
    from vtrain.calibration_run import Calibration
    from vtrain.cli_options import Setting
    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Logs = str | Path | Sequence[str | Path] | Mapping[str | Path, Mapping[str, Any]]

_NO_PLAN = ("model", "cluster", "stack", "seq_length", "site", "memory_limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteCalibration:
    """Site factors and the steps behind them.

    Attributes:
        setting: what was trained, where and with what.
        fit: factors, their uncertainty, the interval of new runs.
        rows: one a measured plan or log: measured, and predicted before and after the fit.
        logs: the logs as they were read; None for a frame of runs.
    """

    setting: Setting
    fit: SiteFit
    rows: tuple[Mapping[str, Any], ...]
    logs: Calibration | None = None

    @property
    def factors(self) -> SiteFactors:
        """The multipliers, for `site=` of every function."""
        return self.fit.factors

    @property
    def interval(self) -> tuple[float, float]:
        """Multipliers on a predicted step time that hold 90 % of new runs."""
        return self.fit.interval

    @property
    def error_before_pct(self) -> tuple[float, ...]:
        """Error of each row under factors of 1, in % of the measured step."""
        return self.fit.error_before_pct

    @property
    def error_after_pct(self) -> tuple[float, ...]:
        """Error of each row under the fitted factors; judge the fit by these."""
        return self.fit.error_after_pct

    @property
    def table(self) -> DataFrame:
        """Each factor with the standard deviation of its logarithm."""
        import pandas as pd

        rows = {name: (getattr(self.factors, name), sd) for name, sd in self.fit.log_sd.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["factor", "log_sd"])

    @property
    def runs(self) -> DataFrame:
        """One row a measured plan or log: measured seconds, predicted before and after."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know of logs that stay off; empty for a frame of runs."""
        return () if self.logs is None else tuple(self.logs.warnings)

    def document(self, path: str | Path = "site.toml") -> dict[str, Any]:
        """Return what `vtrain calibrate --json` prints, for a site file of a name."""
        from vtrain.calibration_report import SCHEMA_VERSION, document

        if self.logs is not None:
            return document(self.logs, path, written=self.logs.refusal is None)
        return {**self._site_table(), "schema_version": SCHEMA_VERSION, "site": str(path)}

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write a site file, for `site=` and every command's --site.

        Raises:
            UserInputError: logs that stay far off or cannot be true, or the file is there; and
                not `force`.
        """
        import tomli_w

        from vtrain.calibration_report import write_site
        from vtrain.files import write_text

        if Path(path).exists() and not force:
            raise UserInputError(f"{path} exists", hint="force=True writes over it")
        if self.logs is None:
            write_text(path, tomli_w.dumps(self._site_table()))
            return
        if self.logs.refusal is not None and not force:
            raise UserInputError(self.logs.refusal, hint="force=True writes it all the same")
        write_site(self.logs, path, forced=force)

    def _site_table(self) -> dict[str, Any]:
        from vtrain.site_file import site_table

        setting, fit = self.setting, self.fit
        return site_table(
            fit.factors, cluster=setting.cluster.name, stack=setting.stack.name,
            model=setting.architecture.name or "(file)", rows=fit.rows,
            residual_log_sd=fit.residual_log_sd, interval=list(fit.interval),
            error_before_pct=list(fit.error_before_pct),
            error_after_pct=list(fit.error_after_pct), log_sd=dict(fit.log_sd),
        )  # fmt: skip

    def _repr_html_(self) -> str:
        low, high = self.interval
        told = f"<p>90 % of new runs within x {low:.2f} to {high:.2f} of the prediction</p>"
        return str(self.table.round(3).to_html()) + told + str(self.runs.to_html(index=False))


def calibrate(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    runs: DataFrame | None = None,
    logs: Logs | None = None,
    log_format: str | None = None,
    stack: str | Path | Stack = DEFAULT_STACK,
    seq_length: int | None = None,
    site: str | SiteFactors | None = None,
    **plan: Any,
) -> SiteCalibration:
    """Fit site factors to measured steps of one model; pass `.factors` on as `site`.

    Args:
        model: what was trained.
        cluster: where.
        runs: one row a measured plan: columns gpus, global_batch_size, step_time_s, and any
            other argument of `simulate` that is not its default.
        logs: training logs instead, as `vtrain calibrate --log` reads: one, several, or each with
            what differs in its plan: `{"a.log": {"tp": 4}, "b.log": {}}`.
        log_format: which trainer wrote the logs; found out when None.
        stack: with what.
        seq_length: tokens of a sequence.
        site: factors of the prediction "before"; the shipped constants when None.
        plan: arguments of `simulate` that all rows or logs share: gpus=64, tp=2.

    Raises:
        UserInputError: a missing column, a plan that its framework would refuse, a log without a
            steady step.
    """
    defaults = {
        name: None if p.default is inspect.Parameter.empty else p.default
        for name, p in inspect.signature(simulate).parameters.items() if name not in _NO_PLAN
    }  # fmt: skip
    _check_names(plan, defaults)
    if (runs is None) == (logs is None):
        raise UserInputError("calibrate() needs runs or logs, one of them")
    setting = make_setting(model, cluster, stack, seq_length, site)
    shared = {**defaults, **plan}
    if runs is not None:
        return _of_runs(setting, runs, shared)
    assert logs is not None
    return _of_logs(setting, logs, log_format, shared)


def _of_runs(setting: Setting, runs: DataFrame, shared: Mapping[str, Any]) -> SiteCalibration:
    from vtrain.calibrate import fit_factors
    from vtrain.estimate import step_seconds
    from vtrain.plan import PlanTable

    for name in ("gpus", "global_batch_size", "step_time_s"):
        if name not in runs and shared.get(name) is None:
            raise UserInputError(f"calibrate() needs a column {name!r}", hint="one row a plan")
    known = [c for c in runs.columns if c in shared]
    records = runs[known].to_dict("records")
    table = PlanTable.from_plans([build_plan(setting, **{**shared, **r}) for r in records])

    def predict(factors: SiteFactors) -> Any:
        return step_seconds(
            setting.architecture, setting.cluster, setting.stack, table,
            seq_length=setting.seq_length, site=factors,
        )  # fmt: skip

    measured = runs["step_time_s"].to_numpy()
    fit = fit_factors(predict, measured)
    pairs = zip(records, measured, predict(setting.site), predict(fit.factors), strict=True)
    rows = tuple(
        {**record, "measured_s": float(seen), "before_s": float(first), "after_s": float(last)}
        for record, seen, first, last in pairs
    )
    return SiteCalibration(setting=setting, fit=fit, rows=rows)


def _of_logs(
    setting: Setting, logs: Logs, log_format: str | None, shared: Mapping[str, Any]
) -> SiteCalibration:
    from vtrain.calibration_run import Reading, calibrate
    from vtrain.formats.logs import read_log

    found = calibrate(setting, [
        Reading(log=read_log(str(path), log_format), plan=_plan(setting, shared, changes))
        for path, changes in _entries(logs)
    ])  # fmt: skip
    rows = tuple(
        {
            "log": log.reading.log.source, "format": log.reading.log.format,
            "steps": int(log.steady.step_times_s.size), "warm_up": log.steady.warm_up,
            "outliers": log.steady.outliers, "measured_s": log.steady.median_s,
            "before_s": log.before_s, "after_s": log.after_s,
            "flags": "; ".join(flag.text for flag in log.flags),
        }
        for log in found.logs
    )  # fmt: skip
    return SiteCalibration(setting=setting, fit=found.fit, rows=rows, logs=found)


def _entries(logs: Logs) -> list[tuple[str | Path, Mapping[str, Any]]]:
    if isinstance(logs, str | Path):
        return [(logs, {})]
    if isinstance(logs, Mapping):
        return list(logs.items())
    return [(path, {}) for path in logs]


def _plan(setting: Setting, shared: Mapping[str, Any], changes: Mapping[str, Any]) -> Plan:
    _check_names(changes, shared)
    return build_plan(setting, **{**shared, **changes})


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known:
            raise UserInputError(
                f"calibrate() takes no {name!r}", hint=f"one of {', '.join(known)}"
            )
