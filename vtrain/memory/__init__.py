"""Memory of a plan on every stage: states, activations, transients, verdict."""

from __future__ import annotations

from vtrain.memory.breakdown import StageBreakdown, memory_breakdown
from vtrain.memory.explain import Fix, WhyNot, why_not
from vtrain.memory.micro_batch import MicroBatch, MicroBatches, max_micro_batch
from vtrain.memory.peak import STAGES, PeakMemory, peak_memory
from vtrain.memory.timeline import EVENTS, MemoryTimeline, memory_timeline
from vtrain.memory.verdict import (
    FRAGMENTATION_ADVICE,
    VERDICTS,
    Verdict,
    memory_limit_bytes,
    reliable_limit_share,
    safe_limit_bytes,
    verdict,
)

__all__ = [
    "EVENTS",
    "FRAGMENTATION_ADVICE",
    "STAGES",
    "VERDICTS",
    "Fix",
    "MemoryTimeline",
    "MicroBatch",
    "MicroBatches",
    "PeakMemory",
    "StageBreakdown",
    "Verdict",
    "WhyNot",
    "max_micro_batch",
    "memory_breakdown",
    "memory_limit_bytes",
    "memory_timeline",
    "peak_memory",
    "reliable_limit_share",
    "safe_limit_bytes",
    "verdict",
    "why_not",
]
