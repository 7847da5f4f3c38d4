"""How a command answers with --json."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

Printed = Callable[..., Any]


@pytest.fixture
def printed() -> Printed:
    """Return a function that runs a command and reads the JSON it prints."""

    def run(command: click.Command, *words: object) -> Any:
        result = CliRunner().invoke(command, [*map(str, words), "--json"], catch_exceptions=False)
        return json.loads(result.stdout)

    return run
