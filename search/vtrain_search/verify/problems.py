"""The fixed reference problems that the regret table is made of."""

from __future__ import annotations

from dataclasses import dataclass

from vtrain.errors import unknown_name
from vtrain_search.build import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """One reference problem.

    Attributes:
        name: how it is called on the command line.
        what: what it stands for, one line.
        request: the question.
    """

    name: str
    what: str
    request: Request


def _reference(name: str, what: str, budget: str, **changes: object) -> Reference:
    return Reference(
        name=name,
        what=what,
        request=Request(budgets=(budget,), **changes),  # type: ignore[arg-type]
    )


REFERENCES: tuple[Reference, ...] = (
    _reference("a100-30k", "small budget", "3e4usd", clusters=("a100-sxm-80g",)),
    _reference("a100-300k", "middle budget", "3e5usd", clusters=("a100-sxm-80g",)),
    _reference("a100-3m", "large budget", "3e6usd", clusters=("a100-sxm-80g",)),
    _reference("h100-30k", "small budget", "3e4usd", clusters=("h100-sxm-80g",)),
    _reference("h100-1m", "the main job", "1e6usd", clusters=("h100-sxm-80g",)),
    _reference("h100-30m", "very large budget", "3e7usd", clusters=("h100-sxm-80g",)),
    _reference("b200-300k", "middle budget", "3e5usd", clusters=("b200-sxm-180g",)),
    _reference("b200-10m", "large budget", "1e7usd", clusters=("b200-sxm-180g",)),
    _reference("gpuh-2m", "a GPU-hour budget", "2Mgpuh", clusters=("a100-sxm-80g",)),
    _reference(
        "fixed-70b", "one fixed architecture", "1e6usd", clusters=("h100-sxm-80g",),
        arch="llama2-70b",
    ),
    _reference(
        "capped", "the GPU cap binds", "3e6usd", clusters=("h100-sxm-80g",), max_gpus=512,
    ),
    _reference("v100-16g", "memory-bound", "3e5usd", clusters=("v100-sxm-16g",),
               stack="megatron-deepspeed-2022"),
)  # fmt: skip


def reference(name: str) -> Reference:
    """Return a reference problem by name.

    Raises:
        UserInputError: for an unknown name.
    """
    for item in REFERENCES:
        if item.name == name:
            return item
    raise unknown_name("reference problem", name, [item.name for item in REFERENCES])
