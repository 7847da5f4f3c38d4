"""A loss law with the terms it lacks and the draws that say how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vtrain.errors import UserInputError

from . import quantiles
from .base import Coefficients, Draws, LogInputs, LossLaw
from .designs import Designs, FloatArray
from .effective import LnFactors, LogDesigns, Term, batch_is_allowed, ln_factors
from .ranges import beyond_data, extrapolation_warnings
from .terms import BatchTerm, HeadTerm, RepetitionTerm, ShapeTerm, Terms

Interval = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, kw_only=True)
class LossModel:
    """Predicted loss of designs, its interval, and paired comparisons.

    Raises:
        UserInputError: `unique_tokens` is not positive.
    """

    law: LossLaw
    terms: Terms = field(default_factory=Terms)
    unique_tokens: float | None = None
    """Distinct training tokens there are; None means unlimited, nothing is repeated."""

    def __post_init__(self) -> None:
        """Refuse a data set without tokens."""
        if self.unique_tokens is not None and not 0 < self.unique_tokens < np.inf:
            raise UserInputError(
                f"unique tokens must be positive, got {self.unique_tokens:g}",
                hint="leave --unique-tokens away when fresh data is unlimited",
            )

    @property
    def active_terms(self) -> dict[str, Term]:
        """The terms that act: switched on, not contained in the law, and with data to act on."""
        on = self.terms.enabled(self.law.facts.contains)
        active: dict[str, Term] = {}
        if "shape" in on:
            active["shape"] = ShapeTerm()
        if "head" in on:
            active["head"] = HeadTerm()
        if "batch" in on:
            active["batch"] = BatchTerm()
        if "repetition" in on and self.unique_tokens is not None:
            active["repetition"] = RepetitionTerm(unique_tokens=self.unique_tokens)
        return active

    def factors(self, designs: Designs) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return the active terms' factors (0-1): those on N, and those on D, by term name."""
        found = self._point_factors(LogDesigns.of(self.law, designs))
        on_parameters, on_tokens = (
            {name: np.broadcast_to(np.exp(f), designs.shape) for name, f in side.items()}
            for side in (found.on_parameters, found.on_tokens)
        )
        return on_parameters, on_tokens

    def effective_parameters(self, designs: Designs) -> FloatArray:
        """Return N in the law's convention times every factor on it."""
        return np.broadcast_to(np.exp(self._point_inputs(designs).ln_parameters), designs.shape)

    def effective_tokens(self, designs: Designs) -> FloatArray:
        """Return D times every factor on it."""
        return np.broadcast_to(np.exp(self._point_inputs(designs).ln_tokens), designs.shape)

    def batch_allowed(self, designs: Designs) -> NDArray[np.bool_]:
        """Return where the batch is at most 8 times the critical one (all, if the term is off)."""
        if "batch" not in self.active_terms:
            return np.ones(designs.shape, dtype=np.bool_)
        return np.broadcast_to(batch_is_allowed(designs), designs.shape).astype(np.bool_)

    def loss(self, designs: Designs) -> FloatArray:
        """Return the point estimate in nats a token; +inf where the batch is refused."""
        loss = self.law.evaluate(self.law.coefficients(), self._point_inputs(designs))
        return np.where(self.batch_allowed(designs), loss, np.inf)

    def term_costs(self, designs: Designs) -> dict[str, FloatArray]:
        """Return what each active term adds to the loss, in nats, the others left on."""
        total = self.loss(designs)
        return {
            name: total - replace(self, terms=replace(self.terms, **{name: False})).loss(designs)
            for name in self.active_terms
        }

    def term_cost_intervals(self, designs: Designs, *, level: float = 0.9) -> dict[str, Interval]:
        """Return (low, median, high) of what each active term adds to the loss, in nats.

        Law and terms are drawn jointly; the same draw serves with and without the term. Meant for
        finalists: every term costs a further evaluation of all draws.
        """
        flat = designs.flat()
        with_all = self.loss_draws(flat)
        found: dict[str, Interval] = {}
        for name in self.active_terms:
            without = replace(self, terms=replace(self.terms, **{name: False}))
            low, median, high = quantiles.central(with_all - without.loss_draws(flat), level)
            shape = designs.shape
            found[name] = (low.reshape(shape), median.reshape(shape), high.reshape(shape))
        return found

    def dloss_dlntokens(self, designs: Designs) -> FloatArray:
        """Return dL/dlnD (negative, nats) at the design's batch, all terms counted.

        Central difference with a step of 1e-4 in ln D: exact to 1e-8 relative for power laws.
        """
        step = 1e-4
        logs = LogDesigns.of(self.law, designs)
        sides = []
        for sign in (1.0, -1.0):
            ln_tokens = logs.inputs.ln_tokens + sign * step
            inputs = self._point_factors(logs, ln_tokens).apply(logs, ln_tokens)
            sides.append(self.law.evaluate(self.law.coefficients(), inputs))
        return np.broadcast_to((sides[0] - sides[1]) / (2.0 * step), designs.shape)

    def budget_share(self, gap_nats: FloatArray, designs: Designs) -> FloatArray:
        """Return the share of the budget (0-1) that a loss gap is worth at these designs.

        The share x of a budget that could be thrown away, in training tokens of the same model,
        for the loss to rise by the gap: gap = -dL/dlnD * -ln(1 - x). At the compute optimum the
        slope in tokens equals the slope in compute (Hoffmann et al. 2022, section 3.3).
        """
        return np.asarray(-np.expm1(-np.asarray(gap_nats) / -self.dloss_dlntokens(designs)))

    def draws(self) -> Draws:
        """Return the law's joint parameter draws."""
        return self.law.draws()

    def loss_draws(
        self,
        designs: Designs,
        draws: Draws | None = None,
        *,
        time_log_sd: float = 0.0,
        time_z: FloatArray | None = None,
    ) -> FloatArray:
        """Return the loss [n_draws, n_designs] in nats a token, terms drawn along with the law.

        Args:
            designs: flattened to one dimension.
            draws: joint draws of the law; default its own.
            time_log_sd: standard deviation of ln(true/predicted step time); a slower run gets
                fewer tokens for the same budget.
            time_z: standard normal deviate [n_draws] of that error; default a fixed sample.
        """
        flat = designs.flat()
        draws = self.draws() if draws is None else draws
        logs = LogDesigns.of(self.law, flat)
        ln_tokens = logs.inputs.ln_tokens
        if time_log_sd > 0.0:
            z = quantiles.normal_sample(len(draws), stream=0) if time_z is None else time_z
            ln_tokens = ln_tokens - time_log_sd * z[:, None]
        coefficients = self._term_draws(len(draws))
        inputs = ln_factors(self.active_terms, coefficients, logs, ln_tokens).apply(logs, ln_tokens)
        loss = self.law.evaluate(draws.column(), inputs)
        return np.broadcast_to(loss, (len(draws), flat.tokens.size))

    def interval(
        self, designs: Designs, *, time_log_sd: float = 0.0, level: float = 0.9
    ) -> Interval:
        """Return (low, median, high) loss in nats a token, in the shape of the designs.

        Args:
            designs: any shape.
            time_log_sd: standard deviation of ln(true/predicted step time).
            level: probability inside the central interval.
        """
        flat = designs.flat()
        parts = [
            quantiles.central(self.loss_draws(chunk, time_log_sd=time_log_sd), level)
            for chunk in quantiles.chunks(flat)
        ]
        allowed = self.batch_allowed(designs)
        low, median, high = (
            np.where(allowed, np.concatenate(side).reshape(designs.shape), np.inf)
            for side in zip(*parts, strict=True)
        )
        return low, median, high

    def paired(
        self,
        a: Designs,
        b: Designs,
        *,
        time_log_sd: float = 0.0,
        time_correlation: float = 1.0,
        level: float = 0.9,
    ) -> Interval:
        """Return (low, median, high) of loss(a) - loss(b), every draw shared by both.

        Args:
            a: designs of any shape.
            b: designs that broadcast against a, for example one best design.
            time_log_sd: standard deviation of ln(true/predicted step time) of each design.
            time_correlation: correlation of that error between the two; 1 when one simulator's
                bias is shared, 0 when the designs' errors have nothing in common.
            level: probability inside the central interval.

        Raises:
            UserInputError: the correlation is not within 0-1.
        """
        if not 0.0 <= time_correlation <= 1.0:
            raise UserInputError(f"time_correlation must be within 0-1, got {time_correlation:g}")
        shape = np.broadcast_shapes(a.shape, b.shape)
        n = len(self.draws())
        shared, own_a, own_b = (quantiles.normal_sample(n, stream=s) for s in range(3))
        z_a = np.sqrt(time_correlation) * shared + np.sqrt(1.0 - time_correlation) * own_a
        z_b = np.sqrt(time_correlation) * shared + np.sqrt(1.0 - time_correlation) * own_b
        left, right = a.broadcast_to(shape), b.broadcast_to(shape)
        parts = []
        for chunk_a, chunk_b in zip(quantiles.chunks(left), quantiles.chunks(right), strict=True):
            loss_a = self.loss_draws(chunk_a, time_log_sd=time_log_sd, time_z=z_a)
            loss_b = self.loss_draws(chunk_b, time_log_sd=time_log_sd, time_z=z_b)
            parts.append(quantiles.central(loss_a - loss_b, level))
        low, median, high = (
            np.concatenate(side).reshape(shape) for side in zip(*parts, strict=True)
        )
        return low, median, high

    def ties_with(
        self, designs: Designs, best: Designs, *, budget_share: float = 0.01, level: float = 0.9
    ) -> NDArray[np.bool_]:
        """Return which designs tie with the best one.

        A design ties when the paired interval contains 0 or the gap is under `budget_share` of
        the budget; a design whose batch is refused never ties.

        Args:
            designs: candidates of any shape.
            best: one design.
            budget_share: share of the budget (0-1) below which a gap does not count.
            level: probability inside the central paired interval.
        """
        low, _, high = self.paired(designs, best, level=level)
        gap = self.loss(designs) - self.loss(best)
        small = self.budget_share(np.where(np.isfinite(gap), gap, 0.0), best) < budget_share
        tie = ((low <= 0.0) & (high >= 0.0)) | small
        return np.asarray(tie & self.batch_allowed(designs))

    def probability_best(self, designs: Designs) -> FloatArray:
        """Return each flattened design's share of draws in which its loss is the lowest."""
        losses = np.where(self.batch_allowed(designs.flat()), self.loss_draws(designs), np.inf)
        winners = np.bincount(np.argmin(losses, axis=1), minlength=losses.shape[1])
        return np.asarray(winners / losses.shape[0])

    def extrapolation(self, designs: Designs) -> dict[str, FloatArray]:
        """Return how many times beyond the data each term is used; 1 means inside.

        Keys: "law" and the active terms, "ffn" when a feed-forward ratio is given. Each value has
        the shape of the designs.
        """
        return beyond_data(self.law.facts, self.active_terms, designs, self.law.parameters(designs))

    def warnings(self, design: Designs) -> list[str]:
        """Return one sentence for each term used over 30 times beyond its data by one design."""
        return extrapolation_warnings(self.extrapolation(design))

    def _point_inputs(self, designs: Designs) -> LogInputs:
        logs = LogDesigns.of(self.law, designs)
        return self._point_factors(logs).apply(logs, logs.inputs.ln_tokens)

    def _point_factors(self, logs: LogDesigns, ln_tokens: FloatArray | None = None) -> LnFactors:
        terms = self.active_terms
        coefficients: Mapping[str, Coefficients] = {k: t.point() for k, t in terms.items()}
        tokens = logs.inputs.ln_tokens if ln_tokens is None else ln_tokens
        return ln_factors(terms, coefficients, logs, tokens)

    def _term_draws(self, n_draws: int) -> dict[str, Coefficients]:
        """Return every active term's draws as columns [n_draws, 1], repeated when too few."""
        found: dict[str, Coefficients] = {}
        for name, term in self.active_terms.items():
            draws = term.draws()
            rows = np.arange(n_draws) % len(draws)
            found[name] = {k: values[rows][:, None] for k, values in draws.columns.items()}
        return found
