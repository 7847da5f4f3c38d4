"""Operators and collectives to seconds: pure functions of arrays and fitted constants."""
