"""Verification from Python is `vtrain-search verify`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from vtrain_search.api import references, verify
from vtrain_search.verify.cli import verify_command
from vtrain_search.verify.problems import REFERENCES

from vtrain.errors import UserInputError

CLOCKS = ("grid_s", "wall_s")


def without_clocks(value: Any) -> Any:
    """Return a document without what a clock decides."""
    if isinstance(value, dict):
        return {k: without_clocks(v) for k, v in value.items() if k not in CLOCKS}
    return [without_clocks(v) for v in value] if isinstance(value, list) else value


def test_a_gap_is_the_commands() -> None:
    """One question gives the rows of the command, clocks apart, and a table of them."""
    words = "--budget 1e3usd --cluster a100 --max-gpus 8 --seeds 0 --share 0.02 --points 1e4"
    options = [*words.split(), "--workers", "1", "--json"]
    printed = CliRunner().invoke(verify_command, options, catch_exceptions=False).stdout
    found = verify(
        budget="1e3usd", cluster="a100", max_gpus=8, seeds=[0], share=0.02, points=1e4
    )  # fmt: skip
    theirs = without_clocks(json.loads(printed))
    assert without_clocks(json.loads(json.dumps(found.document()))) == theirs
    assert found.table["search"].tolist() == ["bilevel"]
    assert found.table["worst"].iloc[0] < 0.05
    assert "bilevel" in found._repr_html_()


def test_references_are_listed() -> None:
    """Every reference problem has a row."""
    assert references().index.tolist() == [item.name for item in REFERENCES]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "a reference problem or a budget"),
        ({"reference": "h100-2m"}, "h100-1m"),
        ({"budget": "1e4usd", "spaces": ["flat"]}, "one of bilevel"),
        ({"budget": "1e4usd", "share": 2.0}, "between 0 and 1"),
    ],
)
def test_mistakes_get_one_line(words: dict[str, Any], message: str) -> None:
    """Unknown problems and forms are refused with the choices."""
    with pytest.raises(UserInputError, match=message):
        verify(**words)
