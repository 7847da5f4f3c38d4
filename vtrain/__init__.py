"""Simulator of distributed LLM training: step time, memory and cost of any 3D-parallel plan."""

from __future__ import annotations

__version__ = "0.1.0"
