"""Laws by name, or from a law file."""

from __future__ import annotations

from pathlib import Path

from vtrain.errors import unknown_name

from . import besiroglu2024
from .base import LossLaw

DEFAULT_LAW = "besiroglu2024"
_LAWS: dict[str, LossLaw] = {law.name: law for law in (besiroglu2024.LAW,)}


def law_names() -> tuple[str, ...]:
    """Return the names of the shipped loss laws, the default first."""
    return tuple(_LAWS)


def load_law(name_or_path: str | Path = DEFAULT_LAW) -> LossLaw:
    """Return a shipped law by name, or the law in a file written by `vtrain-search fit-law`.

    Raises:
        UserInputError: neither a known name nor a readable law file.
    """
    name = str(name_or_path)
    if name in _LAWS:
        return _LAWS[name]
    raise unknown_name("loss law", name, _LAWS)
