"""What a profile predicts of one step on one device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.estimate import estimate
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.profiler.fit.columns import products
from vtrain.profiler.meta import Meta, read_meta
from vtrain.profiler.residual import (
    Measured,
    Residual,
    load_verdict,
    measured_range,
    refit_residual,
    step_products,
)
from vtrain.profiler.rows import path_of, read_rows
from vtrain.profiler.runtime import PLANNED_ELEMENT_BYTES

if TYPE_CHECKING:
    from vtrain.hardware import Cluster
    from vtrain.profiler.steps import Config
    from vtrain.stack import Stack

SD_OF_MEAN_ERROR = 1.25
"""Standard deviation over mean absolute error of a normal distribution, sqrt(pi / 2)."""

NINETY = 1.645
OUTSIDE = 2.0
"""How much wider the error of a product is taken outside the measured range."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A fitted profile as prediction needs it.

    Attributes:
        folder: where it is.
        meta: its head.
        cluster: its device and links.
        stack: plain torch.
        measured: range of its products.
        residual: learned correction of products, None where the analytic model is no worse.
        product_error: held-out mean absolute error of products, a share.
    """

    folder: Path
    meta: Meta
    cluster: Cluster
    stack: Stack
    measured: Measured
    residual: Residual | None
    product_error: float

    @property
    def bytes_per_planned(self) -> float:
        """Bytes on the device for each byte planned."""
        return self.meta.element_bytes / PLANNED_ELEMENT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """One step.

    Attributes:
        step_time_s: with the learned residual, inside the measured range.
        analytic_s: by the fitted constants alone: what `vtrain simulate` says.
        low_s: 90 % interval from the held-out error of products, wider for those not covered.
        high_s: its other end.
        mem_peak_bytes: peak memory on the device.
        missed: products outside the measured range.
    """

    step_time_s: float
    analytic_s: float
    low_s: float
    high_s: float
    mem_peak_bytes: float
    missed: tuple[str, ...]


def load_profile(folder: str | Path) -> Profile:
    """Read a fitted profile.

    Raises:
        UserInputError: no profile, one that was never fitted, or a damaged one.
    """
    path = Path(folder)
    meta = read_meta(path)
    for name in ("device.toml", "cluster.toml", "stack.toml"):
        if not (path / name).exists():
            raise UserInputError(
                f"{path} lacks {name}", hint=f"`vtrain profile fit --profile {path}` writes it"
            )
    rows = products(read_rows(path_of(path, "gemm"), "gemm"))
    verdict = load_verdict(path)
    used = bool(verdict["used"])
    error = float(verdict["residual_mape_pct" if used else "analytic_mape_pct"])
    return Profile(
        folder=path, meta=meta, cluster=load_cluster(path / "cluster.toml"),
        stack=load_stack(path / "stack.toml"), measured=measured_range(rows),
        residual=refit_residual(path, meta, rows, float(verdict["floor_s"])) if used else None,
        product_error=error / 100.0,
    )  # fmt: skip


def predict_step(profile: Profile, config: Config) -> Prediction:
    """Predict one step on one device.

    The simulator's closed form on the profile's constants; products inside the measured range
    are corrected by the residual where there is one.
    """
    plan = Plan(
        micro_batch_size=config.micro_batch_size,
        global_batch_size=config.micro_batch_size * config.micro_batches, sharding="none",
    )  # fmt: skip
    found = estimate(
        config.architecture, profile.cluster, profile.stack, PlanTable.from_plans([plan]),
        seq_length=config.seq_length,
    )  # fmt: skip
    analytic = float(found.step_time_s[0])
    rows, counts = step_products(config)
    inside = profile.measured.holds(rows)
    extra = 0.0
    if profile.residual is not None:
        extra = float(np.sum(np.where(inside, profile.residual.extra_s(rows), 0.0) * counts))
    share_outside = float(np.sum(np.where(inside, 0.0, rows.flops) * counts))
    share_outside /= float(np.sum(rows.flops * counts))
    step = analytic + extra
    sd = SD_OF_MEAN_ERROR * profile.product_error * (1.0 + (OUTSIDE - 1.0) * share_outside)
    missed = tuple(
        f"{int(rows.m[at])}x{int(rows.n[at])}x{int(rows.k[at])} {rows.layout[at]}"
        for at in np.flatnonzero(~inside)
    )
    return Prediction(
        step_time_s=step, analytic_s=analytic, low_s=step * float(np.exp(-NINETY * sd)),
        high_s=step * float(np.exp(NINETY * sd)),
        mem_peak_bytes=float(found.mem_peak_bytes[0]) * profile.bytes_per_planned, missed=missed,
    )  # fmt: skip
