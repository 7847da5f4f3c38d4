"""Options that several commands share."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from vtrain.errors import UserInputError
from vtrain.plans_cli import plans_command
from vtrain.simulate_cli import simulate_command
from vtrain.trace_cli import trace_command

PLAN = "--model llama3-8b --gpus 8 --tp 2 --global-batch 8"


@pytest.mark.parametrize("command", [simulate_command, plans_command, trace_command])
@pytest.mark.parametrize("length", ["0", "-5"])
def test_a_sequence_needs_a_token(command, length):
    """A sequence length below 1 is refused, never replaced by the model's own."""
    words = [*PLAN.split(), "--seq", length]
    if command is trace_command:
        words += ["--out", "never.json"]
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, UserInputError)
    assert f"at least 1, got {length}" in str(error)


@pytest.mark.parametrize("option", ["--tp", "--recompute", "--sharding", "--tokens", "--price"])
def test_an_empty_option_is_no_option_left_out(option):
    """`--tp ""` (an unset variable in a script) is refused."""
    words = ["--model", "llama3-8b", "--gpus", "8", "--global-batch", "8", option, ""]
    assert isinstance(CliRunner().invoke(plans_command, words).exception, UserInputError)
