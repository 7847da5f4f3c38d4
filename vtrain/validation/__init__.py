"""Predicted against measured step time and memory, by source."""
