"""Proof: enumerate a whole grid and compare the search's answer with the best of it."""

from __future__ import annotations
