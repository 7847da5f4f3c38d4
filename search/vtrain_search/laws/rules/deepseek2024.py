"""DeepSeek LLM 2024: size as non-embedding FLOP a token."""

from __future__ import annotations

from .base import AllocationRule, PowerOfCompute

RULE = AllocationRule(
    name="deepseek2024",
    formula="M = 0.1715 C^0.5243 FLOP/token, D = 5.8316 C^0.4757, N = M/6",
    coefficients={"M_base": 0.1715, "a": 0.5243, "D_base": 5.8316, "b": 0.4757},
    counts="non-embedding parameters",
    vocab_size=0,
    data_set="in-house Chinese and English text",
    compute_range_flop=(1e17, 3e20),
    citation="DeepSeek-AI 2024, DeepSeek LLM, arXiv 2401.02954, equation 4",
    verification="coefficients confirmed on secondary pages; M D = C holds to 1e-4",
    tokens_rule=PowerOfCompute(prefactor=5.8316, exponent=0.4757),
    caveat="M counts attention FLOP, so N = M/6 is a little high; the exponent moves with data "
    "quality (0.450-0.578, recalled)",
)
