"""One plan simulated, or all plans ranked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.api.arguments import positive, some_of, whole, wholes
from vtrain.api.result import Simulation
from vtrain.api.setting import DEFAULT_CLUSTER, Model, make_setting, reference
from vtrain.cli_options import DEFAULT_STACK, build_plan
from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE, SHARDING

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.cli_options import Setting
    from vtrain.design import Design
    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

_CHOICES = ("tp", "cp", "pp", "virtual_stages", "micro_batch_size", "recompute", "sharding")


def simulate(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int,
    global_batch_size: int,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    virtual_stages: int = 1,
    micro_batch_size: int = 1,
    recompute: str | None = None,
    sharding: str | None = None,
    sequence_parallel: bool | None = None,
    schedule: str = "1f1b",
    stack: str | Path | Stack = DEFAULT_STACK,
    seq_length: int | None = None,
    site: str | SiteFactors | None = None,
    memory_limit: str | float | None = None,
) -> Simulation:
    """Predict step time, utilisation and memory of one plan, as `vtrain simulate` does.

    Args:
        model: a shipped name, any file `vtrain import` reads, or an Architecture.
        cluster: a name, a TOML file, or a Cluster.
        gpus: GPUs; data parallelism takes what tp x cp x pp leaves.
        global_batch_size: sequences of one step.
        tp: tensor-parallel degree.
        pp: pipeline stages.
        cp: context-parallel degree.
        virtual_stages: chunks of layers a pipeline rank holds.
        micro_batch_size: sequences of one micro-batch.
        recompute: none, selective, full; the stack's habit when None.
        sharding: none, zero1, zero2, zero3; the stack's habit when None.
        sequence_parallel: split activations over tp; the stack's habit when None.
        schedule: 1f1b, gpipe, zb-h1.
        stack: training software, by name, file or value.
        seq_length: tokens of a sequence; the model's own when None, else 4096.
        site: factors of `calibrate`, or their file.
        memory_limit: largest share of what the context leaves that may be allocated, such as
            0.85 or "85%"; 0.90 when None.

    Raises:
        UserInputError: with the broken rule and the nearest valid choice.
    """
    setting = make_setting(model, cluster, stack, seq_length, site, memory_limit)
    sizes = {
        "gpus": gpus, "tp": tp, "pp": pp, "cp": cp, "virtual_stages": virtual_stages,
        "micro_batch_size": micro_batch_size, "global_batch_size": global_batch_size,
    }  # fmt: skip
    plan = build_plan(
        setting, **{name: whole(name, size) for name, size in sizes.items()},
        recompute=recompute, sharding=sharding, sequence_parallel=sequence_parallel,
        schedule=schedule,
    )  # fmt: skip
    return _simulation(setting, plan, cluster, stack)


def simulate_design(
    design: Design | str | Path,
    *,
    site: str | SiteFactors | None = None,
    memory_limit: str | float | None = None,
) -> Simulation:
    """Predict a whole design: a `Design`, a best.toml, or a row of `vtrain-search --json`.

    Args:
        design: the design, or its file.
        site: as `simulate`.
        memory_limit: as `simulate`; when None, the one the file's design was searched with.

    Raises:
        UserInputError: when the file holds no design or its framework would refuse the plan.
    """
    from vtrain.design import Design as DesignClass
    from vtrain.design_file import read_design_row
    from vtrain.validity import Context, check_plan

    if isinstance(design, DesignClass):
        found = design
    else:
        row = read_design_row(str(design))
        found = DesignClass.from_row(row)
        if memory_limit is None:
            memory_limit = row.get("mem_limit_share")
    setting = make_setting(
        found.architecture, found.cluster, found.stack, found.seq_length, site, memory_limit
    )
    context = Context(
        architecture=setting.architecture, cluster=setting.cluster, stack=setting.stack,
        seq_length=setting.seq_length,
    )  # fmt: skip
    check_plan(context, found.plan)
    return _simulation(setting, found.plan, found.cluster, found.stack)


def plans(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int | Sequence[int],
    global_batch_size: int,
    tokens: float | None = None,
    price_usd_per_gpu_hour: float | None = None,
    misfits: bool = False,
    pareto: bool = False,
    max_micro_batch: bool = False,
    stack: str | Path | Stack = DEFAULT_STACK,
    seq_length: int | None = None,
    site: str | SiteFactors | None = None,
    memory_limit: str | float | None = None,
    **choices: Any,
) -> DataFrame:
    """Return the valid plans that `vtrain plans` ranks, one row each.

    By GPU count, then verdict (fits, tight, does not fit), then step time. Shardings other than
    the stack's own and zero1, and context parallelism, are enumerated where `choices` name them.

    Args:
        model: as `simulate`.
        cluster: as `simulate`.
        gpus: one GPU count or several.
        global_batch_size: sequences of one step.
        tokens: of a whole run; adds days and dollars.
        price_usd_per_gpu_hour: the cluster's default price when None.
        misfits: keep plans that do not fit in memory.
        pareto: keep only plans that no other beats in both step time and GPU-time.
        max_micro_batch: keep for each layout the largest micro-batch that fits and the fastest.
        stack: as `simulate`.
        seq_length: as `simulate`.
        site: as `simulate`.
        memory_limit: as `simulate`.
        choices: value, or values, of tp, cp, pp, virtual_stages, micro_batch_size, recompute or
            sharding to keep to.

    Raises:
        UserInputError: an unknown choice, or GPUs that are no whole nodes.
        InfeasibleError: no plan is valid, or none fits.
    """
    import pandas as pd

    from vtrain.prices import default_price
    from vtrain.ranking import fits_first, largest_micro_batches, rank_plans

    setting = make_setting(model, cluster, stack, seq_length, site, memory_limit)
    tokens = positive("tokens", tokens)
    price = positive("price_usd_per_gpu_hour", price_usd_per_gpu_hour)
    if price is None:
        # Without tokens nothing is priced, and a user's own cluster is on no list.
        price = 1.0 if tokens is None else default_price(setting.cluster.name).usd_per_gpu_hour
    ranked = rank_plans(
        setting, gpus=wholes("gpus", gpus),
        global_batch_size=whole("global_batch_size", global_batch_size), tokens=tokens,
        price_usd_per_gpu_hour=price, pareto=pareto, keep_misfits=misfits, pins=_pins(choices),
    )  # fmt: skip
    if misfits:
        ranked = fits_first(ranked)
    if max_micro_batch:
        ranked = largest_micro_batches(ranked)
    frame = pd.DataFrame(ranked.rows())
    return frame.drop(columns=["days", "gpu_hours", "cost_usd"]) if tokens is None else frame


def explain_plans(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int | Sequence[int],
    global_batch_size: int,
    stack: str | Path | Stack = DEFAULT_STACK,
    seq_length: int | None = None,
    site: str | SiteFactors | None = None,
    memory_limit: str | float | None = None,
    **choices: Any,
) -> str:
    """Return why near misses do not fit, and what would make them, as `vtrain plans --explain`.

    Args:
        model: as `plans`; the other arguments too.
        cluster: as `plans`.
        gpus: as `plans`.
        global_batch_size: as `plans`.
        stack: as `plans`.
        seq_length: as `plans`.
        site: as `plans`.
        memory_limit: as `plans`.
        choices: as `plans`.

    Raises:
        UserInputError: an unknown choice, or GPUs that are no whole nodes.
        InfeasibleError: no plan is valid.
    """
    from vtrain.explain import explain_misfits
    from vtrain.ranking import rank_plans

    setting = make_setting(model, cluster, stack, seq_length, site, memory_limit)
    # Nothing here depends on the price of a GPU-hour.
    everything = rank_plans(
        setting, gpus=wholes("gpus", gpus),
        global_batch_size=whole("global_batch_size", global_batch_size), tokens=None,
        price_usd_per_gpu_hour=1.0, pareto=False, keep_misfits=True, pins=_pins(choices),
    )  # fmt: skip
    return explain_misfits(setting, everything)


def _pins(choices: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    for name in choices:
        if name not in _CHOICES:
            raise UserInputError(f"plans() takes no {name!r}", hint=f"one of {', '.join(_CHOICES)}")
    known = {"recompute": RECOMPUTE, "sharding": SHARDING}
    return {
        name: some_of(name, value, known[name]) if name in known else wholes(name, value)
        for name, value in choices.items()
    }


def _simulation(
    setting: Setting, plan: Plan, cluster: str | Path | Cluster, stack: str | Path | Stack
) -> Simulation:
    from vtrain.simulate_cli import simulation_document

    return Simulation(
        setting=setting, plan=plan, document=simulation_document(setting, plan),
        cluster=reference(cluster), stack=reference(stack),
    )  # fmt: skip
