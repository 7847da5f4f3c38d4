"""Price lists: sources, defaults, lookups."""

from __future__ import annotations

import re
import tomllib

import pytest

from vtrain.errors import UserInputError
from vtrain.presets import cluster_names
from vtrain.prices import (
    TIERS,
    Price,
    all_prices,
    budgets_dir,
    default_price,
    hyperscaler_price,
    prices_for,
)


@pytest.mark.parametrize("price", all_prices(), ids=lambda p: f"{p.clusters[0]}-{p.provider}")
def test_every_price_has_a_source_and_a_date(price: Price) -> None:
    """No price without seller, commitment, region, date and source, and none out of range."""
    assert 0.1 < price.usd_per_gpu_hour < 20
    assert re.match(r"20\d\d", price.date)
    assert len(price.source) > 20
    assert price.tier in TIERS
    assert set(price.clusters) <= set(cluster_names())


@pytest.mark.parametrize("name", cluster_names())
def test_every_cluster_has_exactly_one_default(name: str) -> None:
    """Each shipped cluster has one default price, on demand, first of its list."""
    defaults = [price for price in prices_for(name) if price.default]
    assert len(defaults) == 1
    assert default_price(name) == defaults[0] == prices_for(name)[0]
    # EFA is the network of one cloud; everything else is sold by specialty clouds too.
    assert defaults[0].tier == ("hyperscaler" if name.endswith("-efa") else "specialty")


@pytest.mark.parametrize(
    ("name", "price"), [("h100-sxm-80g", 3.00), ("a100-sxm-80g", 1.30), ("h200-sxm-141g", 4.00)]
)
def test_defaults_are_specialty_midpoints(name: str, price: float) -> None:
    """Where a survey gives a range (2026-05), its midpoint is the default."""
    default = default_price(name)
    low, high = re.findall(r"\d\.\d\d", default.provider)
    assert default.usd_per_gpu_hour == price == (float(low) + float(high)) / 2
    assert default.date == "2026-05"


def test_hyperscalers_are_dearer() -> None:
    """The list price shown beside the default is higher, where one is known."""
    assert hyperscaler_price("h100-sxm-80g").usd_per_gpu_hour == 6.88
    for name in cluster_names():
        listed = hyperscaler_price(name)
        if listed is not None and default_price(name).tier != "hyperscaler":
            assert listed.usd_per_gpu_hour > default_price(name).usd_per_gpu_hour
    assert hyperscaler_price("gb300") is None


def test_no_price_no_guess() -> None:
    """A cluster no list covers is refused with the way out."""
    with pytest.raises(UserInputError, match=r"give one, e\.g\. --price"):
        default_price("my-own-cluster")


def test_description_carries_the_provenance() -> None:
    """The assumption line names price, seller, commitment and date."""
    text = default_price("h200-sxm-141g").describe()
    assert text.startswith("$4.00 a GPU-hour")
    assert "on demand" in text
    assert "2026-05" in text


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("usd_per_gpu_hour", 0.0, "above zero"),
        ("usd_per_gpu_hour", float("nan"), "above zero"),
        ("tier", "cheap", "is not known"),
        ("source", "", "lacks its source"),
        ("date", "", "lacks its date"),
    ],
)
def test_prices_without_provenance_are_refused(field: str, value: object, rule: str) -> None:
    """A price without value, source or date cannot be built."""
    good = {
        "usd_per_gpu_hour": 1.0, "clusters": ("x",), "tier": "spot", "provider": "p",
        "commitment": "c", "region": "r", "date": "2026", "source": "s",
    }  # fmt: skip
    with pytest.raises(UserInputError, match=rule):
        Price(**{**good, field: value})


def test_ready_made_files_are_plain_toml() -> None:
    """The folder found at run time holds price lists and budgets, all valid TOML."""
    names = [item.name for item in budgets_dir().iterdir() if item.name.endswith(".toml")]
    assert {"startup-100k.toml", "lab-1m.toml", "frontier-10m.toml"} <= set(names)
    for item in (budgets_dir() / "prices").iterdir():
        assert tomllib.loads(item.read_text(encoding="utf-8"))["price"]
