"""Ready-made budgets and budget files: cluster, price, cap and deadline in one TOML.

Scheme (documented in `budgets/README.md`): `description`, `amount` (required: a spelling of the
budget grammar that is neither range nor file), `cluster`, `price`, `max_gpus`, `deadline`.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vtrain.errors import UserInputError
from vtrain.prices import budgets_dir
from vtrain.units import parse_duration_s, parse_price_usd_per_gpu_hour
from vtrain_search.budget_amount import Budget, parse_amount

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

T = TypeVar("T")

FIELDS = ("description", "amount", "cluster", "price", "max_gpus", "deadline")


@cache
def ready_made_budgets() -> tuple[str, ...]:
    """Return the names of the budgets that ship with the project, sorted."""
    names = (item.name for item in budgets_dir().iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def is_budget_file(word: str) -> bool:
    """Whether a word names a ready-made budget or looks like a file."""
    if word in ready_made_budgets() or word.endswith(".toml"):
        return True
    # A rate such as 1e15flop/s is no path.
    return any(mark in word for mark in "/\\") and not word[0].isdigit()


def read_budget(name_or_path: str) -> Budget:
    """Read a ready-made budget or a file of the same scheme.

    Raises:
        UserInputError: for a missing file, an unknown or missing field, or a bad value.
    """
    item: Traversable = Path(name_or_path)
    if name_or_path in ready_made_budgets():
        item = budgets_dir() / f"{name_or_path}.toml"
    try:
        table: dict[str, Any] = tomllib.loads(item.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserInputError(
            f"cannot read budget file {name_or_path!r}: {error.strerror}",
            hint=f"ready-made: {', '.join(ready_made_budgets())}",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserInputError(f"budget file {name_or_path!r} is not TOML: {error}") from None
    except ValueError as error:
        # A NUL in the name: no file can have it.
        raise UserInputError(f"cannot read budget file {name_or_path!r}: {error}") from None
    return _budget(table, name_or_path)


def _budget(table: dict[str, Any], where: str) -> Budget:
    for key in table:
        if key not in FIELDS:
            near = get_close_matches(key, FIELDS, n=1, cutoff=0.0)[0]
            raise UserInputError(f"{where}: unknown field {key!r}", hint=f"nearest: {near}")
    if not isinstance(table.get("amount"), str):
        raise UserInputError(f"{where}: amount is missing", hint='e.g. amount = "1e6usd"')
    budget = parse_amount(table["amount"].strip())
    changes: dict[str, Any] = {"text": where, "source": where}
    if "cluster" in table:
        changes["cluster"] = _agree(budget.cluster, str(table["cluster"]), "cluster", where)
    if "max_gpus" in table:
        count = table["max_gpus"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UserInputError(f"{where}: max_gpus must be a whole number, got {count!r}")
        changes["max_gpus"] = _agree(budget.max_gpus, count, "max_gpus", where)
    if "deadline" in table:
        seconds = parse_duration_s(str(table["deadline"]))
        changes["deadline_s"] = _agree(budget.deadline_s, seconds, "deadline", where)
    if "price" in table:
        changes["price_usd_per_gpu_hour"] = parse_price_usd_per_gpu_hour(str(table["price"]))
    return replace(budget, **changes)


def _agree(from_amount: T | None, from_field: T, field: str, where: str) -> T:
    if from_amount is not None and from_amount != from_field:
        raise UserInputError(
            f"{where}: {field}={from_field!r} contradicts the {from_amount!r} of its amount",
            hint=f"leave {field} out",
        )
    return from_field
