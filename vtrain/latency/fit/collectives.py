"""Fits of collectives: inside an NVLink domain, and across domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.latency.fit.robust import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def intra_form(ranks: Array, bus_bytes: Array) -> Form:
    """T = a0 + a1 (n - 1) + w/B_n + c sqrt(w): constants a0, a1, c and one B a rank count.

    Args:
        ranks: n of every row.
        bus_bytes: w of every row.
    """
    counts = np.unique(ranks)
    column = np.searchsorted(counts, ranks)
    # With one rank count, a0 and a1 cannot be told apart.
    lowest, highest = (1e-9, 1e-9) if counts.size == 1 else (1e-9, 1e-4)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        a0, a1, c = x[0], x[1], x[2]
        w = bus_bytes[rows]
        out: Array = a0 + a1 * (ranks[rows] - 1) + w / x[3:][column[rows]] + c * np.sqrt(w)
        return out

    return Form(
        name="latency_sqrt_bandwidth",
        constants=("a0", "a1", "c", *(f"B{int(n)}" for n in counts)),
        start=(8e-6, min(1e-6, highest), 5e-9, *[2e11] * counts.size),
        low=(1e-7, lowest, 1e-12, *[1e9] * counts.size),
        high=(2e-4, highest, 1e-7, *[2e12] * counts.size),
        predict=predict,
    )


def alpha_beta_form(bus_bytes: Array) -> Form:
    """T = a + w/B: the usual model, for comparison."""

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        out: Array = x[0] + bus_bytes[rows] / x[1]
        return out

    return Form(
        name="alpha_beta",
        constants=("a", "B"),
        start=(2e-5, 2e11),
        low=(1e-7, 1e9),
        high=(1e-2, 2e12),
        predict=predict,
    )


def line_rate_form(bus_bytes: Array, bytes_per_s: float) -> Form:
    """Bus traffic over the datasheet bandwidth and nothing fitted."""

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        del x
        out: Array = bus_bytes[rows] / bytes_per_s
        return out

    return Form(name="roofline", constants=(), start=(), low=(), high=(), predict=predict)


def inter_form(domains: Array, bus_bytes: Array, line_bytes_per_s: float, most: float) -> Form:
    """T = L log2 N + w/B + (s0 + s1 log2 N) sqrt(w/B): constants L, s0, s1 and B / line rate.

    Args:
        domains: N of every row.
        bus_bytes: w of every row.
        line_bytes_per_s: NICs of a domain together, or its NVLink where that is less.
        most: highest share of it that may be fitted.
    """
    hops = np.log2(domains)

    def predict(x: Array, rows: NDArray[np.intp]) -> Array:
        hop_s, s0, s1, share = x
        seconds = bus_bytes[rows] / (share * line_bytes_per_s)
        n = hops[rows]
        out: Array = hop_s * n + seconds + (s0 + s1 * n) * np.sqrt(seconds)
        return out

    return Form(
        name="hops_sqrt_bandwidth",
        constants=("hop", "s0", "s1", "share"),
        start=(5e-5, 4e-3, 2e-3, 0.9),
        low=(1e-6, 1e-6, 1e-6, 0.3),
        high=(1e-3, 5e-2, 1e-1, most),
        predict=predict,
    )
