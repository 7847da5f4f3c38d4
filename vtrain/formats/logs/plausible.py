"""What cannot be true in a log, with the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.mfu import DIALECTS, MATCH, Work, explanations

if TYPE_CHECKING:
    from vtrain.formats.logs.steady import Steady

TOLERANCE = 0.05
"""Printed rates and those worked out may differ by rounding and by a mean over a window."""

LOWEST_MFU = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What the user says a log is of.

    Attributes:
        work: model, sequence length, tensor parallelism, recomputation.
        gpus: that share a step.
        global_batch_size: sequences of a step.
        peak_flops: dense peak of one GPU in the precision that trained.
        peaks: dense peaks of other GPUs and precisions by name, to find a wrong denominator.
    """

    work: Work
    gpus: int
    global_batch_size: int
    peak_flops: float
    peaks: dict[str, float]

    @property
    def tokens(self) -> float:
        """Tokens of a step."""
        return float(self.global_batch_size * self.work.seq_length)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One thing that is wrong or odd.

    Attributes:
        fatal: it cannot be, so the log says nothing of the machine.
        text: the rule and the arithmetic, one line.
    """

    fatal: bool
    text: str


def flags(steady: Steady, claim: Claim) -> list[Flag]:
    """Return what cannot be true in the steady part of a log.

    Args:
        steady: the steps used.
        claim: what they are said to be.
    """
    seconds = steady.median_s
    return [
        *_against_peak(seconds, claim),
        *_batch(steady, claim),
        *_rates(steady, seconds, claim),
        *_tflops(steady, seconds, claim),
        *_mfu(steady, seconds, claim),
    ]


def _median(steady: Steady, name: str) -> float | None:
    values = [getattr(line, name) for line in steady.lines]
    known = [float(value) for value in values if value is not None]
    return float(np.median(known)) if known else None


def _against_peak(seconds: float, claim: Claim) -> list[Flag]:
    """No step is faster than its FLOPs at the dense peak, the masked half of attention free."""
    a, s = claim.work.architecture, claim.work.seq_length
    flops = a.training_flops_per_token(s, causal=True)
    share = claim.tokens * flops / (seconds * claim.gpus * claim.peak_flops)
    arithmetic = (
        f"{claim.tokens:.4g} tokens x {flops:.4g} FLOPs / ({seconds:.4g} s x {claim.gpus} GPUs x "
        f"{claim.peak_flops:.4g} FLOP/s) = {share:.1%} of the dense peak"
    )
    if share > 1.0:
        return [
            Flag(
                fatal=True,
                text=f"faster than the chip: {arithmetic}; check model, batch, GPU count and "
                "precision",
            )
        ]
    if share < LOWEST_MFU:
        return [Flag(fatal=False, text=f"very slow: {arithmetic}; check batch and GPU count")]
    return []


def _batch(steady: Steady, claim: Claim) -> list[Flag]:
    """Consumed samples grow by the batch."""
    sizes = [
        (later.consumed_samples - early.consumed_samples) / (later.number - early.number)
        for early, later in zip(steady.lines, steady.lines[1:], strict=False)
        if early.consumed_samples is not None
        and later.consumed_samples is not None
        and later.run == early.run
        and later.number > early.number
    ]
    batch = float(np.median(sizes)) if sizes else 0.0
    if batch <= 0.0 or abs(batch / claim.global_batch_size - 1.0) < 1e-6:
        return []
    return [
        Flag(
            fatal=True,
            text=f"wrong batch: consumed samples grow by {batch:g} a step, the plan has "
            f"global_batch_size={claim.global_batch_size}",
        )
    ]


def _rates(steady: Steady, seconds: float, claim: Claim) -> list[Flag]:
    """Printed rates agree with batch, sequence length, GPU count and step time."""
    out = []
    tokens, gpus, samples = claim.tokens, claim.gpus, claim.global_batch_size
    for name, expected, arithmetic in (
        ("tokens_per_s", tokens / seconds, f"{tokens:.4g} tokens / {seconds:.4g} s"),
        (
            "tokens_per_s_per_gpu",
            tokens / seconds / gpus,
            f"{tokens:.4g} tokens / {seconds:.4g} s / {gpus} GPUs",
        ),
        ("samples_per_s", samples / seconds, f"{samples} sequences / {seconds:.4g} s"),
    ):
        printed = _median(steady, name)
        if printed and abs(printed / expected - 1.0) > TOLERANCE:
            text = (
                f"the log prints {name.replace('_', ' ')} {printed:.4g}, but {arithmetic} = "
                f"{expected:.4g} ({printed / expected:.2f} x); check batch, sequence length and "
                "GPU count"
            )
            out.append(Flag(fatal=True, text=text))
    return out


def _tflops(steady: Steady, seconds: float, claim: Claim) -> list[Flag]:
    """Printed TFLOP/s stay below the peak and follow a known count of FLOPs."""
    printed = _median(steady, "tflops_per_gpu")
    if not printed:
        return []
    out = []
    if printed * 1e12 > claim.peak_flops:
        text = (
            f"above the dense peak: the log prints {printed:.4g} TFLOP/s a GPU, the peak is "
            f"{claim.peak_flops / 1e12:.4g}"
        )
        out.append(Flag(fatal=True, text=text))
    counted = printed * 1e12 * seconds * claim.gpus / claim.tokens
    ours = claim.work.architecture.training_flops_per_token(claim.work.seq_length)
    if abs(ours / counted - 1.0) <= MATCH:
        return out
    gap, name = min((abs(d.count(claim.work) / counted - 1.0), d.name) for d in DIALECTS)
    arithmetic = (
        f"{printed:.4g} TFLOP/s x {seconds:.4g} s x {claim.gpus} GPUs / {claim.tokens:.4g} tokens "
        f"= {counted:.4g} FLOPs a token, vtrain counts {ours:.4g} ({counted / ours:.2f} x)"
    )
    if gap <= MATCH:
        out.append(Flag(fatal=False, text=f"another FLOP convention ({name}): {arithmetic}"))
    else:
        text = (
            f"no known FLOP convention: {arithmetic}; check model, batch, sequence length and "
            "GPU count"
        )
        out.append(Flag(fatal=False, text=text))
    return out


def _mfu(steady: Steady, seconds: float, claim: Claim) -> list[Flag]:
    """A printed utilisation divides by the dense peak of this chip."""
    printed = _median(steady, "mfu")
    if not printed:
        return []
    flops = claim.work.architecture.training_flops_per_token(claim.work.seq_length)
    ours = claim.tokens * flops / (seconds * claim.gpus * claim.peak_flops)
    if abs(printed / ours - 1.0) <= TOLERANCE:
        return []
    reasons = explanations(
        printed, claim.work, tokens_per_s=claim.tokens / seconds, gpus=claim.gpus,
        peaks_flops_per_s=claim.peaks,
    )  # fmt: skip
    why = f"it is {reasons[0]}" if reasons else "no known count and peak give it"
    impossible = "impossible: " if printed > 1.0 else ""
    text = (
        f"{impossible}the log prints {printed:.1%} MFU, over the dense peak it is "
        f"{claim.tokens:.4g} tokens x {flops:.4g} FLOPs / ({seconds:.4g} s x {claim.gpus} GPUs x "
        f"{claim.peak_flops:.4g} FLOP/s) = {ours:.1%}; {why}"
    )
    return [Flag(fatal=False, text=text)]
