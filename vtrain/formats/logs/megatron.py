"""Megatron-LM, Megatron-DeepSpeed and NeMo.

Megatron-LM prints (`megatron/training/training.py`, `training_log`)
`[date] iteration 5/ 100 | consumed samples: 640 | elapsed time per iteration (ms): 5444.9 |
throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate: ... | global batch size: 128 | ... |`.
Megatron-DeepSpeed states milliseconds or, in BigScience's fork, seconds, and ends with
`samples per second: 19.463 | TFLOPs: 149.02 |`. NeMo 2 prints
`Training epoch 0, iteration 19/99 | lr: ... | global_batch_size: 256 | global_step: 19 |
reduced_train_loss: ... | train_step_timing in s: 8.4 | consumed_samples: 5120`, NeMo 1 a progress
bar with the same names and `=`.
"""

from __future__ import annotations

import re

from vtrain.formats.logs.model import Iteration
from vtrain.formats.logs.text import NUMBER, collect, fields_of, number, whole

MEGATRON = re.compile(
    r"\biteration\s+\d+\s*/\s*(?:\d+|infinity)\s*\|.*(?:consumed samples|elapsed)"
)
_MEGATRON_HEAD = re.compile(r"\biteration\s+(\d+)\s*/")
_ELAPSED = re.compile(rf"elapsed time per iteration \((ms|s)\): ({NUMBER})")
DEEPSPEED = re.compile(r"\bsamples per second:|\bTFLOPs:|consumed tokens:")
NEMO = re.compile(r"train_step_timing in s\s*[:=]")
_NEMO_LINE = re.compile(r"reduced_train_loss")
_NEMO_STEP = re.compile(rf"global_step\s*[:=]\s*({NUMBER})")


def read_megatron(text: str) -> tuple[list[Iteration], int]:
    """Read Megatron-LM and Megatron-DeepSpeed lines."""
    return collect(text, _MEGATRON_HEAD, _megatron_line)


def _megatron_line(line: str) -> Iteration | None:
    head = _MEGATRON_HEAD.search(line)
    elapsed = _ELAPSED.search(line)
    # A line is whole when it reached the bar behind its last field.
    if head is None or elapsed is None or not line.endswith("|"):
        return None
    value = number(elapsed[2])
    if value is None or value <= 0.0:
        return None
    values = fields_of(line)
    tflops = values.get("throughput per gpu (tflop/s/gpu)") or values.get("tflops")
    skipped = whole(values.get("number of skipped iterations")) or 0
    return Iteration(
        number=int(head[1]), step_time_s=value * (1e-3 if elapsed[1] == "ms" else 1.0),
        global_batch_size=whole(values.get("global batch size")),
        samples_per_s=number(values.get("samples per second")),
        consumed_samples=whole(values.get("consumed samples")),
        # Some forks print "now/average".
        tflops_per_gpu=number(tflops.split("/")[0]) if tflops else None,
        skipped=skipped > 0,
    )  # fmt: skip


def read_nemo(text: str) -> tuple[list[Iteration], int]:
    """Read NeMo lines, of either generation; lines without a timing are no iterations."""
    return collect(text, _NEMO_LINE, _nemo_line)


def _nemo_line(line: str) -> Iteration | None:
    step = _NEMO_STEP.search(line)
    timing = _nemo_value(line, "train_step_timing in s")
    if step is None or timing is None or timing <= 0.0:
        return None
    position = whole(step[1])
    batch, consumed = (
        _nemo_value(line, name) for name in ("global_batch_size", "consumed_samples")
    )
    return None if position is None else Iteration(
        number=position, step_time_s=timing,
        global_batch_size=None if batch is None else int(batch),
        consumed_samples=None if consumed is None else int(consumed),
        tflops_per_gpu=_nemo_value(line, "TFLOPS_per_GPU"),
    )  # fmt: skip


def _nemo_value(line: str, name: str) -> float | None:
    match = re.search(rf"{re.escape(name)}\s*[:=]\s*({NUMBER})(?=[\s,|\]]|$)", line)
    return number(match[1]) if match else None
