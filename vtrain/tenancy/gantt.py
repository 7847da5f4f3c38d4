"""A picture of the cluster over time: one coloured bar for every stretch a job held nodes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from vtrain.tenancy.outcome import met_deadline
from vtrain.tenancy.placement import ranges

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Outcome

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1200.0, 520.0, 64.0, 34.0, 46.0
# Neighbouring job numbers get hues far apart: the golden angle in degrees.
_HUE_STEP = 137.508
_TICKS = (1.0, 2.0, 5.0, 10.0, 24.0, 48.0, 120.0, 240.0, 480.0, 1200.0, 2400.0, 4800.0)


_CHARACTER, _LINE = 6.8, 14.0
"""Width of a character and height of a line of the labels."""


class _Box(NamedTuple):
    """A rectangle in the picture's units."""

    x: float
    y: float
    width: float
    height: float

    def area(self) -> float:
        """Width times height."""
        return self.width * self.height


def gantt_svg(outcome: Outcome, *, gpus_per_node: int, title: str) -> str:
    """Draw a recorded run as SVG.

    Time runs to the right, nodes upwards; jobs that missed their deadline have a red edge. A
    job's name stands in its largest bar, if it fits; its dates appear where the pointer rests.

    Args:
        outcome: a run with its segments recorded.
        gpus_per_node: for the axis.
        title: headline.
    """
    start = min((seg.start_s for seg in outcome.segments), default=0.0)
    end = max((seg.end_s for seg in outcome.segments), default=1.0)
    per_s = (_WIDTH - _LEFT - 16.0) / max(end - start, 1e-9)
    per_node = (_HEIGHT - _TOP - _BOTTOM) / outcome.cluster_nodes
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="white"/>',
        f'<text x="{_LEFT:g}" y="20" font-size="14">{escape(title)}</text>',
    ]
    largest: dict[int, _Box] = {}
    for seg in outcome.segments:
        state = outcome.states[seg.job]
        late = state.job.has_deadline and not met_deadline(state)
        hue = (seg.job * _HUE_STEP) % 360.0
        edge = ' stroke="#c00" stroke-width="1"' if late else ""
        held = len(seg.nodes) * gpus_per_node
        label = escape(
            f"{state.job.name} ({state.job.model}): {held} GPUs, hour "
            f"{(seg.start_s - start) / 3600.0:.1f} to {(seg.end_s - start) / 3600.0:.1f}"
        )
        boxes = [
            _Box(
                x=_LEFT + (seg.start_s - start) * per_s, y=floor - (first + count) * per_node,
                width=max(0.2, (seg.end_s - seg.start_s) * per_s), height=count * per_node,
            )
            for first, count in ranges(seg.nodes)
        ]  # fmt: skip
        largest[seg.job] = max(*boxes, largest.get(seg.job, boxes[0]), key=_Box.area)
        shapes = "".join(
            f'<rect x="{b.x:.2f}" y="{b.y:.2f}" width="{b.width:.2f}" height="{b.height:.2f}"/>'
            for b in boxes
        )
        parts.append(f'<g fill="hsl({hue:.0f},62%,62%)"{edge}><title>{label}</title>{shapes}</g>')
    parts += [
        f'<text x="{b.x + b.width / 2:.1f}" y="{b.y + b.height / 2 + 4:.1f}" '
        f'text-anchor="middle" pointer-events="none">{escape(name)}</text>'
        for b, name in ((b, outcome.states[job].job.name) for job, b in largest.items())
        if b.width >= _CHARACTER * len(name) and b.height >= _LINE
    ]
    parts += _axes(end - start, per_s, floor, outcome.cluster_nodes, gpus_per_node, per_node)
    return "\n".join([*parts, "</svg>", ""])


def _axes(
    span_s: float, per_s: float, floor: float, nodes: int, gpus_per_node: int, per_node: float
) -> list[str]:
    """Return the lines and figures of both axes."""
    right = _LEFT + span_s * per_s
    step_h = next((t for t in _TICKS if span_s / 3600.0 / t <= 12.0), _TICKS[-1])
    out = [
        f'<path d="M{_LEFT:g} {_TOP:g} V{floor:g} H{right:.1f}" fill="none" stroke="#333"/>',
        f'<text x="{right:.1f}" y="{_HEIGHT - 8:g}" text-anchor="end">hours</text>',
        f'<text x="8" y="{_TOP - 8:g}">GPUs</text>',
    ]
    hour = 0.0
    while hour <= span_s / 3600.0:
        x = _LEFT + hour * 3600.0 * per_s
        out.append(f'<path d="M{x:.1f} {floor:g} v5" stroke="#333"/>')
        out.append(f'<text x="{x:.1f}" y="{floor + 18:g}" text-anchor="middle">{hour:g}</text>')
        hour += step_h
    for quarter in range(5):
        count = nodes * quarter // 4
        y = floor - count * per_node
        out.append(f'<path d="M{_LEFT - 5:g} {y:.1f} h5" stroke="#333"/>')
        out.append(
            f'<text x="{_LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">'
            f"{count * gpus_per_node}</text>"
        )
    return out
