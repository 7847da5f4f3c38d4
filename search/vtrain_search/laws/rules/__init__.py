"""Allocation rules by name."""

from __future__ import annotations

from vtrain.errors import unknown_name

from . import deepseek2024, hoffmann2022_1, hoffmann2022_2, llama3_2024
from .base import AllocationRule, PowerOfCompute

_RULES: dict[str, AllocationRule] = {
    module.RULE.name: module.RULE
    for module in (hoffmann2022_1, hoffmann2022_2, deepseek2024, llama3_2024)
}


def rule_names() -> tuple[str, ...]:
    """Return the names of the shipped allocation rules."""
    return tuple(_RULES)


def load_rule(name: str) -> AllocationRule:
    """Return an allocation rule by name.

    Raises:
        UserInputError: no such rule.
    """
    if name not in _RULES:
        raise unknown_name("allocation rule", name, _RULES)
    return _RULES[name]


__all__ = ["AllocationRule", "PowerOfCompute", "load_rule", "rule_names"]
