"""Entries of the validation report: one for each source x GPU x framework."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.calibrate import fit_factors
from vtrain.errors import UserInputError
from vtrain.interval import UNRELIABLE_SHARE, interval_multipliers
from vtrain.validation.judge import rank_correlation, regret_score, time_score
from vtrain.validation.memory import (
    memory_errors,
    memory_share,
    published_parts,
    quantity_name,
)
from vtrain.validation.predict import batches, predicted_seconds
from vtrain.validation.setup import Setup, setup_or_reason
from vtrain.validation.stacks import stack_of, without_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.memory.rows import Parts
    from vtrain.site import SiteFactors
    from vtrain.validation.runs import MeasuredRun

    Array = npt.NDArray[np.float64]

FEW_SHOT_LEAST_ROWS = 24
"""Groups below this size are judged zero-shot only (design, section 6)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line narrows.

    Attributes:
        sources: prefixes to judge; empty judges all.
        min_mfu: rows whose published MFU lies below are left out.
        max_memory_share: rows whose predicted peak exceeds this share of the device are left out.
        few_shot: rows that fit the site factors; 0 leaves the few-shot part out.
        seeds: number of hash seeds that pick them.
    """

    sources: tuple[str, ...] = ()
    min_mfu: float = 0.0
    max_memory_share: float = float("inf")
    few_shot: int = 0
    seeds: int = 5

    def __post_init__(self) -> None:
        """Refuse counts that pick no rows.

        Raises:
            UserInputError: naming the counts.
        """
        if self.few_shot < 0 or self.seeds < 1:
            raise UserInputError(
                f"few_shot={self.few_shot} must not be negative and seeds={self.seeds} must be at "
                "least 1"
            )


@dataclass(kw_only=True, slots=True)
class Entry:
    """One line of the report; fields as in the documented JSON."""

    source: str
    gpu: str
    framework: str
    rows: int
    judged: int
    skipped: dict[str, int] = field(default_factory=dict)
    time_mape_pct: float | None = None
    time_median_ape_pct: float | None = None
    time_p90_ape_pct: float | None = None
    time_bias_pct: float | None = None
    interval_coverage_pct: float | None = None
    interval_half_width_pct: float | None = None
    memory_rows: int = 0
    memory_quantity: str = ""
    memory_mape_pct: float | None = None
    memory_bias_pct: float | None = None
    spearman: float | None = None
    regret_groups: int = 0
    plan_regret_median_pct: float | None = None
    plan_regret_p90_pct: float | None = None
    random_regret_median_pct: float | None = None
    time_mape_range_pct: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowResult:
    """One judged row, for --rows-out."""

    run_id: str
    stack: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    error_pct: float
    memory_share: float
    unreliable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything `vtrain validate` prints."""

    zero_shot: tuple[Entry, ...]
    few_shot: tuple[Entry, ...]
    rows: tuple[RowResult, ...]
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The judged rows of one source x GPU x framework.

    `constants` says which constants were refitted without the source, or could not be.
    """

    entry: Entry
    constants: tuple[str, ...]
    runs: list[MeasuredRun]
    setups: list[Setup]
    measured: Array
    memory_parts: list[Parts | None]
    memory_share: Array

    @property
    def log_sd(self) -> Array:
        """Spread of each row's stack, from other sources."""
        return np.array([stack_of(s.stack).time_log_sd for s in self.setups])


def validate_runs(runs: Sequence[MeasuredRun], options: Options) -> Report:
    """Judge every row that can be judged, zero-shot and, when asked, few-shot.

    Raises:
        UserInputError: a source that no row is of.
    """
    known = sorted({run.source for run in runs})
    for source in options.sources:
        if source not in known:
            raise UserInputError(f"no rows of source {source!r}", hint=f"have: {', '.join(known)}")
    groups = _groups(runs, options)
    zero_shot, few_shot, rows = [], [], []
    for group in groups:
        entry = group.entry
        if group.runs:
            predicted = predicted_seconds(batches(group.setups), len(group.setups))
            low, high = interval_multipliers(group.log_sd)
            every = np.arange(len(group.runs))
            _fill(entry, group, every, predicted, low, high)
            rows += _row_results(group, predicted, low, high)
        zero_shot.append(entry)
        if options.few_shot and len(group.runs) >= FEW_SHOT_LEAST_ROWS:
            few_shot.append(_few_shot(group, options))
    constants = sorted({line for group in groups for line in group.constants})
    return Report(
        zero_shot=tuple(zero_shot), few_shot=tuple(few_shot), rows=tuple(rows),
        constants=tuple(constants),
    )  # fmt: skip


def _groups(runs: Sequence[MeasuredRun], options: Options) -> list[_Group]:
    members: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run in runs:
        if not options.sources or run.source in options.sources:
            members.setdefault(run.group, []).append(run)
    return [_group(key, rows, options) for key, rows in sorted(members.items())]


def _group(key: tuple[str, str, str], rows: list[MeasuredRun], options: Options) -> _Group:
    skipped: Counter[str] = Counter()
    constants: set[str] = set()
    kept: list[tuple[MeasuredRun, Setup]] = []
    for run in rows:
        answer = setup_or_reason(run)
        if isinstance(answer, str):
            skipped[answer] += 1
        elif options.min_mfu > 0.0 and (run.mfu is None or run.mfu < options.min_mfu):
            skipped[f"MFU under {options.min_mfu:g}"] += 1
        else:
            stack, told = without_source(answer.stack, run.source, run.gpu)
            constants.update(told)
            kept.append((run, replace(answer, stack=stack)))
    share = memory_share(batches([setup for _, setup in kept]), len(kept))
    safe = [i for i in range(len(kept)) if share[i] <= options.max_memory_share]
    if len(safe) < len(kept):
        skipped[f"predicted above {options.max_memory_share:.0%} of memory"] += len(kept) - len(
            safe
        )
    chosen = [kept[i] for i in safe]
    entry = Entry(
        source=key[0], gpu=key[1], framework=key[2], rows=len(rows), judged=len(chosen),
        skipped=dict(sorted(skipped.items())),
    )  # fmt: skip
    return _Group(
        entry=entry,
        constants=tuple(sorted(constants)),
        runs=[run for run, _ in chosen],
        setups=[setup for _, setup in chosen],
        measured=np.array([run.iteration_s for run, _ in chosen], dtype=np.float64),
        memory_parts=published_parts([run for run, _ in chosen]),
        memory_share=share[safe],
    )


def _fill(
    entry: Entry,
    group: _Group,
    rows: npt.NDArray[np.int64],
    predicted: Array,
    low: Array,
    high: Array,
) -> None:
    """Write the scores of some rows of a group into an entry; arrays cover the whole group."""
    measured = group.measured[rows]
    score = time_score(predicted[rows], measured, low[rows], high[rows])
    entry.time_mape_pct = score.mape_pct
    entry.time_median_ape_pct = score.median_ape_pct
    entry.time_p90_ape_pct = score.p90_ape_pct
    entry.time_bias_pct = score.bias_pct
    entry.interval_coverage_pct = score.coverage_pct
    entry.interval_half_width_pct = score.half_width_pct
    entry.spearman = rank_correlation(predicted[rows], measured)
    runs = [group.runs[row] for row in rows]
    regret = regret_score(
        [(r.model_name, r.gpus, r.global_batch_seqs, r.seq_len, r.dtype) for r in runs],
        [group.setups[row].plan for row in rows],
        predicted[rows],
        measured,
    )
    entry.regret_groups = regret.groups
    entry.plan_regret_median_pct = regret.median_pct
    entry.plan_regret_p90_pct = regret.p90_pct
    entry.random_regret_median_pct = regret.random_median_pct
    fitted = sorted(set(range(len(group.runs))) - set(rows.tolist()))
    error = memory_errors(group.runs, group.memory_parts, fitted)
    if error.size:
        entry.memory_rows = len(error)
        entry.memory_quantity = quantity_name(entry.source)
        entry.memory_mape_pct = float(np.abs(error).mean() * 100.0)
        entry.memory_bias_pct = float(error.mean() * 100.0)


def _row_results(group: _Group, predicted: Array, low: Array, high: Array) -> list[RowResult]:
    return [
        RowResult(
            run_id=run.run_id,
            stack=setup.stack.name,
            measured_s=float(group.measured[i]),
            predicted_s=float(predicted[i]),
            low_s=float(predicted[i] * low[i]),
            high_s=float(predicted[i] * high[i]),
            error_pct=float((predicted[i] / group.measured[i] - 1.0) * 100.0),
            memory_share=float(group.memory_share[i]),
            unreliable=bool(group.memory_share[i] > UNRELIABLE_SHARE),
        )
        for i, (run, setup) in enumerate(zip(group.runs, group.setups, strict=True))
    ]


def hash_order(run_ids: Sequence[str], seed: int) -> npt.NDArray[np.int64]:
    """Return rows in the order of the SHA-256 of "<seed>:<run_id>"; seed 0 hashes run_id alone."""
    digests = [
        hashlib.sha256((f"{seed}:{name}" if seed else name).encode()).hexdigest()
        for name in run_ids
    ]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def _few_shot(group: _Group, options: Options) -> Entry:
    """Return means over the seeds of what is judged outside the fitted rows."""
    entries = [_few_shot_once(group, options.few_shot, seed) for seed in range(options.seeds)]
    return mean_entry(entries)


def mean_entry(entries: Sequence[Entry]) -> Entry:
    """Return the entry of means over seeds, with the range of the error; the entries stay.

    Args:
        entries: of one group, one a seed.
    """
    means: dict[str, Any] = {}
    for name, first in asdict(entries[0]).items():
        values = [getattr(entry, name) for entry in entries]
        if isinstance(first, float) and all(value is not None for value in values):
            means[name] = float(np.mean(values))
    errors = [entry.time_mape_pct or 0.0 for entry in entries]
    return replace(entries[0], **means, time_mape_range_pct=(min(errors), max(errors)))


def _few_shot_once(group: _Group, count: int, seed: int) -> Entry:
    order = hash_order([run.run_id for run in group.runs], seed)
    fitted, judged = np.sort(order[:count]), np.sort(order[count:])
    few = batches([group.setups[i] for i in fitted])

    def predict(site: SiteFactors) -> Array:
        return predicted_seconds(few, count, site)

    fit = fit_factors(predict, group.measured[fitted])
    predicted = predicted_seconds(batches(group.setups), len(group.setups), fit.factors)
    low, high = (np.full(len(group.setups), end) for end in fit.interval)
    entry = Entry(
        source=group.entry.source, gpu=group.entry.gpu, framework=group.entry.framework,
        rows=group.entry.rows, judged=len(judged),
        skipped={**group.entry.skipped, "fitted": len(fitted)},
    )  # fmt: skip
    _fill(entry, group, judged, predicted, low, high)
    return entry
