"""llm-foundry: Composer's console logger and its SpeedMonitor.

A block a step: `[batch=12/4800]:` and indented lines `Train throughput/batches_per_sec: 0.3258`,
`Train throughput/device/mfu: 0.2677`, ... Rates are means over a sliding window, so they follow a
change slowly; the first blocks have none.
"""

from __future__ import annotations

import re

from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import NUMBER, lines_of, number

HEAD = re.compile(r"\[batch=(\d+)/\d+\]:?\s*$")
VALUE = re.compile(rf"^\s*Train\s+(?P<name>[\w./-]+):\s+(?P<value>{NUMBER})\s*$")


def read_llmfoundry(text: str) -> tuple[list[Iteration], int]:
    """Read Composer's blocks; a block without a rate (before the window fills) is no iteration."""
    out: list[Iteration] = []
    damaged = 0
    for step, values, torn in _blocks(text):
        rate = values.get("throughput/batches_per_sec")
        if rate is None:
            damaged += torn
            continue
        if rate <= 0.0:
            damaged += 1
            continue
        samples = values.get("throughput/samples_per_sec")
        flops = values.get("throughput/device/flops_per_sec")
        held = values.get("memory/peak_allocated_mem")
        out.append(
            Iteration(
                number=step, step_time_s=1.0 / rate,
                global_batch_size=None if samples is None else round(samples / rate),
                samples_per_s=samples, tokens_per_s=values.get("throughput/tokens_per_sec"),
                tokens_per_s_per_gpu=values.get("throughput/device/tokens_per_sec"),
                tflops_per_gpu=None if flops is None else flops / 1e12,
                mfu=values.get("throughput/device/mfu"),
                # Composer states gigabytes of 10^9 bytes.
                memory_bytes=None if held is None else held * 1e9,
            )
        )  # fmt: skip
    return out, damaged


def _blocks(text: str) -> list[tuple[int, dict[str, float], bool]]:
    """Return step, values and whether a rate line was torn, for each block."""
    blocks: list[tuple[int, dict[str, float], bool]] = []
    for line in lines_of(text):
        head = HEAD.search(line)
        if head:
            blocks.append((int(head[1]), {}, False))
            continue
        if not blocks:
            continue
        match = VALUE.match(line)
        step, values, _ = blocks[-1]
        value = number(match["value"]) if match else None
        if match and value is not None:
            values[match["name"]] = value
        elif "throughput/" in line:
            blocks[-1] = (step, values, True)
    return blocks
