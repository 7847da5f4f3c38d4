"""Dated price lists: what a GPU-hour costs, from whom, since when, by which source.

The lists are `budgets/prices/*.toml`; a wheel carries them as `vtrain/budgets/`. One list holds
the entries of one kind of seller at one date. Scheme in `budgets/README.md`.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TIERS = ("specialty", "hyperscaler", "reserved", "spot")
_TEXT_FIELDS = ("provider", "commitment", "region", "date", "source", "gpu", "instance", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """One entry of a price list.

    Attributes:
        usd_per_gpu_hour: price of one GPU for one hour.
        clusters: names of the clusters it stands for.
        tier: one of TIERS.
        provider: who sells.
        commitment: on demand, reserved, preemptible.
        region: where.
        date: when it was valid, as exactly as the source says.
        source: where it was published.
        gpu: the card as the seller names it.
        instance: the machine as the seller names it.
        default: the one that is assumed for its clusters.
        note: what a reader should know before quoting it.
    """

    usd_per_gpu_hour: float
    clusters: tuple[str, ...]
    tier: str
    provider: str
    commitment: str
    region: str
    date: str
    source: str
    gpu: str = ""
    instance: str = ""
    default: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse prices without value, source or date.

        Raises:
            UserInputError: naming the rule.
        """
        if not (0.0 < self.usd_per_gpu_hour < math.inf):
            raise UserInputError(f"a price must be above zero, got {self.usd_per_gpu_hour!r}")
        if self.tier not in TIERS:
            raise UserInputError(f"tier={self.tier!r} is not known", hint=f"one of {TIERS}")
        for field in ("provider", "commitment", "region", "date", "source"):
            if not getattr(self, field):
                raise UserInputError(f"the price of {self.clusters} lacks its {field}")

    def describe(self) -> str:
        """Return the price with its provenance, for the assumptions of an answer."""
        return (
            f"${self.usd_per_gpu_hour:,.2f} a GPU-hour "
            f"({self.provider}, {self.commitment}, {self.date})"
        )


def budgets_dir() -> Traversable:
    """Return the folder of price lists and ready-made budgets, in a wheel or a checkout."""
    packaged = files("vtrain") / "budgets"
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[1] / "budgets"


@cache
def all_prices() -> tuple[Price, ...]:
    """Return every entry of every shipped list, cheapest first within a list.

    Raises:
        UserInputError: for a list that breaks the scheme, naming the file.
    """
    folder = budgets_dir() / "prices"
    lists = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")),
                   key=lambda item: item.name)  # fmt: skip
    return tuple(price for item in lists for price in _read_list(item))


def _read_list(item: Traversable) -> list[Price]:
    table: dict[str, Any] = tomllib.loads(item.read_text(encoding="utf-8"))
    prices = []
    for entry in table["price"]:
        merged = {**table.get("common", {}), **entry}
        unknown = set(merged) - {*_TEXT_FIELDS, "usd_per_gpu_hour", "clusters", "tier", "default"}
        if unknown:
            raise UserInputError(f"{item.name}: unknown field {sorted(unknown)[0]!r}")
        try:
            prices.append(
                Price(
                    usd_per_gpu_hour=float(merged["usd_per_gpu_hour"]),
                    clusters=tuple(merged["clusters"]),
                    tier=merged["tier"],
                    default=bool(merged.get("default", False)),
                    **{f: str(merged.get(f, "")) for f in _TEXT_FIELDS},
                )
            )
        except KeyError as error:
            raise UserInputError(f"{item.name}: an entry lacks {error.args[0]!r}") from None
    return sorted(prices, key=lambda price: price.usd_per_gpu_hour)


def prices_for(cluster_name: str) -> list[Price]:
    """Return every entry for one cluster, the default first, then by tier and price."""
    name = cluster_name.lower()
    found = [price for price in all_prices() if name in price.clusters]
    return sorted(found, key=lambda p: (not p.default, TIERS.index(p.tier), p.usd_per_gpu_hour))


def default_price(cluster_name: str) -> Price:
    """Return the price assumed for a cluster: specialty clouds, on demand.

    Args:
        cluster_name: the full name of a shipped cluster (`Cluster.name`).

    Raises:
        UserInputError: when no list has one; the way out is to state a price.
    """
    for price in prices_for(cluster_name):
        if price.default:
            return price
    raise UserInputError(
        f"no price list covers cluster {cluster_name!r}", hint="give one, e.g. --price 2.10"
    )


def hyperscaler_price(cluster_name: str) -> Price | None:
    """Return the cheapest on-demand list price of a hyperscaler, or None when none is known."""
    listed = [price for price in prices_for(cluster_name) if price.tier == "hyperscaler"]
    return min(listed, key=lambda p: p.usd_per_gpu_hour, default=None)
