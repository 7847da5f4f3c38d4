"""What a training log says, whichever trainer wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Iteration:
    """One line of a log; None where the format does not say.

    Attributes:
        number: of the step, as printed.
        step_time_s: seconds of the step.
        global_batch_size: sequences of the step.
        tokens_per_s_per_gpu: tokens a second and GPU.
        tokens_per_s: tokens a second of all GPUs.
        samples_per_s: sequences a second of all GPUs.
        consumed_samples: sequences since the start of training.
        tflops_per_gpu: as printed, by the trainer's own count of FLOPs.
        mfu: as printed, a share (0.4, not 40).
        memory_bytes: peak memory, as printed.
        run: which start of the job the line belongs to, from 0: it grows where the step number
            falls or repeats.
        skipped: the optimizer skipped the step (overflow of the loss scale).
    """

    number: int
    step_time_s: float | None = None
    global_batch_size: int | None = None
    tokens_per_s_per_gpu: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    consumed_samples: int | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    memory_bytes: float | None = None
    run: int = 0
    skipped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """The iteration lines of one file.

    Attributes:
        format: which trainer, a key of `reading.READERS`.
        iterations: in the order of the file.
        damaged: lines that began like an iteration and could not be read (cut off, torn).
        duplicates: lines that say again what another rank said.
        source: the file.
    """

    format: str
    iterations: tuple[Iteration, ...]
    damaged: int = 0
    duplicates: int = 0
    source: str = ""

    @property
    def runs(self) -> int:
        """How often the job started."""
        return 1 + max((line.run for line in self.iterations), default=-1)
