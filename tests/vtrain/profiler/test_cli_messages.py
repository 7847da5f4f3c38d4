"""`vtrain profile` with wrong arguments, as the installed command answers."""

from __future__ import annotations

import sys

import pytest

from vtrain.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--out", "p"], "Missing option '--device'. Choose from: cuda, cpu"),
        (["run", "--device", "tpu", "--out", "p"], "'tpu' is not one of 'cuda', 'cpu'"),
        (["run", "--device", "cpu", "--out", "p", "--minutes", "0"], "0 minutes must be above 0"),
        (["run", "--device", "cpu", "--out", "p", "--minutes", "nan"], "nan minutes must be above"),
        (["verify", "--profile", "p", "--minutes", "-1"], "-1 minutes must be above 0"),
        (["verify", "--profile", "nowhere"], "`vtrain profile run --out DIR` makes one"),
        (["fit", "--profile", "nowhere"], "`vtrain profile run --out DIR` makes one"),
    ],
)
def test_a_wrong_argument_is_one_line_with_exit_code_two(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rule, value and choices stand on one line of stderr; stdout stays empty."""
    monkeypatch.setattr(sys, "argv", ["vtrain", "profile", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert words in err
    assert err.count("\n") == 1
    assert out == ""
