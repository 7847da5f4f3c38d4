"""The steady part of a log: what is left out, and why, is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.formats.logs.model import Iteration, Log

    Array = NDArray[np.float64]

WARM_UP_SHARE = 0.2
WARM_UP_MOST = 10
"""Lines left out after each start of the job: compilation, caches, autotuning."""

OUTLIER_SD = 4.0
OUTLIER_LEAST = 0.05
"""A step is left out beyond four robust standard deviations of the logarithm, and 5 %:
checkpoints and evaluations are slow, a clock that jumps is fast."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steady:
    """Steps of one log that speak for the machine.

    Attributes:
        lines: the iterations used.
        step_times_s: their times, [n].
        warm_up: lines left out after a start.
        outliers: lines left out for their time.
        other_batch: lines left out because their batch is another one (ramp-up).
        skipped: lines whose step the optimizer skipped.
    """

    lines: tuple[Iteration, ...]
    step_times_s: Array
    warm_up: int
    outliers: int
    other_batch: int
    skipped: int

    @property
    def median_s(self) -> float:
        """Median step time."""
        return float(np.median(self.step_times_s))


def step_time_s(line: Iteration, *, tokens: float, samples: float, gpus: int) -> float | None:
    """Return the seconds of a step: as printed, else from the rate.

    Args:
        line: what was printed.
        tokens: of a step.
        samples: sequences of a step.
        gpus: that share it.
    """
    if line.step_time_s is not None:
        return line.step_time_s
    if line.tokens_per_s:
        return tokens / line.tokens_per_s
    if line.tokens_per_s_per_gpu:
        return tokens / (line.tokens_per_s_per_gpu * gpus)
    return samples / line.samples_per_s if line.samples_per_s else None


def steady_steps(log: Log, *, global_batch_size: int, seq_length: int, gpus: int) -> Steady:
    """Leave out warm-up, skipped steps, other batches and outliers.

    Args:
        log: the iterations.
        global_batch_size: sequences of the steps that count.
        seq_length: tokens of a sequence.
        gpus: that share a step.

    Raises:
        UserInputError: no line has that batch, or none has a time.
    """
    tokens, samples = float(global_batch_size * seq_length), float(global_batch_size)
    warm = _warm_up(log)
    used: list[Iteration] = []
    times: list[float] = []
    other = skipped = 0
    for position, line in enumerate(log.iterations):
        if position in warm:
            continue
        if line.skipped:
            skipped += 1
        elif line.global_batch_size not in (None, global_batch_size):
            other += 1
        else:
            seconds = step_time_s(line, tokens=tokens, samples=samples, gpus=gpus)
            if seconds is not None and seconds > 0.0:
                used.append(line)
                times.append(seconds)
    if not times:
        raise _nothing_left(log, global_batch_size)
    measured = np.array(times)
    good = _no_outliers(measured)
    return Steady(
        lines=tuple(line for line, keep in zip(used, good, strict=True) if keep),
        step_times_s=measured[good], warm_up=len(warm), outliers=int((~good).sum()),
        other_batch=other, skipped=skipped,
    )  # fmt: skip


def _nothing_left(log: Log, global_batch_size: int) -> UserInputError:
    batches = sorted({x.global_batch_size for x in log.iterations if x.global_batch_size})
    if batches and global_batch_size not in batches:
        return UserInputError(
            f"wrong batch: the steps of {log.source} have {', '.join(map(str, batches[:4]))} "
            f"sequences, the plan has global_batch_size={global_batch_size}",
            hint=f"nearest valid: --global-batch {batches[-1]}",
        )
    return UserInputError(f"{log.source} has no step with a time after warm-up")


def _warm_up(log: Log) -> set[int]:
    """Return the positions of the first lines after each start."""
    out: set[int] = set()
    for run in range(log.runs):
        places = [at for at, line in enumerate(log.iterations) if line.run == run]
        count = min(WARM_UP_MOST, int(np.ceil(WARM_UP_SHARE * len(places))))
        out |= set(places[:count])
    # A log of a single line, or of restarts only, still has its last line.
    return out if len(out) < len(log.iterations) else out - {len(log.iterations) - 1}


def _no_outliers(seconds: Array) -> NDArray[np.bool_]:
    logs = np.log(seconds)
    off = np.abs(logs - np.median(logs))
    allowed = max(OUTLIER_SD * 1.4826 * float(np.median(off)), OUTLIER_LEAST)
    out: NDArray[np.bool_] = off <= allowed
    return out
