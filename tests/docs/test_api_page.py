"""docs/api.md names a way from Python for every command, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import vtrain_search.api as search_api
from vtrain_search.cli import cli as optimizer

import vtrain.api as vt
from vtrain.cli import cli as simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
ROW = re.compile(r"^\| `(vtrain[^`]*)` \| (.+) \|$", re.MULTILINE)


def commands(command: click.Command, name: str) -> list[str]:
    """Return the names of a command and of all below it that do something."""
    if not isinstance(command, click.Group):
        return [name]
    context = click.Context(command, info_name=name)
    found = [name] if command.invoke_without_command else []
    for sub_name in command.list_commands(context):
        sub = command.get_command(context, sub_name)
        assert sub is not None
        found += commands(sub, f"{name} {sub_name}")
    return found


def table() -> dict[str, str]:
    """Return the table of the page: command to the words beside it."""
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def test_every_command_has_a_row() -> None:
    """The table lists exactly the commands there are."""
    there = [*commands(simulator, "vtrain"), *commands(optimizer, "vtrain-search")]
    assert sorted(table()) == sorted(there)


def test_every_function_named_exists() -> None:
    """What stands beside a command is exported by the API and explains itself."""
    for command, words in table().items():
        module = search_api if command.startswith("vtrain-search") else vt
        names = re.findall(r"`(?:vt\.)?([a-z_]+)[^`]*`", words)
        assert names, command
        for name in names:
            assert name in module.__all__, (command, name)
            assert getattr(module, name).__doc__, name


def test_nothing_exported_is_missing_from_the_page() -> None:
    """Every function of both APIs stands on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for module in (vt, search_api):
        for name in module.__all__:
            if name[0].islower():
                assert re.search(rf"\b{name}\b", text), name
