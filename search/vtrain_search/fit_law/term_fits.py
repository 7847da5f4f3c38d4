"""Fits of the terms *inside* a loss law: aspect ratio, batch, and the Gemstones four-term form.

Each returns the model in centred logarithms with its analytic derivative for `robust.fit`. A term
fitted as a factor on the whole loss would tax the irreducible part too and grow with scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain_search.laws.terms.batch import tax_curve
from vtrain_search.laws.terms.shape import REFERENCE_PARAMETERS

from .robust import Exponents, FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeData:
    """Logarithms [rows] of non-embedding size, tokens and width/depth."""

    ln_n: FloatArray
    ln_d: FloatArray
    ln_aspect: FloatArray


def shape_exponents(data: ShapeData, *, mean_n: float, mean_d: float, with_rho: bool) -> Exponents:
    """Return the model with N_eff = N exp(-kappa (ln r - ln r0 - rho ln(N/4e8))^2).

    theta = ln E, a, b, alpha, beta, kappa, ln r0 and, when `with_rho`, rho.
    """
    scaled = data.ln_n - np.log(REFERENCE_PARAMETERS)

    def exponents(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        alpha, beta, kappa, ln_r0 = theta[3:7]
        rho = theta[7] if with_rho else 0.0
        off = data.ln_aspect - ln_r0 - rho * scaled
        x = data.ln_n - mean_n - kappa * off * off
        z = data.ln_d - mean_d
        u = np.stack([np.full_like(x, theta[0]), theta[1] - alpha * x, theta[2] - beta * z])
        du = np.zeros((3, x.size, theta.size))
        du[0, :, 0] = du[1, :, 1] = du[2, :, 2] = 1.0
        du[1, :, 3], du[2, :, 4] = -x, -z
        du[1, :, 5] = alpha * off * off
        du[1, :, 6] = -2.0 * alpha * kappa * off
        if with_rho:
            du[1, :, 7] = -2.0 * alpha * kappa * off * scaled
        return u, du

    return exponents


def shape_starts(ln_loss: FloatArray, *, with_rho: bool) -> FloatArray:
    """Return starts that spread over the aspect ratios and strengths in question."""
    mean = float(ln_loss.mean())
    rows = [
        [mean - 0.4, mean - 1.5, mean - 1.8, 0.35, 0.45, kappa, np.log(r0), rho]
        for kappa in (0.03, 0.1)
        for r0, rho in ((18.0, 0.05), (35.0, 0.2))
    ]
    return np.array(rows) if with_rho else np.array(rows)[:, :7]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchData:
    """Logarithms [rows] of size, tokens and batch over critical batch."""

    ln_n: FloatArray
    ln_d: FloatArray
    ln_ratio: FloatArray


def batch_exponents(data: BatchData, *, two_sided: bool = False) -> Exponents:
    """Return the model with D_eff = D exp(-q ln(B/B*)^2), the shipped tax curve.

    theta = ln E, a, b, alpha, beta, q above B*, and q below B* when `two_sided`.
    """
    above = data.ln_ratio >= 0.0
    x = data.ln_n - data.ln_n.mean()
    squared = tax_curve(data.ln_ratio)

    def exponents(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        alpha, beta = theta[3:5]
        q = np.where(above, theta[5], theta[6]) if two_sided else theta[5]
        z = data.ln_d - data.ln_d.mean() - q * squared
        u = np.stack([np.full_like(x, theta[0]), theta[1] - alpha * x, theta[2] - beta * z])
        du = np.zeros((3, x.size, theta.size))
        du[0, :, 0] = du[1, :, 1] = du[2, :, 2] = 1.0
        du[1, :, 3], du[2, :, 4] = -x, -z
        if two_sided:
            du[2, :, 5] = beta * squared * above
            du[2, :, 6] = beta * squared * ~above
        else:
            du[2, :, 5] = beta * squared
        return u, du

    return exponents


def power_exponents(logs: FloatArray) -> Exponents:
    """Return ln(e^t0 + sum_j exp(c_j - a_j logs_j)) for logs [variables, rows].

    theta = ln E, c of each variable, exponent of each variable. Two variables are the N-D law,
    four (width, depth, N, D) the Gemstones form.
    """
    variables, rows = logs.shape

    def exponents(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        scale, power = theta[1 : variables + 1], theta[variables + 1 :]
        u = np.empty((variables + 1, rows))
        u[0] = theta[0]
        u[1:] = scale[:, None] - power[:, None] * logs
        du = np.zeros((variables + 1, rows, theta.size))
        du[0, :, 0] = 1.0
        for j in range(variables):
            du[j + 1, :, 1 + j] = 1.0
            du[j + 1, :, 1 + variables + j] = -logs[j]
        return u, du

    return exponents
