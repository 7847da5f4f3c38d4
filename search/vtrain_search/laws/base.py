"""What every loss law states about itself and how it is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vtrain.errors import UserInputError

from .designs import Designs, FloatArray

Coefficients = Mapping[str, "float | FloatArray"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LawFacts:
    """The convention, source and range of one loss law."""

    name: str
    formula: str
    coefficients: Mapping[str, float]
    """Point estimate; keys as in `formula`."""
    counts: str
    """What N counts: "all parameters" or "non-embedding parameters"."""
    vocab_size: int
    """Rows of the embedding that N includes, from the authors' tokenizer; 0 when N has none."""
    unit: str
    """Unit of the loss; losses of laws with other data or tokenizers do not compare."""
    data_set: str
    parameters_range: tuple[float, float]
    """Smallest and largest N in the data behind the law."""
    tokens_range: tuple[float, float]
    """Fewest and most training tokens in the data behind the law."""
    compute_max_flop: float
    """Largest training compute (6ND) in the data behind the law."""
    citation: str
    verification: str
    """How the coefficients were checked: "verified in public code", "recalled", ..."""
    contains: frozenset[str] = frozenset()
    """Terms that the formula already holds and that are therefore switched off."""
    caveat: str = ""

    def __post_init__(self) -> None:
        """Refuse facts that contradict each other."""
        if self.counts not in {"all parameters", "non-embedding parameters"}:
            raise UserInputError(
                f"law {self.name}: counts={self.counts!r} is not a known convention",
                hint='use "all parameters" or "non-embedding parameters"',
            )
        if (self.vocab_size > 0) != (self.counts == "all parameters"):
            raise UserInputError(
                f"law {self.name}: counts {self.counts} but vocab_size={self.vocab_size}",
                hint="a law that counts all parameters needs its vocabulary, another has 0",
            )
        for key, value in self.coefficients.items():
            if not np.isfinite(value):
                raise UserInputError(f"law {self.name}: coefficient {key}={value} is not finite")
        for key in ("parameters_range", "tokens_range"):
            low, high = getattr(self, key)
            if not 0 < low <= high < np.inf:
                raise UserInputError(f"law {self.name}: {key}=({low:g}, {high:g}) is no range")


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """Joint draws of a law's coefficients; row k of every column belongs together."""

    columns: Mapping[str, FloatArray]
    """One array [n_draws] a coefficient, keys as in the law's `draw_names`."""
    provenance: str
    """Where the scatter comes from, one line."""
    informative: bool = True
    """False when nobody published the scatter: every row is then the point estimate."""

    def __len__(self) -> int:
        """Number of draws."""
        return len(next(iter(self.columns.values())))

    def column(self) -> Coefficients:
        """Return the columns shaped [n_draws, 1], ready to broadcast against designs."""
        return {name: values[:, None] for name, values in self.columns.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogInputs:
    """Natural logarithms of what a formula takes; effective sizes, terms already applied."""

    ln_parameters: FloatArray
    """ln N in the law's own convention."""
    ln_tokens: FloatArray
    ln_hidden_size: FloatArray = field(default_factory=lambda: np.zeros(()))
    ln_num_layers: FloatArray = field(default_factory=lambda: np.zeros(()))


class LossLaw(ABC):
    """A law L(N, D), in nats a token, with its facts and its parameter draws."""

    facts: LawFacts

    @property
    def name(self) -> str:
        """Name by which the law is chosen."""
        return self.facts.name

    @property
    def citation(self) -> str:
        """Where the law was published."""
        return self.facts.citation

    @property
    def unit(self) -> str:
        """Unit of the loss."""
        return self.facts.unit

    @property
    def n_convention(self) -> str:
        """What N counts, with which vocabulary, in words."""
        if self.facts.vocab_size == 0:
            return self.facts.counts
        return f"{self.facts.counts}, one embedding of {self.facts.vocab_size:,} rows"

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding that N includes."""
        return self.facts.vocab_size

    @abstractmethod
    def coefficients(self) -> Coefficients:
        """Return the point estimate under the names that `evaluate` and the draws use."""

    @abstractmethod
    def evaluate(self, coefficients: Coefficients, inputs: LogInputs) -> FloatArray:
        """Return the loss in nats a token; all arguments broadcast against each other."""

    @abstractmethod
    def draws(self) -> Draws:
        """Return joint draws of the coefficients."""

    def parameters(self, designs: Designs) -> FloatArray:
        """Return N in the law's own convention and vocabulary, broadcast shape.

        Non-embedding parameters plus one embedding of the *law's* vocabulary at the design's
        width: embeddings of the user's vocabulary cost no FLOPs and must buy no loss.
        """
        return designs.parameters_non_embedding + self.facts.vocab_size * designs.hidden_size

    def inputs(self, designs: Designs) -> LogInputs:
        """Return the logarithms of N, D, width and depth with no term applied."""
        return LogInputs(
            ln_parameters=np.log(self.parameters(designs)),
            ln_tokens=np.log(designs.tokens),
            ln_hidden_size=np.log(designs.hidden_size),
            ln_num_layers=np.log(designs.num_layers),
        )

    def loss(self, designs: Designs) -> FloatArray:
        """Return the bare law's point estimate in nats a token, no term applied."""
        return self.evaluate(self.coefficients(), self.inputs(designs))

    def loss_draws(self, designs: Designs, draws: Draws) -> FloatArray:
        """Return the bare law's loss [n_draws, n_designs] in nats a token."""
        return self.evaluate(draws.column(), self.inputs(designs.flat()))
