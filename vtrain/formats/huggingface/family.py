"""One model family of the transformers library: how its config maps to an architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.architecture import divisors
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.formats.fields import Fields

    Notes = list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One value of `model_type`.

    Attributes:
        model_type: the value.
        model_class: class of the model with a language-modelling head.
        read: fields to architecture; appends to the notes what it assumed.
        write: architecture to the family's own fields. What the family cannot carry is lost: a
            caller reads the result back and compares.
        length_field: the family's name for the longest sequence.
    """

    model_type: str
    model_class: str
    read: Callable[[Fields, Notes], Architecture]
    write: Callable[[Architecture], dict[str, Any]]
    length_field: str = "max_position_embeddings"


def head_size(fields: Fields, hidden_size: int, heads: int) -> int:
    """Return hidden_size / heads, or refuse.

    Raises:
        UserInputError: when the heads do not divide the width.
    """
    if hidden_size % heads:
        near = min(divisors(hidden_size), key=lambda d: (abs(d - heads), d))
        raise UserInputError(
            f"num_attention_heads={heads} must divide hidden_size={hidden_size}",
            hint=f"nearest valid: num_attention_heads={near}",
        )
    return hidden_size // heads


def flag_or_note(fields: Fields, notes: Notes, key: str, default: bool) -> bool:
    """Take a truth value; when absent take the library's default and say so."""
    if not fields.has(key):
        notes.append(f"{key} is not in the file: the library's default, {str(default).lower()}")
    return fields.flag(key, default=default)
