"""torchtitan (`torchtitan/components/metrics.py`).

`[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384  memory:
49.66GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%`, coloured or not; older releases wrote
`wps` for `tps`. Tokens a second are those of one GPU (of one of the ranks that share a sequence).
"""

from __future__ import annotations

import re

from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import NUMBER, collect, number
from vtrain.units import GIB

LINE = re.compile(r"\bstep:\s*\d+.*\bloss:")
_STEP = re.compile(r"\bstep:\s*(\d+)")
_MFU = re.compile(rf"\bmfu:\s*({NUMBER})%")
_RATE = re.compile(rf"\b(?:tps|wps):\s*({NUMBER})(?=\s|$)")
_TFLOPS = re.compile(rf"\btflops:\s*({NUMBER})(?=\s|$)")
_MEMORY = re.compile(rf"\bmemory:\s*({NUMBER})GiB")


def read_torchtitan(text: str) -> tuple[list[Iteration], int]:
    """Read torchtitan's metric lines."""
    return collect(text, LINE, _line)


def _line(line: str) -> Iteration | None:
    step, rate, mfu = _STEP.search(line), _RATE.search(line), _MFU.search(line)
    # The rate is cut short when nothing follows it: newer lines end with the mfu.
    if step is None or rate is None or mfu is None:
        return None
    tokens = number(rate[1])
    if tokens is None or tokens <= 0.0:
        return None
    tflops, memory, share = _TFLOPS.search(line), _MEMORY.search(line), number(mfu[1])
    held = number(memory[1]) if memory else None
    return Iteration(
        number=int(step[1]), tokens_per_s_per_gpu=tokens,
        tflops_per_gpu=number(tflops[1]) if tflops else None,
        mfu=None if share is None else share / 100.0,
        memory_bytes=None if held is None else held * GIB,
    )  # fmt: skip
