"""What if: every question can be asked whatever the user has pinned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from vtrain_search.api import search

QUICK: Mapping[str, Any] = {"micro_batch_size": 2, "virtual_stages": 1, "recompute": "none"}


@pytest.mark.parametrize(
    "pins",
    [
        {"gpus": 24}, {"tp": 2}, {"pp": 1}, {"dp": 12}, {"global_batch_size": 288},
        {"layers": 40}, {"hidden_size": 4096}, {"tokens": 1e11}, {"tokens_per_parameter": 20},
        {"sharding": "zero1"}, {"cp": 1},
    ],
    ids=str,
)  # fmt: skip
def test_every_pin_leaves_the_questions_answerable(pins: dict[str, Any]) -> None:
    """The what-if table keeps what is pinned, and asks of no cap that would contradict it."""
    found = search("1e4usd", fix={**QUICK, **pins}, trials=16)
    table = found.what_if()
    assert len(table) >= 5
    for name, value in pins.items():
        if name in found.best:
            same = value if isinstance(value, str) else pytest.approx(value, rel=1e-3)
            assert found.best[name] == same
    assert "gpus" not in pins or not any(table["change"].str.startswith("at most"))


def test_a_range_of_gpus_is_never_contradicted() -> None:
    """With --range gpus=16..32 no other cap is asked about."""
    found = search("1e4usd", fix=QUICK, limit={"gpus": (16, 32)}, trials=16)
    assert not any(found.what_if()["change"].str.startswith("at most"))
