"""Errors a user can act on; the class decides the exit code of every command."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_SHOWN = 12


class VtrainError(Exception):
    """Base of every error vtrain raises on purpose; prints as one line."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the rule that was broken apart from the way out.

        Args:
            message: the rule and the offending value, one line.
            hint: the nearest valid choice, one line.
        """
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return message and hint on one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UserInputError(VtrainError):
    """The request cannot be read or contradicts itself (exit code 2)."""

    exit_code = 2


class InfeasibleError(VtrainError):
    """The request is well-formed but no plan satisfies it (exit code 3)."""

    exit_code = 3


class PartialResultError(VtrainError):
    """Work stopped early with a usable partial result (exit code 4)."""

    exit_code = 4


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserInputError:
    """Return the error for a name that is not in a catalogue, with the nearest ones.

    Args:
        kind: what is looked up, for example "cluster".
        name: what the user wrote.
        known: every valid name.
    """
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    if near:
        return UserInputError(f"unknown {kind} {name!r}", hint=f"nearest: {', '.join(near)}")
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN])
    return UserInputError(f"unknown {kind} {name!r}", hint=f"known: {shown}{more}")
