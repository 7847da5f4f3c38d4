"""nanotron (`src/nanotron/trainer.py`).

`10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G |
elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K |
global_batch_size: 64 | lm_loss: 2.38 | ...`; values are shortened to three digits, so times are
good to half a percent. Newer releases write `time_per_iteration_ms`.
"""

from __future__ import annotations

import re

from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import abbreviated, collect, fields_of

LINE = re.compile(r"\biteration:\s*\d+\s*/\s*\d+\s*\|\s*consumed_tokens:")
_STEP = re.compile(r"\biteration:\s*(\d+)\s*/")


def read_nanotron(text: str) -> tuple[list[Iteration], int]:
    """Read nanotron's iteration lines."""
    return collect(text, _STEP, _line)


def _line(line: str) -> Iteration | None:
    step, values = _STEP.search(line), fields_of(line)
    milliseconds = abbreviated(
        values.get("elapsed_time_per_iteration_ms") or values.get("time_per_iteration_ms")
    )
    # The loss comes behind the times; without it the line was cut.
    if step is None or not milliseconds or "lm_loss" not in values:
        return None
    batch = abbreviated(values.get("global_batch_size"))
    return Iteration(
        number=int(step[1]), step_time_s=milliseconds * 1e-3,
        global_batch_size=None if batch is None else round(batch),
        tokens_per_s=abbreviated(values.get("tokens_per_sec")),
        tokens_per_s_per_gpu=abbreviated(values.get("tokens_per_sec_per_gpu")),
        tflops_per_gpu=abbreviated(values.get("model_tflops_per_gpu")),
        memory_bytes=abbreviated(values.get("cuda_max_memory_reserved")),
    )  # fmt: skip
