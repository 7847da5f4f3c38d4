"""nanoGPT (`train.py`): `iter 1631: loss 4.0863, time 561.94ms, mfu 41.20%`.

Its utilisation divides by the dense peak of an A100 whatever the GPU.
"""

from __future__ import annotations

import re

from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import NUMBER, collect, number

LINE = re.compile(r"\biter \d+: loss ")
_STEP = re.compile(r"\biter (\d+): loss ")
_TIME = re.compile(rf"time ({NUMBER})ms\b")
_MFU = re.compile(rf"mfu ({NUMBER})%")


def read_nanogpt(text: str) -> tuple[list[Iteration], int]:
    """Read nanoGPT's iteration lines; a negative mfu means that none is known yet."""
    return collect(text, LINE, _line)


def _line(line: str) -> Iteration | None:
    step, time, share = _STEP.search(line), _TIME.search(line), _MFU.search(line)
    milliseconds = number(time[1]) if time else None
    if step is None or milliseconds is None or milliseconds <= 0.0:
        return None
    value = number(share[1]) if share else None
    return Iteration(
        number=int(step[1]),
        step_time_s=milliseconds * 1e-3,
        mfu=value / 100.0 if value is not None and value > 0.0 else None,
    )
