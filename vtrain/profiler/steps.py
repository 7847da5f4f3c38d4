"""One real optimizer step of the reference decoder: its time and its peak memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.profiler.blocks import Decoder

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.profiler.runtime import Runtime
    from vtrain.profiler.timing import Stopwatch

CLIP = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """One training configuration of a single device.

    Attributes:
        architecture: the decoder.
        seq_length: tokens of a sequence.
        micro_batch_size: sequences of a micro-batch.
        micro_batches: micro-batches of a step.
    """

    architecture: Architecture
    seq_length: int
    micro_batch_size: int
    micro_batches: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.seq_length * self.micro_batch_size * self.micro_batches

    @property
    def flops(self) -> float:
        """Model FLOPs of a step."""
        return self.tokens * self.architecture.training_flops_per_token(self.seq_length)

    @property
    def label(self) -> str:
        """Short text for a table."""
        a = self.architecture
        return (
            f"h{a.hidden_size} L{a.num_layers} f{a.ffn_hidden_size} V{a.vocab_size} "
            f"{self.micro_batches}x{self.micro_batch_size}x{self.seq_length}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTiming:
    """Measured steps.

    Attributes:
        time_s: median of (step / anchor) times the anchor of the profile.
        raw_s: plain median.
        spread: half the interquartile range of the ratios over their median.
        repeats: steps timed.
    """

    time_s: float
    raw_s: float
    spread: float
    repeats: int


class Trainer:
    """A decoder with its data and AdamW: `step` runs one whole optimizer step."""

    def __init__(self, runtime: Runtime, config: Config) -> None:
        """Make model, data and optimizer on the device."""
        torch = runtime.torch
        self.runtime, self.config = runtime, config
        self.model = Decoder(runtime, config.architecture, config.seq_length)
        shape = (config.micro_batches, config.micro_batch_size, config.seq_length)
        vocabulary = config.architecture.vocab_size
        self.ids, self.targets = (
            torch.randint(0, vocabulary, shape, device=runtime.device) for _ in range(2)
        )
        self.parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)

    def step(self) -> None:
        """Forward and backward of every micro-batch, clipping, optimizer."""
        model = self.model
        for ids, targets in zip(self.ids, self.targets, strict=True):
            model.loss(model.blocks(model.embed(ids)), targets).backward()
        self.update()

    def update(self) -> None:
        """Clip, optimizer step, and gradients back to zero."""
        self.runtime.torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        for weight in self.parameters:
            weight.grad.zero_()


def time_steps(runtime: Runtime, watch: Stopwatch, config: Config, *, repeats: int) -> StepTiming:
    """Time real steps, the anchor before and after each."""
    trainer = Trainer(runtime, config)

    def call(_: int) -> Any:
        trainer.step()

    for _ in range(2):
        call(0)
    times, anchors = np.empty(repeats), np.empty(repeats)
    for index in range(repeats):
        before = [watch.anchor() for _ in range(3)]
        # Whole steps are what a user waits for: host time counts on a GPU as well.
        times[index] = watch.wall_seconds(call) if runtime.cuda else watch.seconds(call, 1)
        anchors[index] = float(np.median(before + [watch.anchor() for _ in range(3)]))
    ratios = times / anchors
    low, middle, high = np.percentile(ratios, (25.0, 50.0, 75.0))
    return StepTiming(
        time_s=float(middle * watch.anchor_s), raw_s=float(np.median(times)),
        spread=float(0.5 * (high - low) / middle), repeats=repeats,
    )  # fmt: skip


def peak_bytes(runtime: Runtime, config: Config) -> float:
    """Return the most bytes torch's allocator held from making the model to the second step.

    On a GPU its own statistics tell; on a CPU torch's profiler lists every allocation.
    """
    torch = runtime.torch

    def run() -> None:
        trainer = Trainer(runtime, config)
        for _ in range(2):
            trainer.step()

    if runtime.cuda:
        torch.cuda.empty_cache()
        held = torch.cuda.memory_allocated(runtime.device)
        torch.cuda.reset_peak_memory_stats(runtime.device)
        run()
        return float(torch.cuda.max_memory_allocated(runtime.device) - held)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as recorded:
        run()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held_bytes = np.cumsum([event.nbytes() for event in events])
    return float(held_bytes.max(initial=0.0))
