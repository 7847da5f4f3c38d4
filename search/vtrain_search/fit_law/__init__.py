"""Fits a loss law to pilot runs, and the shipped laws' draws to published measurements."""

from __future__ import annotations

from .additive import AdditiveFit, Points, bootstrap_additive, fit_additive

__all__ = ["AdditiveFit", "Points", "bootstrap_additive", "fit_additive"]
