"""Small tools: utilisation in every dialect, site factors, files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.api.planning import simulate
from vtrain.api.setting import DEFAULT_CLUSTER, Model, make_setting
from vtrain.cli_options import DEFAULT_STACK, build_plan
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.calibrate import SiteFit
    from vtrain.design import Design
    from vtrain.formats.imported import Imported
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack


def mfu(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int,
    tokens_per_s: float,
    seq_length: int | None = None,
    precision: str = "bf16",
    recompute: str = "none",
    tp: int = 1,
) -> DataFrame:
    """Return one throughput (tokens/s of all GPUs) in every dialect of MFU, with its formula.

    Raises:
        UserInputError: a number that is not positive, or a precision the GPU lacks.
    """
    import pandas as pd

    from vtrain.mfu import Work, utilizations

    setting = make_setting(model, cluster, DEFAULT_STACK, seq_length, None)
    peaks = setting.cluster.device.peak_flops
    if precision not in peaks:
        raise UserInputError(
            f"{setting.cluster.device.name} has no {precision} peak",
            hint=f"one of {', '.join(peaks)}",
        )
    work = Work(architecture=setting.architecture, seq_length=setting.seq_length, tp=tp,
                recompute=recompute)  # fmt: skip
    found = utilizations(
        work, tokens_per_s=tokens_per_s, gpus=gpus, peak_flops_per_s=float(peaks[precision])
    )
    rows = [
        {"dialect": u.dialect.name, "mfu": u.value, "flops_per_token": u.flops_per_token,
         "formula": u.dialect.formula, "source": u.dialect.source, "warning": u.warning}
        for u in found
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("dialect")


def calibrate(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    runs: DataFrame,
    stack: str | Path | Stack = DEFAULT_STACK,
    seq_length: int | None = None,
) -> SiteFit:
    """Fit site factors to measured steps of one model; pass `.factors` on as `site`.

    Args:
        model: what was trained.
        cluster: where.
        runs: one row a measured plan: columns gpus, global_batch_size, step_time_s, and any
            other argument of `simulate` that is not its default.
        stack: with what.
        seq_length: tokens of a sequence.

    Raises:
        UserInputError: a missing column, or a plan that its framework would refuse.
    """
    import inspect

    from vtrain.calibrate import fit_site_factors
    from vtrain.plan import PlanTable

    plan_fields = {
        name: p.default for name, p in inspect.signature(simulate).parameters.items()
        if name not in ("model", "cluster", "stack", "seq_length", "site")
    }  # fmt: skip
    for name in ("gpus", "global_batch_size", "step_time_s"):
        if name not in runs:
            raise UserInputError(f"calibrate() needs a column {name!r}", hint="one row a plan")
    setting = make_setting(model, cluster, stack, seq_length, None)
    known = [c for c in runs.columns if c in plan_fields]
    records = runs[known].to_dict("records")
    table = [build_plan(setting, **{**plan_fields, **record}) for record in records]
    return fit_site_factors(
        setting.architecture, setting.cluster, setting.stack, PlanTable.from_plans(table),
        runs["step_time_s"].to_numpy(), seq_length=setting.seq_length,
    )  # fmt: skip


def read_file(
    path: str | Path, *, gpus: int | None = None, vocab_size: int | None = None
) -> Imported:
    """Return what a config or launch script of another tool holds, as `vtrain import` does."""
    from vtrain.formats import read_any

    return read_any(path, gpus=gpus, vocab_size=vocab_size)


def export(design: Design, format: str) -> str:
    """Return a design as the text of a megatron, torchtitan, deepspeed, hf or slurm file."""
    from vtrain.formats import export as write

    return write(design, format)
