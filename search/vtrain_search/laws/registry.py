"""Laws by name, or from a law file."""

from __future__ import annotations

from pathlib import Path

from vtrain.errors import unknown_name

from . import besiroglu2024, gemstones2025, hoffmann2022_3, kaplan2020
from .base import LossLaw
from .lawfile import read_law

DEFAULT_LAW = "besiroglu2024"
_LAWS: dict[str, LossLaw] = {
    module.LAW.name: module.LAW
    for module in (besiroglu2024, hoffmann2022_3, kaplan2020, gemstones2025)
}


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
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_law(path)
    raise unknown_name("loss law", name, _LAWS)
