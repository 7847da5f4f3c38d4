"""How long a pipeline takes to run its micro-batches, in closed form.

Stages differ in three ways at most (the first holds the embedding, the last the head and loss,
the inner ones share the other layers), so a row needs a few times only, and the cost does not
grow with stages or micro-batches. Every formula is the longest of the paths through the task
graph that stay on one rank while the pipeline is full: down to that rank, its work, and out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


class WeightLoad(NamedTuple):
    """Weight-gradient part of the backward of the first, the inner and the last rank, [n]."""

    first_s: Array
    inner_s: Array
    last_s: Array


class RoundLoad(NamedTuple):
    """What decides how fast chunks go round the ranks of an interleaved pipeline, [n].

    Attributes:
        entry_forward_s: first chunk of rank 0.
        entry_backward_s: the same, backward.
        plain_forward_s: a chunk without embedding or head, with the dearest send of any rank.
        plain_backward_s: the same, backward.
        ring_flight_s: seconds a message is under way, after it has left its rank, once round all
            ranks and back to the first.
        last_lag_s: how much less the last rank's backward send holds it than the dearest send.
    """

    entry_forward_s: Array
    entry_backward_s: Array
    plain_forward_s: Array
    plain_backward_s: Array
    ring_flight_s: Array
    last_lag_s: Array


class PipelineLoad(NamedTuple):
    """What the ranks of a pipeline do for one micro-batch; seconds, arrays over plans [n].

    Forward and backward include the sends that block their rank.

    Attributes:
        first_forward_s: rank 0.
        first_backward_s: the same, backward.
        inner_forward_s: the inner rank that sets the pace (the latest of equals); with pp = 2 a
            rank with neither embedding nor head.
        inner_backward_s: the same, backward.
        last_forward_s: the last rank.
        last_backward_s: the same, backward.
        inner_total_s: forward and backward of all inner ranks together; 0 where pp < 3.
        behind_s: of it, the inner ranks behind the one that sets the pace.
        behind: how many those are.
        drain_s: what the last gradient loses on its way out to traffic it shares NICs with.
        rounds: only where a plan is interleaved.
        weights: only for zb-h1.
    """

    first_forward_s: Array
    first_backward_s: Array
    inner_forward_s: Array
    inner_backward_s: Array
    last_forward_s: Array
    last_backward_s: Array
    inner_total_s: Array
    behind_s: Array
    behind: Array
    drain_s: Array
    rounds: RoundLoad | None
    weights: WeightLoad | None


def pipeline_seconds(
    schedule: str,
    load: PipelineLoad,
    *,
    pp: Array,
    virtual_stages: Array,
    num_micro_batches: Array,
) -> Array:
    """Return the seconds from the first forward to the end of the last task of a step, [n].

    Against the task graph (`vtrain.simulate`): equal to rounding for most plans and within 0.5 %
    for 1F1B and interleaving with at least pp micro-batches, whatever the ends hold. Left out:

    * inner ranks that hold different numbers of layers (found: up to 1.3 %, 4 % where NVLink and
      network boundaries mix as well), more so with fewer micro-batches than stages;
    * interleaving whose stages straddle NVLink domains, so that one rank pays for two network
      sends and the last does not (up to 2 %), or whose ranks hold unequal chunks;
    * interleaving where rank 0 works longer than all others (an embedding dearer than the head);
    * the first message of a step that shares a NIC with parameters still being gathered, and
      gradient traffic of ranks much heavier than the first (up to 0.9 % of very short stages);
    * zb-h1 on unequal ranks (up to 5 %, most with few micro-batches).

    Args:
        schedule: "1f1b", "gpipe" or "zb-h1".
        load: what the ranks do.
        pp: pipeline ranks.
        virtual_stages: chunks on each rank; above 1 the schedule is interleaved 1F1B.
        num_micro_batches: micro-batches of a step.
    """
    if schedule == "gpipe":
        seconds = _gpipe(load, pp, num_micro_batches)
    elif load.weights is not None:
        seconds = _zero_bubble(load, load.weights, pp, num_micro_batches)
    else:
        seconds = _one_f_one_b(load, pp, num_micro_batches)
        if load.rounds is not None:
            interleaved = _interleaved(load, load.rounds, pp, virtual_stages, num_micro_batches)
            seconds = np.where(virtual_stages > 1.0, interleaved, seconds)
    alone = num_micro_batches * (load.first_forward_s + load.first_backward_s)
    return np.where(pp <= 1.0, alone, seconds)


def busiest_seconds(load: PipelineLoad, pp: Array) -> Array:
    """Return how long the busiest rank works on one micro-batch, [n]."""
    first = load.first_forward_s + load.first_backward_s
    inner = load.inner_forward_s + load.inner_backward_s
    last = load.last_forward_s + load.last_backward_s
    ends = np.where(pp > 1.0, np.maximum(first, last), first)
    return np.where(pp > 2.0, np.maximum(ends, inner), ends)


def _one_f_one_b(load: PipelineLoad, pp: Array, m: Array) -> Array:
    """Longest path of 1F1B.

    Rank i runs n = pp - 1 - i forwards before its first backward, which waits for the first
    micro-batch to travel to the end and back (or for those n forwards, whichever is longer);
    then it works without a pause until its last forward, and the same again on the way out.
    With w_j forward and backward of rank j, and m > n:

        sum_{j<i} w_j + w_i + max(sum_{j>i} w_j, n f_i) + (m - 1 - n) w_i + max(.., n b_i).

    Equal ranks give the textbook (m + pp - 1) w (Narayanan et al. 2021, arXiv 2104.04473, §2.2).
    A last rank that works less than a forward (in) or a backward (out) of any rank before it
    cannot help: the next micro-batch is not there yet.
    """
    return _longest(load, pp, m, (0.0, 0.0, 0.0))


def _longest(load: PipelineLoad, pp: Array, m: Array, weights: tuple[Array | float, ...]) -> Array:
    """Longest path of 1F1B; `weights` are tasks that follow a backward and hold up nobody else.

    They belong to the first, the inner and the last rank; pp of each come after the last forward,
    those of the micro-batches that are then still to come back.
    """
    first_weight, inner_weight, last_weight = weights
    first = load.first_forward_s + load.first_backward_s
    inner = load.inner_forward_s + load.inner_backward_s
    last = load.last_forward_s + load.last_backward_s
    has_inner = pp > 2.0
    total = first + load.inner_total_s + last + load.drain_s
    steady = np.maximum(m - pp, 0.0)
    first_out = load.first_backward_s + first_weight
    inner_out = load.inner_backward_s + inner_weight
    last_in = np.maximum(last, np.maximum(load.first_forward_s, has_inner * load.inner_forward_s))
    last_out = np.maximum(last, np.maximum(first_out, has_inner * inner_out)) + load.drain_s

    def path(
        forward: Array, pair: Array, out: Array, weight: Array | float, before: Array | float,
        after: Array, n: Array,
    ) -> Array:  # fmt: skip
        full = (
            before
            + (m - n) * pair
            + steady * weight
            + np.maximum(after + last_in, n * forward)
            + np.maximum(after + last_out, n * out)
        )
        short = total + (m - 1.0) * np.maximum(forward, pair - forward)
        return np.where(m > n, full, short)

    from_first = path(
        load.first_forward_s, first, first_out, first_weight, 0.0,
        load.inner_total_s, pp - 1.0,
    )  # fmt: skip
    from_inner = path(
        load.inner_forward_s, inner, inner_out, inner_weight,
        first + load.inner_total_s - load.behind_s - inner, load.behind_s, load.behind + 1.0,
    )  # fmt: skip
    from_last = total + (m - 1.0) * last + steady * last_weight
    longest: Array = np.maximum(from_first, from_last)
    if load.weights is not None:
        # Weight gradients between the last backwards make it best to wait where most are left.
        from_earliest = path(
            load.inner_forward_s, inner, inner_out, inner_weight, first,
            load.inner_total_s - inner, pp - 2.0,
        )  # fmt: skip
        from_inner = np.maximum(from_inner, from_earliest)
    return np.where(has_inner, np.maximum(longest, from_inner), longest)


def _gpipe(load: PipelineLoad, pp: Array, m: Array) -> Array:
    """Longest path of GPipe: the slowest rank sets the pace of each of its two sweeps."""
    forward = np.maximum(load.first_forward_s, load.last_forward_s)
    backward = np.maximum(load.first_backward_s, load.last_backward_s)
    has_inner = pp > 2.0
    forward = np.where(has_inner, np.maximum(forward, load.inner_forward_s), forward)
    backward = np.where(has_inner, np.maximum(backward, load.inner_backward_s), backward)
    first = load.first_forward_s + load.first_backward_s
    last = load.last_forward_s + load.last_backward_s
    way = first + load.inner_total_s + last + load.drain_s
    longest: Array = way + (m - 1.0) * (forward + backward)
    return longest


def _zero_bubble(load: PipelineLoad, weights: WeightLoad, pp: Array, m: Array) -> Array:
    """Longest path of ZB-H1.

    As 1F1B with u_j, forward and input gradient, in place of w_j; the rank that sets the pace
    also runs its weight gradients W_i, but pp of them after its last forward, and rank 0 ends
    the step with one of its own; those come between the last gradient and the reduction, so
    nothing shares a NIC. Equal ranks give m w + (pp - 1)(F + B - W) (Qi et al. 2023,
    arXiv 2401.10241, table 2). A rank may also end the step with the weight gradients it kept.
    """
    inner_count = np.maximum(pp - 2.0, 0.0)
    without = load._replace(
        first_backward_s=load.first_backward_s - weights.first_s,
        inner_backward_s=load.inner_backward_s - weights.inner_s,
        last_backward_s=load.last_backward_s - weights.last_s,
        inner_total_s=load.inner_total_s - inner_count * weights.inner_s,
        behind_s=load.behind_s - load.behind * weights.inner_s,
        drain_s=np.zeros_like(m),
    )
    out = _longest(without, pp, m, weights) + weights.first_s
    # The last rank reaches its first task after the forwards before it and never waits again.
    reached = load.first_forward_s + inner_count * load.inner_forward_s
    longest: Array = np.maximum(out, reached + m * (load.last_forward_s + load.last_backward_s))
    return longest


def _interleaved(load: PipelineLoad, round_: RoundLoad, pp: Array, v: Array, m: Array) -> Array:
    """Longest path of interleaved 1F1B.

    In groups of pp micro-batches the forwards of one chunk leave rank 0 just as those of the
    chunk before have come round, so the last rank works without a pause from its first task to
    its last: m w and the pp - 1 chunks before and behind it (Narayanan et al. 2021, arXiv
    2104.04473, §2.2). Nothing has slack in these rounds, v - 1 of them each way: each costs what
    a message spends in flight on its way round, or what pp tasks of this rank are faster than pp
    of the rank with the dearest send, whichever is more; and a first chunk that is longer than
    the others (the embedding) holds up each of the pp micro-batches of a group.

    Where the head costs less than the sends an end rank is spared, an inner rank sets the pace.
    Its wait for the first backward and for the last gradient is a chunk of each rank behind it
    less the two tasks it runs meanwhile for each.
    """
    first = load.first_forward_s + load.first_backward_s
    last = load.last_forward_s + load.last_backward_s
    inner = load.inner_forward_s + load.inner_backward_s
    ring, rounds = round_.ring_flight_s, v - 1.0
    held_forward = (pp - 1.0) * (round_.entry_forward_s - round_.plain_forward_s) - ring
    held_backward = (pp - 1.0) * (round_.entry_backward_s - round_.plain_backward_s) - ring
    way = (
        round_.entry_forward_s + round_.entry_backward_s
        + np.maximum(held_forward, 0.0) + np.maximum(held_backward, load.drain_s)
        + load.inner_total_s / v + rounds * ring + 2.0 * (1.0 - 1.0 / pp) * ring
    )  # fmt: skip
    path_last = m * last + way + rounds * np.maximum(pp * round_.last_lag_s, ring)
    step = 2.0 * ring / pp
    n = load.behind + 1.0
    after = load.behind_s / v + inner / v + last - inner + n * step
    waits = np.maximum(after - 2.0 * n * load.inner_forward_s / v, 0.0) + np.maximum(
        after - 2.0 * n * load.inner_backward_s / v, 0.0
    )
    # Of two inner ranks on either side of a dear boundary one is the slower forward, the other
    # backward: the longest path changes over between them.
    path_inner = m * inner + way - (load.behind_s + inner) / v + waits - n * step + rounds * ring
    longest = np.where(pp > 2.0, np.maximum(path_last, path_inner), path_last)
    at_least: Array = np.maximum(longest, m * first + 2.0 * v * ring - step)
    return at_least
