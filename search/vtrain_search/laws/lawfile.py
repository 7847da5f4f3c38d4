"""Law files: a team's own law as `vtrain-search fit-law` writes it and `--law FILE` reads it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vtrain.errors import UserInputError

from .additive import DRAW_NAMES, FORMULA, AdditiveLaw
from .base import Draws, LawFacts

SCHEMA_VERSION = 1
_HINT = "write one with `vtrain-search fit-law pilots.csv`"


def dump_law(law: AdditiveLaw, extra: Mapping[str, Any] | None = None) -> str:
    """Return a law as the text of a law file, draws included.

    Args:
        law: the law; its draws are written with seven decimals, enough for coefficients that
            trade off against each other.
        extra: further tables to keep in the file, such as how the fit was made.
    """
    import tomli_w

    facts = law.facts
    draws = law.draws()
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": facts.name,
        "formula": facts.formula,
        "counts": facts.counts,
        "vocab_size": facts.vocab_size,
        "unit": facts.unit,
        "data_set": facts.data_set,
        "parameters_range": list(facts.parameters_range),
        "tokens_range": list(facts.tokens_range),
        "compute_max_flop": facts.compute_max_flop,
        "citation": facts.citation,
        "verification": facts.verification,
        "caveat": facts.caveat,
        "coefficients": dict(facts.coefficients),
        **(extra or {}),
        "draws": {
            "provenance": draws.provenance,
            **{name: [round(float(v), 7) for v in draws.columns[name]] for name in DRAW_NAMES},
        },
    }
    return tomli_w.dumps(document)


def read_law(path: Path) -> AdditiveLaw:
    """Return the law in a law file.

    Raises:
        UserInputError: the file cannot be read, is not a law file, or contradicts itself.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(f"cannot read law file {path}: {error.strerror}", hint=_HINT) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"law file {path} is not TOML: {error}", hint=_HINT) from None
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UserInputError(
            f"law file {path}: schema_version must be {SCHEMA_VERSION}, got {version!r}",
            hint=_HINT,
        )
    try:
        facts = LawFacts(
            name=str(document["name"]),
            formula=str(document["formula"]),
            coefficients={k: float(document["coefficients"][k]) for k in ("E", "A", "B")}
            | {k: float(document["coefficients"][k]) for k in ("alpha", "beta")},
            counts=str(document["counts"]),
            vocab_size=int(document["vocab_size"]),
            unit=str(document["unit"]),
            data_set=str(document["data_set"]),
            parameters_range=_pair(document["parameters_range"]),
            tokens_range=_pair(document["tokens_range"]),
            compute_max_flop=float(document["compute_max_flop"]),
            citation=str(document["citation"]),
            verification=str(document["verification"]),
            caveat=str(document.get("caveat", "")),
        )
        table = document["draws"]
        columns = {name: np.asarray(table[name], dtype=np.float64) for name in DRAW_NAMES}
        provenance = str(table["provenance"])
    except KeyError as error:
        raise UserInputError(f"law file {path} lacks {error}", hint=_HINT) from None
    except (TypeError, ValueError) as error:
        raise UserInputError(f"law file {path}: {error}", hint=_HINT) from None
    if facts.formula != FORMULA:
        raise UserInputError(f"law file {path}: formula must be {FORMULA!r}, got {facts.formula!r}")
    if any(facts.coefficients[key] <= 0 for key in facts.coefficients):
        raise UserInputError(f"law file {path}: every coefficient must be positive")
    sizes = {values.shape for values in columns.values()}
    finite = all(bool(np.all(np.isfinite(values))) for values in columns.values())
    if len(sizes) != 1 or not finite or columns["ln_E"].ndim != 1 or columns["ln_E"].size == 0:
        raise UserInputError(f"law file {path}: draws must be finite columns of one length")
    draws = Draws(columns=columns, provenance=provenance)
    return AdditiveLaw(facts, draws)


def _pair(values: list[float]) -> tuple[float, float]:
    low, high = (float(value) for value in values)  # another length raises ValueError
    return low, high
