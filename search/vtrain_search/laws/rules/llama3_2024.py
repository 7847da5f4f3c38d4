"""Llama 3 2024: tokens as a power of compute."""

from __future__ import annotations

from .base import AllocationRule, PowerOfCompute

RULE = AllocationRule(
    name="llama3-2024",
    formula="D = 0.299 C^0.537, N = C/(6D)",
    coefficients={"A": 0.299, "alpha": 0.537},
    counts="all parameters",
    vocab_size=128_000,
    data_set="in-house text; isoFLOP profiles, 40M-16B parameters",
    compute_range_flop=(6e18, 1e22),
    citation="Llama team 2024, The Llama 3 Herd of Models, arXiv 2407.21783, section 3.2.1",
    verification="confirmed on secondary pages; the paper rounds to (0.53, 0.29) and 0.537 with "
    "0.299 give back its 16.55e12 tokens at 3.8e25 FLOP within 2 %",
    tokens_rule=PowerOfCompute(prefactor=0.299, exponent=0.537),
    caveat="the paper's 402e9 parameters go with 5.7 rather than 6 FLOP a parameter and token",
)
