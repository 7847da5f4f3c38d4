"""The coarse scan: where, roughly, the best architecture of a budget lies.

Every width and depth is scored at once under one assumption, the same MFU for all. That is wrong
by tens of percent in time and therefore by little in size: the optimum in parameters is flat (2 x
off costs 17 % of compute, 1.33 x off 3 %, refit of Besiroglu et al. 2024). It says where to start
and which box to sample, never what to answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain_search.laws import Designs, critical_batch_tokens
from vtrain_search.space import Axis, Point, parameters_non_embedding
from vtrain_search.target import tokens_for_loss
from vtrain_search.window import TYPICAL_MFU, peak_flops, usable_gpu_hours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain_search.problem import Case, Problem

    FloatArray = NDArray[np.float64]

BOX_SHARE = 0.08
"""Shapes that cost up to this share of the budget, by the scan, span the sampler's box."""
START_SHARE = 0.10
"""Starting points are drawn from shapes within this share."""
PINNED_SPEEDS = (0.7, 0.85, 1.0, 1.2, 1.45)
"""MFU over the assumed one (0.32 to 0.65) at which the scan looks where tokens are pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """Result of the coarse scan.

    Attributes:
        axes: the sampler's dimensions, cut to the promising box.
        start: starting points, the most promising first, spread over size and aspect.
        ladder: ever smaller models, for a budget under which no starting point is feasible.
    """

    axes: tuple[Axis, ...]
    start: tuple[Point, ...]
    ladder: tuple[Point, ...] = ()


def grid_points(problem: Problem, case: Case, *, share: float) -> tuple[Point, ...]:
    """Return every shape that, by the coarse scan, costs at most a share of the budget.

    Args:
        problem: space, loss model, sequence length.
        case: budget and limits.
        share: share of the budget (0-1).
    """
    space = problem.space
    if space.fixed is not None:
        return (space.point(),)
    widths = np.array(space.hidden_size, dtype=np.float64)[:, None]
    depths = np.array(space.layers, dtype=np.float64)[None, :]
    shares, _ = _shares(problem, case, widths, depths)
    found = (
        space.point(hidden_size=float(space.hidden_size[i]), layers=float(space.layers[j]))
        for i, j in np.argwhere(shares <= share)
    )
    return tuple(dict.fromkeys(p for p in found if space.is_valid(p)))


def points_of_size(
    problem: Problem, case: Case, parameters: float, *, count: int = 6, slack: float = 1.1
) -> tuple[Point, ...]:
    """Return the most promising shapes of about one size, by the coarse scan.

    Args:
        problem: space, loss model, sequence length.
        case: budget and limits.
        parameters: wanted size.
        count: shapes at most.
        slack: largest factor by which a size may differ.
    """
    space = problem.space
    if space.fixed is not None:
        return ()
    widths = np.array(space.hidden_size, dtype=np.float64)[:, None]
    depths = np.array(space.layers, dtype=np.float64)[None, :]
    share, sizes = _shares(problem, case, widths, depths)
    near = np.abs(np.log(sizes / parameters)) <= np.log(slack)
    share = np.where(near, share, np.inf)
    return _spread(problem, share, sizes, count)


def scan(problem: Problem, case: Case, *, points: int) -> Scan:
    """Score every width and depth of the space under one assumed MFU.

    Args:
        problem: space, loss model, sequence length.
        case: budget and limits.
        points: starting points wanted.
    """
    space = problem.space
    if space.fixed is not None or not space.axes():
        return Scan(axes=(), start=(space.point(),))
    widths = np.array(space.hidden_size, dtype=np.float64)[:, None]
    depths = np.array(space.layers, dtype=np.float64)[None, :]
    share, parameters = _shares(problem, case, widths, depths)
    box = share <= BOX_SHARE
    if not box.any():
        box = share <= np.nanmin(share)
    rows, columns = np.flatnonzero(box.any(axis=1)), np.flatnonzero(box.any(axis=0))
    limits = {"hidden_size": (rows[0], rows[-1]), "layers": (columns[0], columns[-1])}
    axes = []
    for axis in space.axes():
        low, high = limits.get(axis.name, (0, len(axis.values) - 1))
        axes.append(Axis(axis.name, axis.values[low : high + 1]))
    start = _spread(problem, share, parameters, points)
    ladder = _ladder(problem, share, parameters)
    return Scan(axes=tuple(a for a in axes if len(a.values) > 1), start=start, ladder=ladder)


def _shares(
    problem: Problem, case: Case, widths: FloatArray, depths: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return, for every width x depth, the share of budget lost and the parameters."""
    space = problem.space
    examples = [space.point(hidden_size=w) for w in space.hidden_size]
    ffn = np.array([p.ffn_hidden_size for p in examples], dtype=np.float64)[:, None]
    kv = np.array([p.num_key_value_heads for p in examples], dtype=np.float64)[:, None]
    head_dim = examples[0].head_dim
    own = parameters_non_embedding(widths, depths, ffn, kv, head_dim)
    # Two FLOPs a weight and token forward, twice that backward; scores and values at full s^2.
    flops = 6.0 * (own + space.vocab_size * widths) + 12.0 * problem.seq_length * widths * depths
    parameters = own + 2.0 * space.vocab_size * widths
    tokens = np.zeros_like(flops)
    for offer in case.offers:
        hours = usable_gpu_hours(problem, case, offer, 1.0, None)
        bought = TYPICAL_MFU * peak_flops(problem, offer) * hours * 3600.0 / flops
        if case.flop is not None:
            bought = np.minimum(bought, case.flop / flops)
        tokens = np.maximum(tokens, np.broadcast_to(bought, flops.shape))

    def designs_with(trained: FloatArray) -> Designs:
        return Designs(
            parameters_non_embedding=own,
            tokens=trained,
            hidden_size=widths,
            num_layers=depths,
            head_dim=np.asarray(head_dim, dtype=np.float64),
            global_batch_tokens=critical_batch_tokens(trained),
        )

    if case.target_loss is not None:
        wanted = tokens_for_loss(problem.loss, designs_with, case.target_loss, flops.shape)
        wanted = np.maximum(wanted, problem.min_tokens_per_parameter * parameters)
        # Twice the typical speed is possible; what is not affordable even then is left out.
        price = np.where(wanted <= 2.0 * tokens, wanted * flops, np.inf)
        if not np.isfinite(price).any():
            # Not affordable, or no tokens are enough: the cheapest, or the largest, comes closest.
            reachable = np.isfinite(wanted)
            price = np.where(reachable, wanted * flops, np.inf) if reachable.any() else 1 / flops
        return np.asarray(np.log(price / price.min())), parameters
    floor = problem.min_tokens_per_parameter * parameters
    fixed = case.fixed_tokens(parameters)
    if fixed is None:
        return _lost(problem, designs_with(tokens), tokens >= floor, parameters), parameters
    designs = designs_with(np.broadcast_to(fixed, flops.shape))
    # Pinned tokens make a hard edge: the best size is the largest that is affordable, and which
    # that is depends on the MFU of its plans. Every size that any usual MFU affords is promising.
    edges = [(tokens * speed >= fixed) & (fixed >= floor) for speed in PINNED_SPEEDS]
    edges = [edge for edge in edges if edge.any()] or edges[-1:]
    return np.min([_lost(problem, designs, e, parameters) for e in edges], axis=0), parameters


def _lost(
    problem: Problem, designs: Designs, allowed: NDArray[np.bool_], parameters: FloatArray
) -> FloatArray:
    """Return the share of the budget that every design loses to the best allowed one."""
    loss = np.where(allowed, problem.loss.loss(designs), np.inf)
    if not allowed.any():
        # The budget is under the sanity floor: the smallest models come closest.
        loss = parameters
    best = np.unravel_index(int(np.argmin(loss)), loss.shape)
    slope = -problem.loss.dloss_dlntokens(designs)[best]
    return np.asarray((loss - loss[best]) / slope)


def _ladder(problem: Problem, share: FloatArray, parameters: FloatArray) -> tuple[Point, ...]:
    """Return the best-shaped model of each half octave of size below the optimum."""
    best = parameters.ravel()[int(np.argmin(share))]
    found: list[Point] = []
    size = best / 2.0
    while size >= parameters.min() / 1.2:
        near = np.abs(np.log(parameters / size)) <= np.log(2.0) / 2.0
        found += _spread(problem, np.where(near, share, np.inf), parameters, 1)
        size /= 2.0
    smallest = problem.space.point(
        hidden_size=float(problem.space.hidden_size[0]), layers=float(problem.space.layers[0])
    )
    if problem.space.is_valid(smallest):
        found.append(smallest)
    return tuple(dict.fromkeys(found))


def _spread(
    problem: Problem, share: FloatArray, parameters: FloatArray, points: int
) -> tuple[Point, ...]:
    """Pick round shapes near the optimum, each far from those before in size and aspect."""
    space = problem.space
    widths, depths = np.array(space.hidden_size), np.array(space.layers)
    round_width = np.where(widths >= 4096, 512, np.where(widths >= 2048, 256, 128))
    round_depth = np.where(depths >= 32, 8, np.where(depths >= 12, 4, 1))
    rounded = (widths % round_width == 0)[:, None] & (depths % round_depth == 0)[None, :]
    good = np.flatnonzero((rounded & (share <= START_SHARE)).ravel())
    if len(good) < points:
        pool = np.flatnonzero(np.isfinite(share).ravel())
        order = pool[np.argsort(share.ravel()[pool], kind="stable")]
        good = np.concatenate([good, order[~np.isin(order, good)][: points - len(good)]])
    if not len(good):
        return ()
    size = np.log(np.broadcast_to(parameters, share.shape).ravel()[good])
    aspect = np.log(np.broadcast_to(widths[:, None] / depths[None, :], share.shape).ravel()[good])
    place = np.stack([size / 2.0, aspect / 3.0])
    chosen = [int(np.argmin(share.ravel()[good]))]
    distance = np.full(len(good), np.inf)
    while len(chosen) < min(points, len(good)):
        last = place[:, chosen[-1]][:, None]
        distance = np.minimum(distance, np.square(place - last).sum(axis=0))
        distance[chosen] = -1.0
        chosen.append(int(np.argmax(distance)))
    picks = [np.unravel_index(int(good[i]), share.shape) for i in chosen]
    found = [space.point(hidden_size=float(widths[i]), layers=float(depths[j])) for i, j in picks]
    return tuple(dict.fromkeys(p for p in found if space.is_valid(p)))
