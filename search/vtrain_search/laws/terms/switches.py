"""Which terms act beside the law."""

from __future__ import annotations

from dataclasses import dataclass, fields

TERM_NAMES = ("shape", "head", "batch", "repetition")


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """One switch a term; a term that the law already contains is off whatever is said here."""

    shape: bool = True
    """Width over depth away from its optimum costs effective parameters."""
    head: bool = True
    """Small attention heads cost effective parameters."""
    batch: bool = True
    """Batches away from the critical one cost effective tokens."""
    repetition: bool = True
    """Repeated tokens are worth less than fresh ones; needs a number of unique tokens."""

    def enabled(self, contained: frozenset[str]) -> frozenset[str]:
        """Return the names that are on, less those that the law contains."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name)) - contained

    @classmethod
    def none(cls) -> Terms:
        """Return all switches off: the bare published law."""
        return cls(**{f.name: False for f in fields(cls)})
