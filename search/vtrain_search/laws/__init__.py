"""Loss laws: what a design's training loss will be, and how sure that is."""

from __future__ import annotations

from .base import Draws, LawFacts, LossLaw
from .compare import Comparison, compare_laws
from .designs import Designs
from .model import LossModel
from .ranges import WARN_BEYOND
from .registry import DEFAULT_LAW, law_names, load_law
from .regret import RegretTable, regret
from .rules import AllocationRule, load_rule, rule_names
from .terms import Terms, critical_batch_tokens

__all__ = [
    "DEFAULT_LAW",
    "WARN_BEYOND",
    "AllocationRule",
    "Comparison",
    "Designs",
    "Draws",
    "LawFacts",
    "LossLaw",
    "LossModel",
    "RegretTable",
    "Terms",
    "compare_laws",
    "critical_batch_tokens",
    "law_names",
    "load_law",
    "load_rule",
    "regret",
    "rule_names",
]
