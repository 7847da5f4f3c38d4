"""Plans of a model ranked by time and cost, with the verdict on their memory."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields, replace
from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.enumeration import default_space, enumerate_plans
from vtrain.errors import InfeasibleError, UserInputError
from vtrain.estimate import Estimate, estimate
from vtrain.goodput import CHECKPOINT_BYTES_PER_PARAMETER, goodput
from vtrain.memory import memory_limit_bytes
from vtrain.memory.verdict import TIGHT_PROBABILITY, VERDICTS, tight_share
from vtrain.memory_limit import SHARE_FITS
from vtrain.plan import PlanTable
from vtrain.training_run import TrainingRun, training_run

if TYPE_CHECKING:
    import numpy.typing as npt

    from vtrain.cli_options import Setting
    from vtrain.enumeration import PlanSpace
    from vtrain.stack import Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedPlans:
    """Plans in the order they should be read: by GPU count, what fits first, then by step time.

    Attributes:
        plans: the table.
        estimate: its times and memory, row by row.
        run: the whole training run of each row, None without tokens.
        word: position in VERDICTS of each row.
        space: what was enumerated.
        tallies: plans of each GPU count asked for, before any was left out: how many have each of
            VERDICTS, in that order.
    """

    plans: PlanTable
    estimate: Estimate
    run: TrainingRun | None
    word: npt.NDArray[np.int64]
    space: PlanSpace
    tallies: dict[int, tuple[int, int, int]]

    @property
    def valid(self) -> int:
        """Plans enumerated."""
        return sum(sum(tally) for tally in self.tallies.values())

    @property
    def fit(self) -> int:
        """Of them, plans within the memory limit."""
        return sum(tally[0] for tally in self.tallies.values())

    @property
    def tight(self) -> int:
        """Of them, plans above the limit that may still run."""
        return sum(tally[1] for tally in self.tallies.values())

    @property
    def barren_gpus(self) -> tuple[int, ...]:
        """GPU counts on which no plan fits or is tight."""
        return tuple(gpus for gpus, tally in self.tallies.items() if not sum(tally[:2]))

    def __len__(self) -> int:
        """Return the number of rows kept."""
        return len(self.plans)

    def counts(self) -> dict[str, int]:
        """Return how many plans were valid, how many fit and how many are tight."""
        return {"valid": self.valid, "fit": self.fit, "tight": self.tight}

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> RankedPlans:
        """Return some rows, in the order given."""
        return RankedPlans(
            plans=self.plans.take(rows), estimate=_take(self.estimate, rows),
            run=None if self.run is None else _take(self.run, rows), word=self.word[rows],
            space=self.space, tallies=self.tallies,
        )  # fmt: skip

    def row(self, i: int) -> dict[str, Any]:
        """Return one plan with its figures as plain values."""
        plan = self.plans.plan(i)
        result = self.estimate
        return {
            "gpus": plan.gpus,
            **{f.name: getattr(plan, f.name) for f in fields(plan)},
            "step_time_s": float(result.step_time_s[i]),
            "mfu": float(result.mfu[i]),
            "tokens_per_s": float(result.tokens_per_s[i]),
            "mem_peak_bytes": float(result.mem_peak_bytes[i]),
            "mem_limit_bytes": float(result.mem_limit_bytes),
            "verdict": VERDICTS[int(self.word[i])],
            "days": None if self.run is None else float(self.run.wall_s[i]) / 86400.0,
            "gpu_hours": None if self.run is None else float(self.run.gpu_hours[i]),
            "cost_usd": None if self.run is None else float(self.run.cost_usd[i]),
        }

    def rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return the first `top` plans of every GPU count."""
        if top is None:
            return [self.row(i) for i in range(len(self))]
        seen: dict[int, int] = {}
        chosen = []
        for i, count in enumerate(self.plans.gpus.tolist()):
            seen[count] = seen.get(count, 0) + 1
            if seen[count] <= top:
                chosen.append(self.row(i))
        return chosen

    def csv(self) -> str:
        """Return every row as CSV text."""
        rows = self.rows()
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


def rank_plans(
    setting: Setting,
    *,
    gpus: tuple[int, ...],
    global_batch_size: int,
    tokens: float | None = None,
    price_usd_per_gpu_hour: float,
    pins: dict[str, Any] | None = None,
    pareto: bool = False,
    keep_misfits: bool = False,
) -> RankedPlans:
    """Enumerate, estimate and order every valid plan.

    Args:
        setting: architecture, cluster, stack, sequence length, site.
        gpus: GPU counts; each a whole number of nodes.
        global_batch_size: sequences of a step.
        tokens: of the whole run, for days and dollars.
        price_usd_per_gpu_hour: for dollars.
        pins: values of `PlanSpace` to keep to.
        pareto: keep only plans that none beats in both step time and GPU-time.
        keep_misfits: keep plans that do not fit, all in order of step time; without, what fits
            comes before what is tight.

    Raises:
        UserInputError: when a GPU count is no whole number of nodes, or the tokens are less than
            those of one step.
        InfeasibleError: when no plan is valid, or none fits.
    """
    cluster, stack = setting.cluster, setting.stack
    node = cluster.gpus_per_node
    for count in gpus:
        if (count > node and count % node) or count > cluster.max_gpus:
            from vtrain.nearest_valid import nearest_count

            raise UserInputError(
                f"gpus={count} must be whole nodes of {node} and at most {cluster.max_gpus} on "
                f"{cluster.name}",
                hint=f"nearest valid: {nearest_count(cluster, count)}",
            )
    space = plan_space(setting, pins)
    plans, _ = enumerate_plans(
        setting.architecture, cluster, stack=stack, seq_length=setting.seq_length,
        gpus=np.array(gpus), global_batch_size=np.full(len(gpus), global_batch_size), space=space,
    )  # fmt: skip
    if not len(plans):
        raise InfeasibleError(
            f"no valid plan for {', '.join(map(str, gpus))} GPUs and global batch "
            f"{global_batch_size}",
            hint="free a pinned degree or take a batch with more divisors",
        )
    result = estimate(
        setting.architecture, cluster, stack, plans, seq_length=setting.seq_length,
        site=setting.site, memory_limit_share=setting.memory_limit_share,
    )  # fmt: skip
    run = None
    if tokens is not None:
        step_tokens = global_batch_size * setting.seq_length
        if not tokens >= step_tokens:
            raise UserInputError(
                f"tokens={tokens:g} is less than one step of {global_batch_size} x "
                f"{setting.seq_length:,} tokens",
                hint=f"nearest valid: {step_tokens}",
            )
        state_bytes = setting.architecture.parameters * CHECKPOINT_BYTES_PER_PARAMETER
        run = training_run(
            step_time_s=result.step_time_s, global_batch_size=plans.global_batch_size,
            seq_length=setting.seq_length, gpus=plans.gpus,
            goodput=goodput(plans.gpus, state_bytes=state_bytes),
            price_usd_per_gpu_hour=price_usd_per_gpu_hour, deadline_s=np.inf, tokens=tokens,
        )  # fmt: skip
    word = verdict_codes(
        result.mem_peak_bytes, cluster.device.memory_bytes, stack, setting.memory_limit_share
    )
    ranked = RankedPlans(
        plans=plans,
        estimate=result,
        run=run,
        word=word,
        space=space,
        tallies=_tallies(gpus, plans.gpus, word),
    )
    order = np.lexsort((result.mem_peak_bytes, result.step_time_s, plans.gpus))
    ranked = ranked.take(order)
    if not keep_misfits:
        ranked = fitting(ranked)
        if not len(ranked):
            raise nothing_fits(setting, gpus, global_batch_size, result, space)
    return ranked.take(_pareto(ranked)) if pareto else ranked


def plan_space(setting: Setting, pins: dict[str, Any] | None = None) -> PlanSpace:
    """Return what `rank_plans` enumerates: the stack's usual plans, narrowed by pins."""
    stack = setting.stack
    usual = replace(
        default_space(setting.cluster, stack),
        sharding=tuple(dict.fromkeys((stack.default_sharding, "zero1"))),
    )
    return replace(usual, **(pins or {}))


def fitting(ranked: RankedPlans) -> RankedPlans:
    """Return the plans that fit, then those that are tight, of each GPU count."""
    return fits_first(ranked.take(ranked.word < 2))


def fits_first(ranked: RankedPlans) -> RankedPlans:
    """Return plans by GPU count, then verdict, otherwise in the order they had."""
    return ranked.take(np.lexsort((ranked.word, ranked.plans.gpus)))


def nothing_fits(
    setting: Setting,
    gpus: tuple[int, ...],
    global_batch_size: int,
    result: Estimate,
    space: PlanSpace,
) -> InfeasibleError:
    """Return the error for GPU counts on which no plan fits, with the nearest that would."""
    from vtrain.nearest_fit import describe_space, nearest_fit

    least = float(result.mem_peak_bytes.min())
    return InfeasibleError(
        f"none of {len(result.mem_peak_bytes):,} valid plans ({describe_space(space)}) fits: the "
        f"leanest needs {least / 2**30:.1f} GiB of {result.mem_limit_bytes / 2**30:.1f} GiB a GPU",
        hint=nearest_fit(setting, gpus, global_batch_size, space),
    )


def verdict_codes(
    mem_peak_bytes: npt.NDArray[np.float64],
    device_memory_bytes: float,
    stack: Stack,
    limit_share: float = SHARE_FITS,
) -> npt.NDArray[np.int64]:
    """Return the position in VERDICTS of each peak, [n]: `vtrain.memory.verdict` over arrays."""
    usable = memory_limit_bytes(device_memory_bytes, stack, 1.0)
    # Survival is log-normal in the reserved bytes, so a least probability is a largest peak.
    certain = usable / stack.reserved_over_allocated
    likely = certain * exp(-NormalDist().inv_cdf(TIGHT_PROBABILITY) * stack.memory_log_sd)
    bounds = np.array([
        min(limit_share * usable, likely), min(tight_share(limit_share) * usable, certain),
    ])  # fmt: skip
    return np.searchsorted(bounds, mem_peak_bytes, side="left")


def largest_micro_batches(ranked: RankedPlans) -> RankedPlans:
    """Keep, for each layout, the plan with the largest micro-batch that fits and the fastest.

    Of a layout of which none fits, the tight ones are kept.
    """
    plans = ranked.plans
    fits = np.flatnonzero(ranked.word < 2)
    layout = np.stack([
        plans.tp, plans.cp, plans.pp, plans.dp, plans.virtual_stages, plans.recompute,
        plans.sharding, plans.sequence_parallel,
    ])[:, fits]  # fmt: skip
    _, group = np.unique(layout, axis=1, return_inverse=True)
    group = group.ravel()
    keep = np.zeros(len(plans), dtype=bool)
    for values in (-plans.micro_batch_size[fits], ranked.estimate.step_time_s[fits]):
        order = np.lexsort((values, ranked.word[fits], group))
        firsts = order[np.unique(group[order], return_index=True)[1]]
        keep[fits[firsts]] = True
    return ranked.take(keep)


def _pareto(ranked: RankedPlans) -> npt.NDArray[np.int64]:
    """Return rows that no row of as good a verdict beats in both step time and GPU-seconds."""
    time = ranked.estimate.step_time_s
    work = time * ranked.plans.gpus
    kept = []
    for word in np.unique(ranked.word):
        rows = np.flatnonzero(ranked.word <= word)
        order = rows[np.lexsort((work[rows], time[rows]))]
        best = np.minimum.accumulate(work[order])
        unbeaten = order[np.concatenate([[True], work[order][1:] < best[:-1]])]
        kept.append(unbeaten[ranked.word[unbeaten] == word])
    return np.sort(np.concatenate(kept))


def _tallies(
    asked: tuple[int, ...], gpus: npt.NDArray[np.int64], word: npt.NDArray[np.int64]
) -> dict[int, tuple[int, int, int]]:
    """Return how many plans of each GPU count have each verdict."""
    found = {}
    for count in sorted(set(asked)):
        fits, tight, misfits = np.bincount(word[gpus == count], minlength=3).tolist()
        found[count] = (fits, tight, misfits)
    return found


def _take(record: Any, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Any:
    """Return a dataclass of arrays restricted to rows; scalars stay."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return type(record)(
        **{k: v[rows] if isinstance(v, np.ndarray) and v.ndim else v for k, v in values.items()}
    )
