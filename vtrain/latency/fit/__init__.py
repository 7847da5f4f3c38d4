"""Fits the constants of devices and clusters to measured tables, with held-out error."""
