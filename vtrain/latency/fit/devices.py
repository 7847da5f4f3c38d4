"""Fits every operator model of one device and says how good each is on held-out rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.latency.fit import attention, gemm, memory_bound, tables
from vtrain.latency.fit.robust import Error, Form, cross_validate, fit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from vtrain.hardware import Device
    from vtrain.latency.fit.tables import Frame, Rows

    Array = NDArray[np.float64]

LONG_S = 0.010
"""Kernels above this run long enough for the power limit to act."""

SHORT_S = (50e-6, 1e-3)
"""Kernels that end before it does, yet are long against launch and ramp."""

ENOUGH_ROWS = 20
"""Rows of either kind that a stack must have to be averaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Held-out error of one model of one operator on one device."""

    device: str
    operator: str
    model: str
    error: Error


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """Values for a TOML table, their sources by dotted name, and the scores behind them."""

    values: dict[str, Any]
    sources: dict[str, dict[str, Any]]
    scores: list[Scored]


def fit_operators(folder: Path, device: Device, rows: Rows) -> Fitted:
    """Fit matrix products, attention and memory-bound shares from the tables in `folder`.

    Args:
        folder: the measured tables.
        device: datasheet values.
        rows: which rows describe the device.
    """
    parts = [
        *_gemm(tables.read_table(folder, "gemm.csv"), device, rows),
        *_attention(tables.read_table(folder, "attention.csv"), device, rows),
        _memory_bound(tables.read_table(folder, "elementwise.csv"), device, rows),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, dict[str, Any]] = {}
    scores: list[Scored] = []
    for part in parts:
        for table, inner in part.values.items():
            values.setdefault(table, {}).update(inner)
        sources |= part.sources
        scores += part.scores
    return Fitted(values=values, sources=sources, scores=scores)


def _gemm(frame: Frame, device: Device, rows: Rows) -> list[Fitted]:
    """Every precision, half precision first: whether the device throttles is read there.

    Quantised kernels spend part of their time on the input, so their own rates do not tell; and
    since that part draws little power, they throttle no more than the next wider precision. fp4
    has too few long rows and takes that one's factor.
    """
    out: list[Fitted] = []
    throttle, text, limited = 1.0, "none measured", True
    half_n = 0.0
    for precision, dtype in rows.precisions.items():
        part, found = _gemm_precision(frame, device, rows, precision, dtype)
        ratio, stacks, slower = _sustained(frame, device, rows, precision, dtype, found)
        if precision == "bf16":
            limited = slower
        if ratio is not None and not limited:
            throttle, text = 1.0, f"{dtype} {stacks}"
        elif ratio is not None and (precision == "bf16" or ratio > throttle):
            throttle, text = ratio, f"{dtype} {stacks}"
        values = part.values["gemm"][precision]
        values["sustained"] = throttle
        if precision == "bf16":
            half_n = values["half_n"]
        else:
            # Without its quantisation a narrow product saturates in n like a half-precision one.
            values["quantise_n"] = max(0.0, values["half_n"] - half_n)
            values["half_n"] -= values["quantise_n"]
        part.sources[f"gemm.{precision}.sustained"] = {
            "source": "gemm.csv: rate of kernels over 10 ms against those of 50 us to 1 ms, both "
            "over the fitted model, geometric mean over the software stacks measured; 1 where "
            f"long half-precision kernels reach the FLOP/s of short ones; at least that of the "
            f"wider precision: {text}",
        }
        out.append(part)
    return out


def _gemm_precision(
    frame: Frame, device: Device, rows: Rows, precision: str, dtype: str
) -> tuple[Fitted, Array]:
    operator = f"gemm {precision}"
    half = precision == "bf16"
    scores: list[Scored] = []
    if half:
        # The protocol of the published comparison: every row count, all four models.
        everything = tables.gemm_rows(frame, rows, dtype, aligned=False, published=True)
        scores += _gemm_scores(everything, device, f"{operator}, every m", precision, tiles=True)
    used = tables.gemm_rows(frame, rows, dtype, aligned=True)
    scores += _gemm_scores(used, device, operator, precision, tiles=half)
    m, n, k, measured = _shapes(used)
    all_rows = np.arange(measured.size)
    form = gemm.saturating_form(device, precision, m, n, k, fp8=not half)
    found = fit(form, measured, all_rows)
    values = asdict(gemm.saturating_constants(found))
    del values["tile"]
    if half:
        tile = fit(gemm.tile_form(device, precision, m, n, k), measured, all_rows)
        values["tile"] = asdict(gemm.tile_constants(tile))
    best = next(s.error for s in scores if s.operator == operator and s.model == form.name)
    prefix = f"gemm.{precision}"
    sources: dict[str, dict[str, Any]] = {
        prefix: {
            "source": f"fitted from gemm.csv: {rows.gpu}, {dtype}, {rows.gemm_source}, forward, "
            "m multiple of 16 and >= 256, n >= 256, k >= 128",
            "rows": best.rows,
            "cv_mape_pct": round(best.mape_pct, 2),
            "cv_median_ape_pct": round(best.median_ape_pct, 2),
        },
        f"{prefix}.weight_gradient": {
            "source": "SimuMax operator tables, A100 PCIe and B200: fp32 accumulation into the "
            "output runs at 0.95 of the forward rate",
        },
    }
    return Fitted(values={"gemm": {precision: values}}, sources=sources, scores=scores), found


def _gemm_scores(
    frame: Frame, device: Device, operator: str, precision: str, *, tiles: bool
) -> list[Scored]:
    m, n, k, measured = _shapes(frame)
    groups = tables.group_numbers(frame, ["n", "k"])
    forms = [
        gemm.roofline_form(device, precision, m, n, k),
        gemm.flat_form(device, precision, m, n, k),
        gemm.saturating_form(device, precision, m, n, k, fp8=precision not in ("bf16", "fp16")),
    ]
    if tiles:
        forms.append(gemm.tile_form(device, precision, m, n, k))
    return [_score(device, operator, form, measured, groups) for form in forms]


def _sustained(
    frame: Frame, device: Device, rows: Rows, precision: str, dtype: str, found: Array
) -> tuple[float | None, str, bool]:
    """Throttle of long kernels, what was averaged, and whether any stack slows in FLOP/s."""
    kinds = [dtype, "fp16"] if dtype == "bf16" else [dtype]
    keep = (frame["gpu"] == rows.gpu) & frame["dtype"].isin(kinds) & (frame["layout"] == "TN")
    keep &= (frame["m"] % 16 == 0) & (frame[["m", "n", "k"]].min(axis=1) >= 1024)
    big = frame[keep]
    m, n, k, measured = _shapes(big)
    form = gemm.saturating_form(device, precision, m, n, k)
    excess = measured / form.predict(found, np.arange(measured.size))
    rate = 2.0 * m * n * k / measured
    stack = big["source"].str.extract(r"(sglang|trtllm|vidur|SimuMax)", expand=False)
    throttles, names, limited = [], [], False
    for name in sorted(set(stack.dropna())):
        mine = (stack == name).to_numpy()
        long = mine & (measured > LONG_S)
        short = mine & (measured > SHORT_S[0]) & (measured < SHORT_S[1])
        if long.sum() < ENOUGH_ROWS or short.sum() < ENOUGH_ROWS:
            continue
        limited = limited or bool(np.median(rate[long]) < np.median(rate[short]))
        throttles.append(min(1.0, float(np.median(excess[short]) / np.median(excess[long]))))
        names.append(f"{name} {throttles[-1]:.3f}")
    if not throttles:
        return None, "", limited
    return round(float(np.exp(np.mean(np.log(throttles)))), 4), ", ".join(names), limited


def _attention(frame: Frame, device: Device, rows: Rows) -> list[Fitted]:
    if not rows.attention_source:
        return []
    half = frame["dtype"].isin(["bf16", "fp16"])
    mine = frame["gpu"] == rows.gpu
    # Serving engines write the key-value cache too; grouped heads keep that small, as it is in
    # training. Below 256 tokens only launch time shows.
    grid = frame["source"].str.contains(rows.attention_source, regex=False) & half & mine
    grid &= (frame["pass"] == "fwd") & frame["causal"] & (frame["seq_q"] == frame["seq_kv"])
    grid &= (frame["seq_q"] >= 256) & (frame["heads"] >= 2 * frame["kv_heads"])
    grid &= ~frame["source"].str.contains("encoder", regex=False)
    not_forward = frame["pass"] != "fwd"
    paper = frame["source"].str.contains("figure", regex=False)
    newest = mine & not_forward & frame["kernel"].isin(["fa3", "cudnn"])
    simumax = mine & not_forward & frame["kernel"].str.contains("TransformerEngine", regex=False)
    simumax &= frame["head_dim"].astype(str) == "128"
    second = mine & not_forward & (frame["kernel"] == "fa2")
    first = mine & not_forward & (frame["kernel"] == "fa1")
    second_forward = mine & paper & (frame["pass"] == "fwd") & (frame["kernel"] == "fa2")
    top = "flash2" if device.arch == "Ampere" else "flash3"
    newest_backward = second if top == "flash2" else (newest if newest.any() else simumax)
    out = []
    if newest_backward.any():
        out.append(_generation(frame, device, top, grid, newest_backward, hold=False))
    elif grid.any():
        # No backward of this device: the one of the same architecture (H100 for H200).
        donor = (frame["gpu"] == "H100-SXM5-80GB") & not_forward
        donor &= frame["kernel"].isin(["fa3", "cudnn"])
        out.append(_generation(frame, device, top, grid, donor, hold=False))
    if top != "flash2" and second_forward.any():
        out.append(_generation(frame, device, "flash2", second_forward, second, hold=True))
    if first.any():
        out.append(_generation(frame, device, "flash1", None, first, hold=True))
    return out


def _generation(
    frame: Frame, device: Device, name: str, grid: Any, back: Any, *, hold: bool
) -> Fitted:
    """One kernel generation; without a forward grid both passes share efficiency and s0."""
    precision = "bf16"
    scores: list[Scored] = []
    table_b, measured_b, frame_b = tables.attention_rows(frame, back)
    if grid is None:
        forward, used = _same_both_ways(device, precision, table_b, measured_b, scores, name)
        backward = (float(forward[0]), float(forward[1]))
        factor = float(forward[2])
    else:
        table_f, measured_f, used = tables.attention_rows(frame, grid)
        form = attention.forward_form(device, precision, table_f, hold=hold)
        groups = tables.group_numbers(used, ["heads", "seq_q", "head_dim"])
        operator = f"attention forward {name}"
        plain = attention.peak_form(device, precision, table_f, 1.0)
        scores.append(_score(device, operator, plain, measured_f, groups))
        scores.append(_score(device, operator, form, measured_f, groups))
        forward = fit(form, measured_f, np.arange(measured_f.size))
        one_size = np.unique(table_f["head_dim"]).size == 1
        form_b = attention.backward_form(device, precision, table_b, forward, head_factor=one_size)
        operator = f"attention backward {name}"
        groups = np.arange(measured_b.size)
        work = np.where(table_b["with_forward"] > 0, 3.5, 2.5)
        plain = attention.peak_form(device, precision, table_b, float(np.mean(work)))
        scores.append(_score(device, operator, plain, measured_b, groups))
        scores.append(_score(device, operator, form_b, measured_b, groups))
        found = fit(form_b, measured_b, np.arange(measured_b.size))
        backward, factor = (float(found[0]), float(found[1])), float(found[2])
    vector = np.array([*forward[:2], factor, *forward[3:]])
    values = asdict(attention.constants_of(device, vector, backward))
    del values["sm_count"]
    kernels = ", ".join(sorted({str(x) for x in [*used["kernel"], *frame_b["kernel"]]}))
    best = [s for s in scores if s.model == "saturating"]
    source = {
        "source": f"fitted from attention.csv: forward {len(used)} rows, backward "
        f"{len(frame_b)} rows ({', '.join(sorted(set(frame_b['gpu'])))}), kernels: {kernels}",
        "rows": len(used) + len(frame_b),
        "cv_mape_pct": round(best[0].error.mape_pct, 2),
        "cv_backward_mape_pct": round(best[-1].error.mape_pct, 2),
    }
    return Fitted(
        values={"attention": {name: values}}, sources={f"attention.{name}": source}, scores=scores
    )


def _same_both_ways(
    device: Device,
    precision: str,
    table: dict[str, Array],
    measured: Array,
    scores: list[Scored],
    name: str,
) -> tuple[Array, Frame]:
    """Fit e, s0 and head factor on rows that time both passes, equal for both."""
    import pandas as pd

    held = (1.0, 5e-6)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        vector = np.array([*x, *held])
        form = attention.backward_form(device, precision, table, vector, head_factor=False)
        return form.predict(x, rows)

    form = Form(
        name="saturating",
        constants=("e", "s0", "d64"),
        start=(0.25, 400.0, 1.0),
        low=(0.02, 1.0, 0.4),
        high=(1.0, 4000.0, 1.5),
        predict=predict,
    )
    groups = np.arange(measured.size)
    operator = f"attention forward+backward {name}"
    plain = attention.peak_form(device, precision, table, 3.5)
    scores.append(_score(device, operator, plain, measured, groups))
    scores.append(_score(device, operator, form, measured, groups))
    found = fit(form, measured, groups)
    return np.array([*found, *held]), pd.DataFrame({"kernel": [], "gpu": []})


def _memory_bound(frame: Frame, device: Device, rows: Rows) -> Fitted:
    found = memory_bound.shares(frame, rows.gpu, device.hbm_bytes_per_s)
    values: dict[str, Any] = {name: round(share.value, 4) for name, share in found.items()}
    sources: dict[str, dict[str, Any]] = {
        f"memory_bound.{name}": {
            "source": "elementwise.csv, rows above 64 MB, geometric mean over "
            + ", ".join(share.implementations),
            "rows": share.error.rows,
            "cv_mape_pct": round(share.error.mape_pct, 2),
        }
        for name, share in found.items()
    }
    scores = []
    for name, share in found.items():
        operator = f"memory-bound {name}"
        scores.append(_scored(device, operator, "roofline", share.roofline))
        scores.append(_scored(device, operator, "share of HBM", share.error))
    floor = memory_bound.empty_kernel_s(frame, rows.gpu)
    if floor is not None:
        values["floor_s"] = floor
        sources["memory_bound.floor_s"] = {
            "source": "elementwise.csv, median residual addition under 1 MB"
        }
    return Fitted(values={"memory_bound": values}, sources=sources, scores=scores)


def _shapes(frame: Frame) -> tuple[Array, Array, Array, Array]:
    columns = tables.column_arrays(frame, ("m", "n", "k"))
    return columns["m"], columns["n"], columns["k"], tables.seconds(frame)


def _score(
    device: Device, operator: str, form: Form, measured: Array, groups: NDArray[np.intp]
) -> Scored:
    return _scored(device, operator, form.name, cross_validate(form, measured, groups))


def _scored(device: Device, operator: str, model: str, error: Error) -> Scored:
    return Scored(device=device.name, operator=operator, model=model, error=error)
