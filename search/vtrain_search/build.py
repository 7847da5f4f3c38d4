"""From the words of the command line to a frozen problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtrain.errors import InfeasibleError, UserInputError
from vtrain_search.problem import (
    DEFAULT_DEADLINE_S,
    MIN_TOKENS_PER_PARAMETER,
    Case,
    Offer,
    Problem,
)

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain_search.budget import Budget
    from vtrain_search.laws import LossLaw
    from vtrain_search.pins import Pins

DEFAULT_CLUSTER = "h100-sxm-80g"
DEFAULT_STACK = "megatron-core-2025"
DEFAULT_SEQ_LENGTH = 4096
DEFAULT_VOCAB_SIZE = 128_256


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked for, still in words; every field is plain data for `run.json`.

    Attributes:
        budgets: words of `--budget`.
        clusters: words of `--cluster`; empty takes the default.
        prices: words of `--price`, one a cluster, or NAME=PRICE.
        deadline: words of `--deadline`; empty takes the default.
        max_gpus: GPUs at most.
        stack: training software.
        law: loss law.
        unique_tokens: distinct training tokens there are.
        seq_length: tokens of a sequence; None takes the fixed model's own, or the default.
        vocab_size: vocabulary of the search's own block.
        arch: a fixed model, by name or file.
        site: file of site factors.
        fixed: words of `--fix`.
        ranged: words of `--range`.
        target_losses: losses to reach, each a row; budgets are then limits.
        objective: "cost" or "time" with target losses; empty takes cost.
        tokens_per_parameter_min: train each parameter on at least so many tokens.
        memory_limit: words of `--memory-limit`; empty takes the default.
    """

    budgets: tuple[str, ...]
    clusters: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    deadline: str = ""
    max_gpus: int | None = None
    stack: str = DEFAULT_STACK
    law: str = ""
    unique_tokens: str = ""
    seq_length: int | None = None
    vocab_size: int = DEFAULT_VOCAB_SIZE
    arch: str = ""
    site: str = ""
    fixed: tuple[str, ...] = ()
    ranged: tuple[str, ...] = ()
    target_losses: tuple[float, ...] = ()
    objective: str = ""
    tokens_per_parameter_min: float | None = None
    memory_limit: str = ""


def build_problem(request: Request) -> Problem:
    """Read every file and number of a request and check that they go together.

    Raises:
        UserInputError: with the rule, the value and the nearest valid choice.
    """
    from vtrain.cli_options import read_site
    from vtrain.memory_limit import parse_memory_limit
    from vtrain.presets import load_stack
    from vtrain.units import parse_count, parse_duration_s
    from vtrain_search.budget import parse_budgets
    from vtrain_search.grid import gpu_counts, plan_space
    from vtrain_search.laws import DEFAULT_LAW, LossModel, load_law
    from vtrain_search.pins import parse_pins
    from vtrain_search.space import outer_space

    budgets: list[Budget | None] = [*parse_budgets(request.budgets)] if request.budgets else [None]
    if not request.target_losses and (not request.budgets or request.objective):
        raise UserInputError(
            "no budget given" if not request.budgets else "--objective needs --target-loss",
            hint="for example --budget 1e6usd, or --target-loss 1.95",
        )
    pins = parse_pins(request.fixed, request.ranged)
    deadline_s = parse_duration_s(request.deadline) if request.deadline else None
    tokens, ratio = pins.one("tokens"), pins.one("tokens_per_parameter")
    clusters = [_offer_cluster(name) for name in request.clusters]
    prices = _prices(request.prices, [c.name for _, c in clusters])
    cases = tuple(
        _aimed(
            _case(b, clusters, prices, deadline_s, request.max_gpus,
                  None if tokens is None else float(tokens),
                  None if ratio is None else float(ratio)),
            loss, request.objective,
        )
        for b in budgets for loss in request.target_losses or (None,)
    )  # fmt: skip
    fixed, own_length, longest = None, None, None
    if request.arch:
        from vtrain.formats.reading import load_model_file

        model = load_model_file(request.arch)
        fixed, own_length, longest = model.architecture, model.seq_length, model.longest_sequence
        assert fixed is not None
        _check_heads(fixed, pins)
        _check_positions(fixed, request.seq_length)
    stack = load_stack(request.stack)
    for case in cases:
        for offer in case.offers:
            # Contradictions between pins and hardware are the user's to mend before any search.
            gpu_counts(offer.cluster, max_gpus=case.gpu_limit(offer), pins=pins)
            plan_space(offer.cluster, stack, pins)
    unique = parse_count(request.unique_tokens) if request.unique_tokens else None
    law = load_law(request.law or DEFAULT_LAW)
    for loss in request.target_losses:
        _check_target(law, loss)
    return Problem(
        cases=cases,
        stack=stack,
        stack_name=request.stack,
        seq_length=request.seq_length or own_length or DEFAULT_SEQ_LENGTH,
        space=outer_space(pins, vocab_size=request.vocab_size, fixed=fixed),
        pins=pins,
        loss=LossModel(law=law, unique_tokens=unique),
        min_tokens_per_parameter=_least_ratio(request.tokens_per_parameter_min),
        site=read_site(request.site or None),
        longest_sequence=longest,
        memory_limit_share=parse_memory_limit(request.memory_limit),
    )


def _least_ratio(asked: float | None) -> float:
    """Return the fewest tokens a parameter: the sanity floor, or what the user asks above it."""
    if asked is None:
        return MIN_TOKENS_PER_PARAMETER
    if not MIN_TOKENS_PER_PARAMETER <= asked < float("inf"):
        raise UserInputError(
            f"--tokens-per-parameter-min {asked:g} must be at least {MIN_TOKENS_PER_PARAMETER:g}",
            hint="for example 100 to train a small model for long",
        )
    return asked


def _aimed(case: Case, loss: float | None, objective: str) -> Case:
    """Return the case that reaches a loss instead of spending its budget."""
    if loss is None:
        return case
    if not 0.0 < loss < float("inf"):
        raise UserInputError(f"--target-loss {loss} must be above zero", hint="for example 1.95")
    if case.tokens is not None or case.tokens_per_parameter is not None:
        raise UserInputError("fixed tokens and --target-loss pin the same thing")
    limited = case.usd or case.gpu_hours or case.flop
    label = f"loss {loss:g}" + (f" in {case.label}" if limited else "")
    return replace(case, label=label, target_loss=loss, objective=objective or "cost")


def _check_target(law: LossLaw, loss: float) -> None:
    """Refuse a loss that a law denies to every model, however large and long trained."""
    import numpy as np

    from vtrain_search.laws import Designs

    sizes = (1e20, 1e22, 1e6, 1e3, 128.0, 1e9)
    parameters, tokens, hidden, layers, head, batch = (np.asarray(size) for size in sizes)
    endless = Designs(
        parameters_non_embedding=parameters, tokens=tokens, hidden_size=hidden, num_layers=layers,
        head_dim=head, global_batch_tokens=batch,
    )  # fmt: skip
    lowest = float(law.loss(endless))
    if loss <= lowest:
        raise InfeasibleError(
            f"no model reaches loss {loss:g}: under law {law.name} {lowest:.3f} is irreducible",
            hint=f"nearest valid: --target-loss {lowest + 0.05:.2f}",
        )


def _check_positions(architecture: Architecture, seq_length: int | None) -> None:
    """Refuse sequences that a learned position table has no rows for."""
    if architecture.position == "learned" and (seq_length or 0) > architecture.max_positions:
        raise UserInputError(
            f"--seq-length {seq_length} exceeds the {architecture.max_positions} learned "
            "positions of the model",
            hint=f"nearest valid: {architecture.max_positions}",
        )


def _check_heads(architecture: Architecture, pins: Pins) -> None:
    """Refuse a pinned tensor-parallel degree that divides no heads of a fixed model."""
    tp = pins.one("tp")
    for field in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(architecture, field)
        if isinstance(tp, int) and heads % tp:
            near = max(d for d in range(1, min(tp, heads) + 1) if heads % d == 0)
            raise UserInputError(
                f"tp={tp} must divide {field}={heads} of {architecture.name or 'the model'}",
                hint=f"nearest valid: tp={near}",
            )


def _offer_cluster(name: str) -> tuple[str, Cluster]:
    """Return a cluster under the name that a row should carry: its own, or the user's path."""
    from vtrain.presets import load_cluster

    cluster = load_cluster(name)
    is_file = name.endswith(".toml") or "/" in name
    return (str(Path(name)) if is_file else cluster.name), cluster


def _prices(words: tuple[str, ...], cluster_names: list[str]) -> dict[str, float]:
    """Return the stated prices by cluster name; "" is the price of every cluster."""
    from vtrain.presets import load_cluster
    from vtrain.units import parse_price_usd_per_gpu_hour

    prices: dict[str, float] = {}
    plain = []
    for word in words:
        name, sign, text = word.partition("=")
        if sign:
            prices[load_cluster(name).name] = parse_price_usd_per_gpu_hour(text)
        else:
            plain.append(parse_price_usd_per_gpu_hour(word))
    if len(plain) == 1:
        prices[""] = plain[0]
    elif len(plain) > 1:
        if len(plain) != len(cluster_names):
            raise UserInputError(
                f"{len(plain)} prices for {len(cluster_names)} clusters",
                hint="one --price a --cluster in the same order, or --price NAME=PRICE",
            )
        prices.update(zip(cluster_names, plain, strict=True))
    return prices


def _case(
    budget: Budget | None,
    clusters: list[tuple[str, Cluster]],
    prices: dict[str, float],
    deadline_s: float | None,
    max_gpus: int | None,
    tokens: float | None,
    tokens_per_parameter: float | None,
) -> Case:
    """Join a budget with the options; what a budget settles itself may not be contradicted."""
    if budget is None:
        # Only a target loss limits the run.
        offers = clusters or [_offer_cluster(DEFAULT_CLUSTER)]
        return Case(
            label="", offers=tuple(_offer(name, c, prices, None) for name, c in offers),
            deadline_s=deadline_s or DEFAULT_DEADLINE_S, max_gpus=max_gpus or 1 << 30,
        )  # fmt: skip
    if budget.cluster is not None:
        own = _offer_cluster(budget.cluster)
        if clusters and any(c.name != own[1].name for _, c in clusters):
            raise UserInputError(
                f"budget {budget.text!r} is for {own[1].name}, but --cluster says "
                f"{', '.join(name for name, _ in clusters)}",
                hint="drop --cluster",
            )
        clusters = [own]
    if budget.deadline_s is not None and deadline_s not in (None, budget.deadline_s):
        raise UserInputError(
            f"budget {budget.text!r} ends after {budget.deadline_s / 86400.0:g} days, but "
            f"--deadline says {(deadline_s or 0.0) / 86400.0:g} days",
            hint="drop --deadline",
        )
    clusters = clusters or [_offer_cluster(DEFAULT_CLUSTER)]
    if budget.kind == "gpu_hours" and len(clusters) > 1:
        raise UserInputError(
            f"budget {budget.text!r} counts GPU-hours, which differ between "
            f"{', '.join(name for name, _ in clusters)}",
            hint="give one --cluster, or a budget in dollars",
        )
    limits = [n for n in (budget.max_gpus, max_gpus) if n is not None]
    return Case(
        label=budget.label,
        offers=tuple(_offer(name, cluster, prices, budget) for name, cluster in clusters),
        usd=budget.usd,
        gpu_hours=budget.gpu_hours,
        flop=budget.flop,
        deadline_s=budget.deadline_s or deadline_s or DEFAULT_DEADLINE_S,
        max_gpus=min(limits, default=1 << 30),
        tokens=tokens,
        tokens_per_parameter=tokens_per_parameter,
    )


def _offer(name: str, cluster: Cluster, prices: dict[str, float], budget: Budget | None) -> Offer:
    from vtrain.prices import default_price

    stated = prices.get(cluster.name, prices.get(""))
    if stated is not None:
        price, source = stated, "stated with --price"
    elif budget is not None and budget.price_usd_per_gpu_hour is not None:
        price, source = budget.price_usd_per_gpu_hour, f"from {budget.source}"
    else:
        entry = default_price(cluster.name)
        price, source = entry.usd_per_gpu_hour, entry.describe()
    return Offer(name=name, cluster=cluster, price_usd_per_gpu_hour=price, price_source=source)
