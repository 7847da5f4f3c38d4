"""Allocation rules: how a paper splits compute between size and data; no loss comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vtrain.errors import UserInputError
from vtrain_search.laws.designs import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerOfCompute:
    """value = prefactor * C^exponent."""

    prefactor: float
    exponent: float

    def __call__(self, compute_flop: FloatArray) -> FloatArray:
        """Return the value at a compute in FLOP."""
        return np.asarray(self.prefactor * np.asarray(compute_flop) ** self.exponent)

    @classmethod
    def through(cls, *, compute_flop: float, value: float, exponent: float) -> PowerOfCompute:
        """Return the power law through one tabulated point."""
        return cls(prefactor=value / compute_flop**exponent, exponent=exponent)


@dataclass(frozen=True, kw_only=True, slots=True)
class AllocationRule:
    """Compute-optimal size and data as functions of compute; for comparison only.

    One side is given as a power of compute, the other follows from C = 6ND.

    Raises:
        UserInputError: neither or both sides are given.
    """

    name: str
    formula: str
    coefficients: Mapping[str, float]
    counts: str
    """What N counts."""
    vocab_size: int
    """Rows of the embedding that N includes; 0 when it has none."""
    data_set: str
    compute_range_flop: tuple[float, float]
    citation: str
    verification: str
    parameters_rule: PowerOfCompute | None = None
    tokens_rule: PowerOfCompute | None = None
    caveat: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule that says nothing or says it twice."""
        if (self.parameters_rule is None) == (self.tokens_rule is None):
            raise UserInputError(
                f"rule {self.name} must give N or D as a power of compute, not both or neither",
                hint="the other side follows from C = 6ND",
            )

    @property
    def n_convention(self) -> str:
        """What N counts, with which vocabulary, in words."""
        if self.vocab_size == 0:
            return self.counts
        return f"{self.counts}, one embedding of {self.vocab_size:,} rows"

    def allocate(self, compute_flop: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Return compute-optimal (parameters, tokens) for a training compute in FLOP."""
        compute = np.asarray(compute_flop, dtype=np.float64)
        if self.parameters_rule is not None:
            parameters = self.parameters_rule(compute)
            return parameters, np.asarray(compute / (6.0 * parameters))
        assert self.tokens_rule is not None  # __post_init__ left exactly one
        tokens = self.tokens_rule(compute)
        return np.asarray(compute / (6.0 * tokens)), tokens
