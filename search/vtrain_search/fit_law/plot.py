"""The fit as a picture: loss against compute, and what the law leaves unexplained."""

from __future__ import annotations

from html import escape

import numpy as np

from .pilot_fit import PilotFit
from .robust import FloatArray

_WIDTH, _HEIGHT = 720, 520
_LEFT, _RIGHT, _TOP, _SPLIT, _BOTTOM = 70, 700, 40, 340, 470
_MEASURED, _FITTED = "#1f5fa8", "#c8553d"


def svg(fit: PilotFit, title: str) -> str:
    """Return an SVG with measured and fitted loss above and residuals in % below."""
    compute = np.log10(6.0 * fit.pilots.parameters * fit.pilots.tokens)
    ln_fitted = fit.fitted.predict_ln(fit.points)
    residual_pct = 100.0 * (fit.points.ln_loss - ln_fitted)
    x = _scale(compute, _LEFT, _RIGHT)
    losses = np.concatenate([fit.pilots.loss, np.exp(ln_fitted)])
    y = _scale(losses, _SPLIT - 20, _TOP)
    bound = max(float(np.abs(residual_pct).max()), 1e-3)
    zero, half = (_SPLIT + _BOTTOM) / 2, (_BOTTOM - _SPLIT) / 2
    n = len(fit.points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    parts += [
        f'<line x1="{x[i]:.1f}" y1="{y[i]:.1f}" x2="{x[i]:.1f}" y2="{y[n + i]:.1f}" stroke="#999"/>'
        for i in range(n)
    ]
    parts += [_dot(x[i], y[n + i], _FITTED) for i in range(n)]
    parts += [_dot(x[i], y[i], _MEASURED) for i in range(n)]
    parts += [_dot(x[i], zero - half * residual_pct[i] / bound, _MEASURED) for i in range(n)]
    parts += [
        f'<line x1="{_LEFT}" y1="{zero}" x2="{_RIGHT}" y2="{zero}" stroke="#333"/>',
        _label(_LEFT - 8, _TOP + 8, f"{losses.max():.3g}", "end"),
        _label(_LEFT - 8, _SPLIT - 16, f"{losses.min():.3g}", "end"),
        _label(_LEFT - 8, _SPLIT + 8, f"+{bound:.2g} %", "end"),
        _label(_LEFT - 8, _BOTTOM, f"-{bound:.2g} %", "end"),
        _label(_LEFT, _BOTTOM + 20, f"{10 ** compute.min():.2g} FLOP", "start"),
        _label(_RIGHT, _BOTTOM + 20, f"{10 ** compute.max():.2g} FLOP", "end"),
        _dot(_LEFT + 210, _BOTTOM + 36, _MEASURED),
        _label(_LEFT + 220, _BOTTOM + 40, "measured, nats/token", "start"),
        _dot(_LEFT + 370, _BOTTOM + 36, _FITTED),
        _label(_LEFT + 380, _BOTTOM + 40, "fitted", "start"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def text(fit: PilotFit, width: int = 41) -> str:
    """Return the residuals as a character plot, one line a tenth of the runs by compute."""
    order = np.argsort(fit.points.ln_n + fit.points.ln_d, kind="stable")
    residual_pct = 100.0 * (fit.points.ln_loss - fit.fitted.predict_ln(fit.points))[order]
    compute = (6.0 * fit.pilots.parameters * fit.pilots.tokens)[order]
    bound = max(float(np.abs(residual_pct).max()), 1e-3)
    head = f"-{bound:.2g}%".ljust(width // 2) + "0" + f"+{bound:.2g}%".rjust(width // 2)
    lines = [" " * 14 + head]
    for part in np.array_split(np.arange(order.size), min(10, order.size)):
        cells = np.round((residual_pct[part] / bound + 1.0) / 2.0 * (width - 1)).astype(int)
        row = [" "] * width
        row[width // 2] = "|"
        for cell in cells:
            row[cell] = "o"
        lines.append(f"{np.median(compute[part]):9.2g} FLOP" + "".join(row).rstrip())
    return "\n".join(lines)


def _scale(values: FloatArray, low: float, high: float) -> FloatArray:
    span = float(values.max() - values.min()) or 1.0
    return np.asarray(low + (values - values.min()) / span * (high - low))


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7"/>'


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
