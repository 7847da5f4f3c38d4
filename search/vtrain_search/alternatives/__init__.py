"""Why not something else: a named alternative, searched for and set beside the answer."""

from __future__ import annotations

from vtrain_search.alternatives.compare import Comparison, compare
from vtrain_search.alternatives.usual import usual_alternatives
from vtrain_search.alternatives.words import (
    Alternative,
    distinct_alternatives,
    parse_alternative,
)

__all__ = [
    "Alternative", "Comparison", "compare", "distinct_alternatives", "parse_alternative",
    "usual_alternatives",
]  # fmt: skip
