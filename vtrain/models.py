"""Public models by name: architecture, sequence length, published size, sources.

One TOML a model in `data/models/`: `name`, `aliases`, `seq_length`, `[architecture]` (the fields
of `Architecture`), `[published]` (`parameters` and `parameters_non_embedding`: whole numbers where
an exact count was published, else the rounded text, such as "175.0B") and `[sources]` (`source`
and `date` of architecture, seq_length and published). A user's own file has the same scheme;
only `[architecture]` and `seq_length` are required there.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

_TOP = ("name", "aliases", "seq_length", "architecture", "published", "sources")


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A named architecture.

    Attributes:
        architecture: the shape.
        seq_length: tokens of one sequence in (the main part of) its pre-training.
        published: what its makers say of its size; `parameters` and
            `parameters_non_embedding`, whole where exact, text where rounded.
        sources: source and date of architecture, seq_length and published.
    """

    architecture: Architecture
    seq_length: int
    published: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.architecture.name


def model_names() -> list[str]:
    """Return the names of all shipped models, sorted; each also answers to its aliases."""
    return sorted(_shipped())


def load_model(name_or_path: str) -> Model:
    """Read a model.

    Args:
        name_or_path: a shipped name or alias, in any case, or a TOML file of the same scheme
            (files of other programs: `vtrain.formats`).

    Raises:
        UserInputError: unknown name (with the nearest ones), unreadable file, or a shape that
            cannot exist.
    """
    word = name_or_path.strip()
    if word.endswith(".toml") or "/" in word or "\\" in word:
        return _model(_read(Path(word)), word)
    key = word.lower()
    name = key if key in _shipped() else _aliases().get(key)
    if name is None:
        raise unknown_name("model", name_or_path, {*_shipped(), *_aliases()})
    return _model(_read(_shipped()[name]), f"{name}.toml")


@cache
def _shipped() -> dict[str, Traversable]:
    folder = files("vtrain") / "data" / "models"
    return {
        item.name.removesuffix(".toml"): item
        for item in folder.iterdir()
        if item.name.endswith(".toml")
    }


@cache
def _aliases() -> dict[str, str]:
    return {
        alias.lower(): name
        for name, item in _shipped().items()
        for alias in _read(item).get("aliases", [])
    }


def _read(item: Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(item.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(
            f"cannot read model file {str(item)!r}: {error.strerror}",
            hint="give a file, or one of `vtrain simulate --help`'s model names",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"model file {str(item)!r} is not TOML: {error}") from None


def _model(table: dict[str, Any], where: str) -> Model:
    _only(table, _TOP, where)
    shape = table.get("architecture")
    if not isinstance(shape, dict) or not isinstance(table.get("seq_length"), int):
        raise UserInputError(f"{where}: [architecture] and seq_length are required")
    known = [item.name for item in fields(Architecture) if item.name != "name"]
    _only(shape, known, where)
    try:
        architecture = Architecture(name=str(table.get("name", Path(where).stem)), **shape)
    except TypeError:
        needed = known[: known.index("vocab_size") + 1]
        missing = [name for name in needed if name not in shape]
        raise UserInputError(f"{where}: [architecture] lacks {', '.join(missing)}") from None
    return Model(
        architecture=architecture,
        seq_length=table["seq_length"],
        published=table.get("published", {}),
        sources=table.get("sources", {}),
    )


def _only(table: dict[str, Any], known: tuple[str, ...] | list[str], where: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise UserInputError(f"{where}: unknown field {key!r}", hint=f"nearest: {near}")
