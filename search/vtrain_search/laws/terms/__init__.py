"""What a plain N-D law does not know: shape, head size, batch, repeated data.

Each term acts on an effective size or an effective token count, never on the irreducible loss, so
that a penalty is the same fraction of compute at every scale.
"""

from __future__ import annotations

from .batch import BatchTerm, batch_ratio, critical_batch_tokens
from .head import HeadTerm
from .repetition import RepetitionTerm
from .shape import ShapeTerm
from .switches import TERM_NAMES, Terms

__all__ = [
    "TERM_NAMES",
    "BatchTerm",
    "HeadTerm",
    "RepetitionTerm",
    "ShapeTerm",
    "Terms",
    "batch_ratio",
    "critical_batch_tokens",
]
