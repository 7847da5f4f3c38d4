"""Memory of a plan on every stage: states, activations, transients, verdict."""

from __future__ import annotations

from vtrain.memory.breakdown import StageBreakdown, memory_breakdown
from vtrain.memory.peak import STAGES, PeakMemory, peak_memory
from vtrain.memory.verdict import VERDICTS, Verdict, memory_limit_bytes, verdict

__all__ = [
    "STAGES",
    "VERDICTS",
    "PeakMemory",
    "StageBreakdown",
    "Verdict",
    "memory_breakdown",
    "memory_limit_bytes",
    "peak_memory",
    "verdict",
]
