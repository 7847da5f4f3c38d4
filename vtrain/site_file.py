"""Site files: what `vtrain calibrate` writes and every command takes with --site."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from vtrain.errors import UserInputError
from vtrain.site import SiteFactors

SCHEMA_VERSION = 1
_HINT = "`vtrain calibrate --log FILE --out FILE` writes one"


def site_table(factors: SiteFactors, **more: Any) -> dict[str, Any]:
    """Return the content of a site file.

    Args:
        factors: the multipliers.
        more: what else to say: uncertainty, cluster, logs, date, command.
    """
    values = {item.name: getattr(factors, item.name) for item in fields(SiteFactors)}
    return {"schema_version": SCHEMA_VERSION, **more, "factors": values}


def load_site(path: str | Path) -> SiteFactors:
    """Read the factors of a site file.

    Raises:
        UserInputError: unreadable, damaged, of another schema, or with factors no site has.
    """
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(f"cannot read {file}: {error.strerror}", hint=_HINT) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"{file} is no site file: {error}", hint=_HINT) from None
    if table.get("schema_version") != SCHEMA_VERSION:
        raise UserInputError(
            f"{file} has schema_version {table.get('schema_version')!r}, a site file of this "
            f"vtrain has {SCHEMA_VERSION}",
            hint=_HINT,
        )
    factors = table.get("factors")
    known = [item.name for item in fields(SiteFactors)]
    if not isinstance(factors, dict) or not set(factors) <= set(known):
        raise UserInputError(
            f"{file} must have a table [factors] with any of {', '.join(known)}", hint=_HINT
        )
    for name, value in factors.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserInputError(f"{file}: factor {name} must be a number, got {value!r}")
    return SiteFactors(**{name: float(value) for name, value in factors.items()})
