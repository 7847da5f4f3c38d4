"""Does it fit: the limit, the verdict and its probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain.interval import UNRELIABLE_SHARE
from vtrain.memory_limit import SHARE_FITS

_SAFE_Z = 1.2815515655446004  # standard normal quantile of SAFE_PROBABILITY

if TYPE_CHECKING:
    from vtrain.stack import Stack

VERDICTS = ("fits", "tight", "does not fit")
SHARE_TIGHT = 0.95
SAFE_PROBABILITY = 0.90
"""What a recommendation asks for; at a spread of 0.05 this is the 90 % share, above it less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Answer to "will it fit" for one plan.

    Attributes:
        verdict: one of VERDICTS.
        probability: that the run does not run out of memory.
        probability_unfragmented: the same where the allocator grows segments in place and
            holds little more than what is allocated (`FRAGMENTATION_ADVICE`).
        fragmentation_risk: the difference decides: reserved memory may run out although
            allocated memory does not.
        peak_bytes: allocated peak.
        reserved_bytes: expected to be held by the allocator.
        usable_bytes: device memory less the context.
        limit_bytes: largest peak called "fits".
    """

    verdict: str
    probability: float
    probability_unfragmented: float
    fragmentation_risk: bool
    peak_bytes: float
    reserved_bytes: float
    usable_bytes: float
    limit_bytes: float


TIGHT_PROBABILITY = 0.75
"""Below it a plan is at best tight, whatever its allocated share."""

FRAGMENTATION_ADVICE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
"""Segments then grow in place, and reserved memory stays near allocated (PyTorch CUDA notes)."""


def memory_limit_bytes(
    device_memory_bytes: float, stack: Stack, share: float = SHARE_FITS
) -> float:
    """Return the largest allocated peak that counts as fitting.

    Args:
        device_memory_bytes: memory of one device.
        stack: the software; its context is taken off first.
        share: of what the context leaves.
    """
    return share * max(0.0, device_memory_bytes - stack.context_bytes)


def tight_share(share: float) -> float:
    """Return up to which share a plan is "tight" under a limit: as far above as by default."""
    return min(1.0, share + (SHARE_TIGHT - SHARE_FITS))


def reliable_limit_share(device_memory_bytes: float, stack: Stack) -> float:
    """Return the largest limit, in whole percent, that keeps clear of stalling allocators.

    Args:
        device_memory_bytes: memory of one device.
        stack: the software.

    Returns:
        Of what the context leaves; UNRELIABLE_SHARE is of the whole device.
    """
    usable = memory_limit_bytes(device_memory_bytes, stack, 1.0)
    share = UNRELIABLE_SHARE * device_memory_bytes / usable if usable else 1.0
    return min(1.0, math.floor(100.0 * share) / 100.0)


def safe_limit_bytes(device_memory_bytes: float, stack: Stack) -> float:
    """Return the largest allocated peak to recommend: it fits, and with SAFE_PROBABILITY.

    Args:
        device_memory_bytes: memory of one device.
        stack: the software; a less certain prediction keeps more distance.
    """
    usable = memory_limit_bytes(device_memory_bytes, stack, 1.0)
    distance = math.exp(-_SAFE_Z * stack.memory_log_sd) / stack.reserved_over_allocated
    return usable * min(SHARE_FITS, distance)


def verdict(
    peak_bytes: float,
    device_memory_bytes: float,
    stack: Stack,
    reserved_bytes: float | None = None,
    *,
    limit_share: float = SHARE_FITS,
) -> Verdict:
    """Judge one allocated peak against one device.

    The true peak is taken as log-normal around the prediction with the stack's measured spread.
    The run survives where the reserved bytes stay under what the context leaves. The word
    follows the allocated share, and is stricter where survival is unlikely.

    Args:
        peak_bytes: predicted allocated peak of the heaviest rank.
        device_memory_bytes: memory of one device.
        stack: the software.
        reserved_bytes: what the allocator will hold, where more is known than the stack's ratio.
        limit_share: largest share of what the context leaves that is called "fits".
    """
    usable = memory_limit_bytes(device_memory_bytes, stack, 1.0)
    share = peak_bytes / usable if usable else math.inf
    if reserved_bytes is None:
        reserved_bytes = peak_bytes * stack.reserved_over_allocated
    probability = _below(usable, reserved_bytes, stack.memory_log_sd)
    unfragmented = _below(usable, peak_bytes, stack.memory_log_sd)
    if share > tight_share(limit_share) or probability < 0.5:
        word = 2
    else:
        word = int(share > limit_share or probability < TIGHT_PROBABILITY)
    return Verdict(
        verdict=VERDICTS[word],
        probability=probability,
        probability_unfragmented=unfragmented,
        fragmentation_risk=unfragmented - probability > 0.05,
        peak_bytes=peak_bytes,
        reserved_bytes=reserved_bytes,
        usable_bytes=usable,
        limit_bytes=limit_share * usable,
    )


def _below(limit: float, median: float, log_sd: float) -> float:
    """Probability that a log-normal value with this median lies under the limit."""
    if limit <= 0.0:
        return 0.0
    if median <= 0.0:
        return 1.0
    deviation = math.log(limit / median)
    if log_sd == 0.0:
        return float(deviation >= 0.0)
    return 0.5 * math.erfc(-deviation / (log_sd * math.sqrt(2.0)))
