"""Effective parameters and tokens: where the terms meet the law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .base import Coefficients, LogInputs, LossLaw
from .designs import Designs, FloatArray
from .terms import BatchTerm, HeadTerm, RepetitionTerm, ShapeTerm
from .terms.batch import REFUSED_ABOVE, ln_batch_ratio

Term = ShapeTerm | HeadTerm | BatchTerm | RepetitionTerm


@dataclass(frozen=True, kw_only=True, slots=True)
class LogDesigns:
    """Logarithms that every term needs, computed once and reused for each draw."""

    inputs: LogInputs
    ln_parameters_non_embedding: FloatArray
    ln_batch: FloatArray
    head_dim: FloatArray

    @classmethod
    def of(cls, law: LossLaw, designs: Designs) -> LogDesigns:
        """Return the logarithms of designs, N in the law's convention."""
        return cls(
            inputs=law.inputs(designs),
            ln_parameters_non_embedding=np.log(designs.parameters_non_embedding),
            ln_batch=np.log(designs.global_batch_tokens),
            head_dim=designs.head_dim,
        )

    @property
    def ln_aspect(self) -> FloatArray:
        """ln(width/depth)."""
        return np.asarray(self.inputs.ln_hidden_size - self.inputs.ln_num_layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class LnFactors:
    """Logarithms (<= 0) of what each active term multiplies N and D with."""

    on_parameters: Mapping[str, FloatArray]
    on_tokens: Mapping[str, FloatArray]

    def apply(self, logs: LogDesigns, ln_tokens: FloatArray) -> LogInputs:
        """Return the law's inputs with all factors multiplied in."""
        return LogInputs(
            ln_parameters=sum(self.on_parameters.values(), start=logs.inputs.ln_parameters),
            ln_tokens=sum(self.on_tokens.values(), start=ln_tokens),
            ln_hidden_size=logs.inputs.ln_hidden_size,
            ln_num_layers=logs.inputs.ln_num_layers,
        )


def ln_factors(
    terms: Mapping[str, Term],
    coefficients: Mapping[str, Coefficients],
    logs: LogDesigns,
    ln_tokens: FloatArray,
) -> LnFactors:
    """Return ln of each term's factors.

    Args:
        terms: the terms that are on, by name.
        coefficients: of each term, floats or columns [n_draws, 1].
        logs: logarithms of the designs.
        ln_tokens: ln of the tokens processed; [n_draws, n_designs] when the simulator's error is
            carried through them.
    """
    on_parameters: dict[str, FloatArray] = {}
    on_tokens: dict[str, FloatArray] = {}
    for name, term in terms.items():
        c = coefficients[name]
        if isinstance(term, ShapeTerm):
            on_parameters[name] = term.ln_factor(
                c, logs.ln_parameters_non_embedding, logs.ln_aspect
            )
        elif isinstance(term, HeadTerm):
            on_parameters[name] = term.ln_factor(c, logs.head_dim)
        elif isinstance(term, BatchTerm):
            on_tokens[name] = term.ln_factor(c, ln_batch_ratio(logs.ln_batch, ln_tokens))
        else:
            on_tokens[name] = term.ln_token_factor(c, ln_tokens)
            on_parameters[name] = term.ln_parameter_factor(c, logs.inputs.ln_parameters, ln_tokens)
    return LnFactors(on_parameters=on_parameters, on_tokens=on_tokens)


def batch_is_allowed(designs: Designs) -> FloatArray:
    """Return where the batch is at most 8 B*: beyond it the law gives no answer."""
    ratio = ln_batch_ratio(np.log(designs.global_batch_tokens), np.log(designs.tokens))
    # A batch that is 8 B* by construction must not fail on the last bit.
    return np.asarray(ratio <= np.log(REFUSED_ABOVE) + 1e-12)
