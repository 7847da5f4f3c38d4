"""Alternatives as people name them: `tp=4`, `70B`, `256 GPUs`, `A100`, `llama3-70b`."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError
from vtrain.units import NUMBER_PATTERN, parse_number
from vtrain_search.pins import KEYS, Pins, parse_pins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster

_SIZE = re.compile(rf"({NUMBER_PATTERN}\s*[MBT])(?:\s*(?:parameters|params|model))?", re.IGNORECASE)
_GPUS = re.compile(rf"({NUMBER_PATTERN}k?)\s*gpus?", re.IGNORECASE)
_SPOKEN = re.compile(r"(?P<key>[A-Za-z_\-]+)\s*(?P<value>[\d.,e]+)")
EXAMPLES = "tp=4, 70B, 256 GPUs, A100, llama3-70b, recompute=full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """What a user would have chosen instead.

    Attributes:
        text: as the user named it.
        pins: dimensions it fixes.
        parameters: model size it asks for; None leaves it free.
        cluster: hardware it asks for; None keeps the answer's.
        architecture: model it asks for; None leaves it free.
    """

    text: str
    pins: Pins = field(default_factory=Pins)
    parameters: float | None = None
    cluster: Cluster | None = None
    architecture: Architecture | None = None


def parse_alternative(text: str) -> Alternative:
    """Read one alternative; several parts, separated by commas or "on", hold together.

    Args:
        text: `key=value` as in `--fix`, a size, a GPU count, a cluster or a model.

    Raises:
        UserInputError: for a part that is none of these.
    """
    words: list[str] = []
    found: dict[str, object] = {}
    for part in _parts(text):
        if match := _GPUS.fullmatch(part):
            words.append(f"gpus={match[1].replace(',', '')}")
        elif match := _SIZE.fullmatch(part):
            found["parameters"] = parse_number(match[1].upper(), what="model size")
        elif "=" in part:
            words.append(part)
        elif (match := _SPOKEN.fullmatch(part)) and _is_key(match["key"]):
            words.append(f"{match['key']}={match['value']}")
        else:
            kind, value = _named(part)
            found[kind] = value
    if not words and not found:
        raise UserInputError("an alternative must name something", hint=f"for example {EXAMPLES}")
    return Alternative(text=text.strip(), pins=parse_pins(words, ()), **found)  # type: ignore[arg-type]


def distinct_alternatives(texts: Iterable[str]) -> list[Alternative]:
    """Read several alternatives; of those that mean the same only the first is kept.

    Raises:
        UserInputError: for one that cannot be read.
    """
    found: list[Alternative] = []
    for text in texts:
        wanted = parse_alternative(text)
        if all(replace(wanted, text=other.text) != other for other in found):
            found.append(wanted)
    return found


def _parts(text: str) -> list[str]:
    # A comma between digits belongs to a number (1,024 GPUs) or to a list of values (tp=2,4).
    pieces = re.split(r",(?!\d)|\s+on\s+|\s+and\s+", text)
    return [piece.strip() for piece in pieces if piece.strip()]


def _is_key(word: str) -> bool:
    try:
        parse_pins([f"{word}=1"], ())
    except UserInputError:
        return False
    return True


def _named(part: str) -> tuple[str, object]:
    """Return a cluster or a model by its name or file."""
    from vtrain.formats import load_architecture
    from vtrain.models import model_names
    from vtrain.presets import cluster_names, load_cluster

    with contextlib.suppress(UserInputError):
        return "cluster", load_cluster(part)
    try:
        return "architecture", load_architecture(part)[0]
    except UserInputError as error:
        if "/" in part or "." in part.rsplit("-", 1)[-1]:
            raise
        near = get_close_matches(part.lower(), [*cluster_names(), *model_names(), *KEYS], n=3)
        raise UserInputError(
            f"alternative {part!r} is no key=value, size, GPU count, cluster or model",
            hint=f"nearest: {', '.join(near)}" if near else f"for example {EXAMPLES}",
        ) from error


def merged(own: Pins, other: Pins) -> Pins:
    """Return the user's pins with those of an alternative in their place."""
    exact = {k: v for k, v in own.exact.items() if not other.names(k)} | dict(other.exact)
    ranges = {k: v for k, v in own.ranges.items() if not other.names(k)} | dict(other.ranges)
    for one, same in (("ffn_hidden_size", "ffn_ratio"), ("ffn_ratio", "ffn_hidden_size")):
        if other.names(one):
            exact.pop(same, None)
            ranges.pop(same, None)
    return Pins(exact=exact, ranges=ranges)
