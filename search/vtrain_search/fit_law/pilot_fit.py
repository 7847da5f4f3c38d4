"""From pilot runs to a law: terms taken out, fit, bootstrap, held-out error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain.errors import UserInputError
from vtrain_search.laws.additive import FORMULA, AdditiveLaw
from vtrain_search.laws.base import Draws, LawFacts
from vtrain_search.laws.terms import BatchTerm, ShapeTerm, batch_ratio

from .additive import HUBER_DELTA, AdditiveFit, Points, bootstrap_additive, fit_additive
from .identify import refuse_degenerate, refuse_unidentified
from .pilots import Pilots
from .robust import FloatArray

SMALL_SET_DELTA = 5e-3
"""Huber delta below SMALL_SET runs: with 1e-3, far under the scatter of single runs (0.3 %), the
fit follows a few of them like a median would."""
SMALL_SET = 100
SUSPECT_TIMES = 10.0
"""Residual over the median residual that makes a run suspect: seven standard deviations."""
HELD_OUT_SHARE = 0.2
"""Share of runs, those with most compute, that the held-out fit does not see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotFit:
    """A fitted law and how well it holds."""

    pilots: Pilots
    points: Points
    """The runs as fitted: effective sizes and tokens where width, depth or batch were given."""
    fitted: AdditiveFit
    draws: dict[str, FloatArray]
    huber_delta: float
    seed: int
    rms_pct: float
    heldout_rms_pct: float | None
    """Error on the largest-compute fifth when fitted on the rest; None if the rest is too few."""
    excluded: tuple[int, ...]
    terms_removed: tuple[str, ...]
    vocab_size: int

    def coefficients(self) -> dict[str, float]:
        """Return E, A, B, alpha, beta."""
        return self.fitted.coefficients()

    def interval90(self) -> dict[str, tuple[float, float]]:
        """Return the central 90 % bootstrap interval of each coefficient."""
        columns = {
            "E": np.exp(self.draws["ln_E"]),
            "A": np.exp(self.draws["ln_A"]),
            "B": np.exp(self.draws["ln_B"]),
            "alpha": self.draws["alpha"],
            "beta": self.draws["beta"],
        }
        edges = {name: np.quantile(values, [0.05, 0.95]) for name, values in columns.items()}
        return {name: (float(low), float(high)) for name, (low, high) in edges.items()}

    def suspects(self) -> tuple[int, ...]:
        """Return the rows whose residual is over ten times the median one; nothing drops them."""
        residual = np.abs(self.fitted.predict_ln(self.points) - self.points.ln_loss)
        far = np.flatnonzero(residual > SUSPECT_TIMES * np.median(residual))
        return tuple(self.pilots.rows[i] for i in far)

    def tokens_per_parameter(self, compute_flop: float) -> tuple[float, float, float]:
        """Return (low, point, high) compute-optimal tokens a parameter, 90 %, for C = 6ND."""
        point = _optimal_ratio(
            self.fitted.ln_a, self.fitted.ln_b, self.fitted.alpha, self.fitted.beta, compute_flop
        )
        d = self.draws
        many = _optimal_ratio(d["ln_A"], d["ln_B"], d["alpha"], d["beta"], compute_flop)
        low, high = np.quantile(many, [0.05, 0.95])
        return float(low), float(point), float(high)

    def law(self, name: str, data_set: str) -> AdditiveLaw:
        """Return the fitted law under a name."""
        n, d = np.exp(self.points.ln_n), self.pilots.tokens
        draws = Draws(
            columns=self.draws,
            provenance=f"{len(self.draws['alpha'])} bootstrap refits of the pilot runs, "
            f"seed {self.seed}, not recentred",
        )
        facts = LawFacts(
            name=name,
            formula=FORMULA,
            coefficients=self.coefficients(),
            counts="all parameters" if self.vocab_size else "non-embedding parameters",
            vocab_size=self.vocab_size,
            unit="nats/token",
            data_set=data_set,
            parameters_range=(float(n.min()), float(n.max())),
            tokens_range=(float(d.min()), float(d.max())),
            compute_max_flop=float((6.0 * n * d).max()),
            citation="fitted by vtrain-search fit-law",
            verification="own measurements",
        )
        return AdditiveLaw(facts, draws)


def fit_pilots(
    pilots: Pilots,
    *,
    replicates: int = 1000,
    seed: int = 0,
    huber_delta: float | None = None,
    excluded: tuple[int, ...] = (),
    drop_lowest_ratio: int = 0,
    vocab_size: int = 0,
) -> PilotFit:
    """Fit E, A, B, alpha, beta to pilot runs with a bootstrap over runs.

    Args:
        pilots: the runs, losses in nats.
        replicates: bootstrap refits.
        seed: of the bootstrap.
        huber_delta: log residual at which the loss turns linear; by default 1e-3 with at least 100
            runs and 5e-3 with fewer.
        excluded: row numbers to leave out.
        drop_lowest_ratio: leave out so many runs with the fewest tokens a parameter; nothing is
            left out unless asked.
        vocab_size: rows of the embedding that `params` includes; 0 when it has none.

    Raises:
        UserInputError: the runs cannot identify the law, or an excluded row does not exist.
    """
    kept, left_out = _exclude(pilots, excluded, drop_lowest_ratio)
    refuse_unidentified(kept)
    points, removed = effective_points(kept, vocab_size)
    delta = huber_delta
    if delta is None:
        delta = HUBER_DELTA if len(points) >= SMALL_SET else SMALL_SET_DELTA
    fitted = fit_additive(points, huber_delta=delta)
    refuse_degenerate(fitted, points)
    draws = bootstrap_additive(
        points, replicates=replicates, seed=seed, fitted=fitted, huber_delta=delta
    )
    return PilotFit(
        pilots=kept,
        points=points,
        fitted=fitted,
        draws=draws,
        huber_delta=delta,
        seed=seed,
        rms_pct=100.0 * fitted.rms(points),
        heldout_rms_pct=held_out_rms_pct(kept, points, delta),
        excluded=left_out,
        terms_removed=removed,
        vocab_size=vocab_size,
    )


def effective_points(pilots: Pilots, vocab_size: int) -> tuple[Points, tuple[str, ...]]:
    """Return the runs with the shape and batch terms divided out, and which terms those were.

    Pilots of odd shapes or batches would otherwise teach the law that size or data is worth less
    than it is; the search applies the same terms again to its designs.
    """
    ln_n, ln_d = np.log(pilots.parameters), np.log(pilots.tokens)
    removed: list[str] = []
    if pilots.width is not None and pilots.depth is not None:
        non_embedding = pilots.parameters - vocab_size * pilots.width
        small = np.flatnonzero(non_embedding <= 0)
        if small.size:
            raise UserInputError(
                f"row {pilots.rows[int(small[0])]}: params are fewer than an embedding of "
                f"{vocab_size:,} rows at width {pilots.width[small[0]]:g}",
                hint="leave --vocab-size away if params exclude embeddings",
            )
        shape = ShapeTerm()
        ln_n = ln_n + shape.ln_factor(
            shape.point(), np.log(non_embedding), np.log(pilots.width / pilots.depth)
        )
        removed.append("shape")
    if pilots.batch_tokens is not None:
        batch = BatchTerm()
        ln_ratio = np.log(batch_ratio(pilots.batch_tokens, pilots.tokens))
        ln_d = ln_d + batch.ln_factor(batch.point(), ln_ratio)
        removed.append("batch")
    return Points(ln_n=ln_n, ln_d=ln_d, ln_loss=np.log(pilots.loss)), tuple(removed)


def held_out_rms_pct(pilots: Pilots, points: Points, huber_delta: float) -> float | None:
    """Return the error in % on the runs with most compute, fitted on the others."""
    order = np.argsort(points.ln_n + points.ln_d, kind="stable")
    split = len(points) - max(1, round(HELD_OUT_SHARE * len(points)))
    seen = np.sort(order[:split])
    mask = np.zeros(len(points), dtype=np.bool_)
    mask[seen] = True
    try:
        refuse_unidentified(pilots.keep(mask))
    except UserInputError:
        return None
    fitted = fit_additive(points.take(mask), huber_delta=huber_delta)
    return 100.0 * fitted.rms(points.take(~mask))


def _exclude(
    pilots: Pilots, excluded: tuple[int, ...], drop_lowest_ratio: int
) -> tuple[Pilots, tuple[int, ...]]:
    """Return the runs that stay and the row numbers that go."""
    unknown = sorted(set(excluded) - set(pilots.rows))
    if unknown:
        raise UserInputError(
            f"--exclude names row {unknown[0]}, the runs are rows 1-{len(pilots.rows)}"
        )
    if drop_lowest_ratio >= len(pilots.rows):
        raise UserInputError(
            f"--drop-lowest-ratio {drop_lowest_ratio} leaves none of {len(pilots.rows)} runs"
        )
    lowest = np.argsort(pilots.tokens / pilots.parameters, kind="stable")[:drop_lowest_ratio]
    gone = set(excluded) | {pilots.rows[i] for i in lowest}
    mask = np.array([row not in gone for row in pilots.rows])
    return pilots.keep(mask), tuple(sorted(gone))


def _optimal_ratio(
    ln_a: float | FloatArray,
    ln_b: float | FloatArray,
    alpha: float | FloatArray,
    beta: float | FloatArray,
    compute_flop: float,
) -> FloatArray:
    """Return D/N at the optimum of A/N^alpha + B/D^beta with 6ND = C (Hoffmann 2022, eq. 4)."""
    ln_g = (np.log(alpha) + ln_a - np.log(beta) - ln_b) / (alpha + beta)
    ln_n = ln_g + beta / (alpha + beta) * np.log(compute_flop / 6.0)
    return np.asarray(np.exp(np.log(compute_flop / 6.0) - 2.0 * ln_n))
