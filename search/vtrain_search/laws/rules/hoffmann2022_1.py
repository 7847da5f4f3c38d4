"""Hoffmann et al. 2022, approach 1: the envelope of training curves."""

from __future__ import annotations

from .base import AllocationRule, PowerOfCompute

RULE = AllocationRule(
    name="hoffmann2022-1",
    formula="N = 1e9 (C/1.21e20)^0.50, D = C/(6N)",
    coefficients={"a": 0.50, "a_low": 0.488, "a_high": 0.502, "b": 0.50},
    counts="all parameters",
    vocab_size=32_000,
    data_set="MassiveText, SentencePiece 32k; 70M-16B parameters, 5B-500B tokens",
    compute_range_flop=(6e18, 3e21),
    citation="Hoffmann et al. 2022, arXiv 2203.15556, tables 2 and 3",
    verification="exponent and table confirmed on secondary pages; exponent interval recalled",
    # Table 3: 1e9 parameters at 1.21e20 FLOP (20.2e9 tokens).
    parameters_rule=PowerOfCompute.through(compute_flop=1.21e20, value=1e9, exponent=0.50),
)
