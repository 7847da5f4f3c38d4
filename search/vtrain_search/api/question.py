"""From the arguments of a Python call to the words of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vtrain_search.build import Request

Words = str | float | Sequence[str]
Limits = Mapping[str, tuple[float, float]]


def make_request(
    budget: str | Sequence[str] = (),
    *,
    cluster: str | Sequence[str] = (),
    price: Words = (),
    deadline: str = "",
    max_gpus: int | None = None,
    target_loss: float | Sequence[float] = (),
    objective: str = "",
    model: str | Path = "",
    fix: Mapping[str, Any] | None = None,
    limit: Limits | None = None,
    seq_length: int | None = None,
    vocab_size: int | None = None,
    unique_tokens: float | str = "",
    tokens_per_parameter_min: float | None = None,
    stack: str | Path = "",
    site: str | Path = "",
    law: str | Path = "",
    memory_limit: str | float | None = None,
) -> Request:
    """Return what was stated as a request; the rest keeps its default.

    Args:
        budget: as `vtrain_search.api.search`; the other arguments too.
        cluster: names or files.
        price: dollars a GPU-hour, one a cluster.
        deadline: wall time at most.
        max_gpus: GPUs at most.
        target_loss: losses to reach.
        objective: "cost" or "time".
        model: a fixed model.
        fix: pinned dimensions.
        limit: ranges.
        seq_length: tokens of a sequence.
        vocab_size: vocabulary before padding.
        unique_tokens: distinct training tokens there are.
        tokens_per_parameter_min: tokens a parameter at least.
        stack: training software.
        site: file of site factors.
        law: loss law.
        memory_limit: share of what the context leaves that may be allocated.
    """
    from vtrain_search.build import Request

    losses = (target_loss,) if isinstance(target_loss, int | float) else tuple(target_loss)
    words: dict[str, Any] = {
        "budgets": _words(budget), "clusters": _words(cluster), "prices": _words(price),
        "deadline": deadline, "max_gpus": max_gpus, "target_losses": losses,
        "objective": objective, "arch": str(model), "fixed": _pins(fix), "ranged": _ranges(limit),
        "seq_length": seq_length, "vocab_size": vocab_size, "unique_tokens": str(unique_tokens),
        "tokens_per_parameter_min": tokens_per_parameter_min, "stack": str(stack),
        "site": str(site), "law": str(law),
        "memory_limit": "" if memory_limit is None else str(memory_limit),
    }  # fmt: skip
    return Request(**{k: v for k, v in words.items() if v not in (None, "")})


def _words(value: Words) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, str | int | float) else tuple(map(str, value))


def _pins(fix: Mapping[str, Any] | None) -> tuple[str, ...]:
    found = []
    for key, value in (fix or {}).items():
        several = value if isinstance(value, list | tuple) else (value,)
        found.append(f"{key}={','.join(map(str, several))}")
    return tuple(found)


def _ranges(limit: Limits | None) -> tuple[str, ...]:
    return tuple(f"{key}={low}..{high}" for key, (low, high) in (limit or {}).items())
