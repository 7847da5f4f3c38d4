"""What is left after a calibration: rates by their arithmetic, and when it is too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain.units import format_count, format_duration

if TYPE_CHECKING:
    from vtrain.formats.logs.plausible import Claim

WARN_PCT = 15.0
"""Error with the fitted factors above which a log is warned of: nine in ten steps of bigsci, dgxc,
mbridge and mpt lie about within it (few-shot 90th percentiles 6.7 to 15.6 %,
results/validation)."""

REFUSE_PCT = 25.0
"""Median error with the fitted factors above which nothing is written: three times the largest
few-shot MAPE of a source without stalled plans (8.3 %, torchtitan; the others 3.3 to 7.1 %) and
above their 90th percentiles (18.4 % at most). Sites differ by less; inputs that are wrong by a
factor do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """One step time in the figures people compare.

    Attributes:
        step_time_s: seconds of a step.
        tokens: of a step.
        gpus: that share it.
        flops_per_token: model FLOPs, forward and backward, causal attention at full s^2.
        peak_flops: dense peak of one GPU, FLOP/s.
    """

    step_time_s: float
    tokens: float
    gpus: int
    flops_per_token: float
    peak_flops: float

    @classmethod
    def of(cls, step_time_s: float, claim: Claim) -> Rates:
        """Return the rates of a step of the claimed work."""
        work = claim.work
        return cls(
            step_time_s=step_time_s, tokens=claim.tokens, gpus=claim.gpus,
            flops_per_token=work.architecture.training_flops_per_token(work.seq_length),
            peak_flops=claim.peak_flops,
        )  # fmt: skip

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all GPUs."""
        return self.tokens / self.step_time_s

    @property
    def tflops_per_gpu(self) -> float:
        """Model TFLOP/s of one GPU."""
        return self.tokens_per_s * self.flops_per_token / self.gpus / 1e12

    @property
    def mfu(self) -> float:
        """Share of the dense peak."""
        return self.tflops_per_gpu * 1e12 / self.peak_flops

    @property
    def arithmetic(self) -> str:
        """The way from tokens to utilisation, one line."""
        return (
            f"{format_count(self.tokens)} tokens / {format_duration(self.step_time_s)} = "
            f"{format_count(self.tokens_per_s)} tokens/s; x {self.flops_per_token:.3g} FLOPs a "
            f"token / {self.gpus} GPUs = {self.tflops_per_gpu:.0f} TFLOP/s per GPU; / "
            f"{self.peak_flops / 1e12:.0f} TFLOP/s dense peak = {self.mfu:.1%} MFU"
        )

    @property
    def brief(self) -> str:
        """Its three rates, a clause."""
        return (
            f"{format_count(self.tokens_per_s)} tokens/s, {self.tflops_per_gpu:.0f} TFLOP/s per "
            f"GPU, {self.mfu:.1%} MFU"
        )

    def document(self) -> dict[str, float]:
        """Return the figures as plain values."""
        return {
            "step_time_s": self.step_time_s, "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s / self.gpus,
            "tflops_per_gpu": self.tflops_per_gpu, "mfu": self.mfu,
        }  # fmt: skip


def error_pct(predicted_s: float, measured_s: float) -> float:
    """Return the error of a prediction in % of what was measured; negative: predicted too fast."""
    return 100.0 * (predicted_s / measured_s - 1.0)
