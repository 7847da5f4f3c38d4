"""Hoffmann et al. 2022, approach 2: parabolas through isoFLOP profiles."""

from __future__ import annotations

from .base import AllocationRule, PowerOfCompute

RULE = AllocationRule(
    name="hoffmann2022-2",
    formula="N = 1e9 (C/1.20e20)^0.49, D = C/(6N)",
    coefficients={"a": 0.49, "a_low": 0.462, "a_high": 0.534, "b": 0.51},
    counts="all parameters",
    vocab_size=32_000,
    data_set="MassiveText, SentencePiece 32k; isoFLOP profiles",
    compute_range_flop=(6e18, 3e21),
    citation="Hoffmann et al. 2022, arXiv 2203.15556, tables 2 and A3",
    verification="exponent and table confirmed on secondary pages; exponent interval recalled",
    # Table A3: 1e9 parameters at 1.20e20 FLOP (20.0e9 tokens).
    parameters_rule=PowerOfCompute.through(compute_flop=1.20e20, value=1e9, exponent=0.49),
    caveat="fitting parabolas is biased when alpha and beta differ (arXiv 2603.22339)",
)
