"""Local polish: every design one step away from the best, along an axis or along equal size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtrain_search.space import OuterSpace, Point

_WIDTH_STEPS = (1, 2, 3)
_DEPTH_STEPS = (1, 2, 4, 8)
_ROUND_DEPTHS = (1, 4, 6, 8)


def neighbours(space: OuterSpace, best: Point) -> list[Point]:
    """Return valid points near the best one, each once, in a fixed order.

    Steps along one axis change the size; composite steps change the aspect at equal size (width
    squared times depth), with the depth rounded to multiples that pipelines can divide.

    Args:
        space: the outer space.
        best: where to look around.
    """
    if space.fixed is not None:
        return []
    width, depth = best.hidden_size, best.layers
    pairs: list[tuple[float, float]] = []
    at = space.hidden_size.index(width) if width in space.hidden_size else None
    near = [] if at is None else [
        float(space.hidden_size[i])
        for step in _WIDTH_STEPS for i in (at + step, at - step)
        if 0 <= i < len(space.hidden_size)
    ]  # fmt: skip
    pairs += [(other, depth) for other in near]
    for step in _DEPTH_STEPS:
        pairs += [(width, depth + step), (width, depth - step)]
    for other in near:
        same_size = depth * (width / other) ** 2
        pairs += [(other, max(1, round(same_size / m)) * m) for m in _ROUND_DEPTHS]
    common = {
        "head_dim": float(best.head_dim),
        "num_key_value_heads": float(best.num_key_value_heads),
        "ffn_hidden_size": float(best.ffn_hidden_size),
        "ffn_ratio": best.ffn_hidden_size / best.hidden_size,
    }
    widths, depths = set(space.hidden_size), set(space.layers)
    found = [
        space.point(**{**common, "hidden_size": w, "layers": d})
        for w, d in pairs
        if w in widths and d in depths
    ]
    own = {"hidden_size": float(width), "layers": float(depth)}
    for axis in space.axes():
        if axis.name in ("hidden_size", "layers"):
            continue
        own_at = axis.nearest(common[axis.name])
        for other_at in (own_at - 2, own_at - 1, own_at + 1, own_at + 2):
            if 0 <= other_at < len(axis.values):
                chosen = {**common, **own, axis.name: axis.values[other_at]}
                found.append(space.point(**chosen))
    return [p for p in dict.fromkeys(found) if p != best and space.is_valid(p)]
