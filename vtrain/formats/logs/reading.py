"""Find out which trainer wrote a log, and read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from vtrain.errors import UserInputError
from vtrain.formats.logs import llmfoundry, megatron, nanogpt, nanotron, table, torchtitan
from vtrain.formats.logs.model import Iteration, Log
from vtrain.formats.logs.text import count_runs, lines_of

LARGEST_BYTES = 200_000_000

Reader = Callable[[str], tuple[list[Iteration], int]]

READERS: dict[str, Reader] = {
    "nemo": megatron.read_nemo,
    "megatron-deepspeed": megatron.read_megatron,
    "megatron-lm": megatron.read_megatron,
    "nanotron": nanotron.read_nanotron,
    "torchtitan": torchtitan.read_torchtitan,
    "llm-foundry": llmfoundry.read_llmfoundry,
    "nanogpt": nanogpt.read_nanogpt,
    "csv": table.read_table,
}


def read_log(path: str | Path, format: str | None = None) -> Log:
    """Read a log file.

    Args:
        path: the file.
        format: a key of READERS; found out where None.

    Raises:
        UserInputError: unreadable, of no known format, or without one whole iteration.
    """
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise UserInputError(
                f"{file} is larger than {LARGEST_BYTES // 10**6} MB",
                hint="keep its iteration lines: grep iteration FILE",
            )
        # Logs hold what programs print: a byte that is no UTF-8 is no reason to refuse the rest.
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserInputError(f"cannot read {file}: {error.strerror}") from None
    return read_log_text(text, str(file), format)


def read_log_text(text: str, label: str, format: str | None = None) -> Log:
    """Read the text of a log; arguments and errors as `read_log`."""
    name = format or detect(text)
    if name is None and (label.lower().endswith(".csv") or table.has_columns(text)):
        name = "csv"
    if name is None or name not in READERS:
        raise UserInputError(
            f"{label} is no log of a known trainer"
            if name is None
            else f"unknown log format {name!r}",
            hint=f"known: {', '.join(READERS)}",
        )
    if name == "csv":
        found, damaged = table.read_table(text, label)
    else:
        found, damaged = READERS[name](_marked(text))
    iterations, duplicates = count_runs(found)
    if not iterations:
        raise UserInputError(
            f"{label} ({name}) has no whole iteration line"
            + (f", {damaged} are cut off" if damaged else "")
        )
    return Log(
        format=name, iterations=tuple(iterations), damaged=damaged, duplicates=duplicates,
        source=label,
    )  # fmt: skip


CUT = "\N{HORIZONTAL ELLIPSIS}"
"""Stands where a log ends within a number, so that 12 of 123 is not taken for a number."""


def _marked(text: str) -> str:
    return text + CUT if text[-1:].isalnum() or text[-1:] == "." else text


def detect(text: str) -> str | None:
    """Return the format whose lines the text has, None where there are none."""
    if table.looks_like_table(text):
        return "csv"
    deepspeed = False
    for line in lines_of(text):
        if megatron.NEMO.search(line):
            return "nemo"
        if megatron.MEGATRON.search(line):
            deepspeed = bool(megatron.DEEPSPEED.search(line))
            return "megatron-deepspeed" if deepspeed else "megatron-lm"
        for pattern, name in _SIGNS:
            if pattern.search(line):
                return name
    return None


_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (nanotron.LINE, "nanotron"),
    (torchtitan.LINE, "torchtitan"),
    (llmfoundry.HEAD, "llm-foundry"),
    (nanogpt.LINE, "nanogpt"),
)
