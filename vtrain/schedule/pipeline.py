"""How long a pipeline takes to run its micro-batches, in closed form.

Stages differ at most in three ways (the first holds the embedding, the last the head and loss,
the inner ones the heaviest share of layers), so a table row needs three times only and the cost
does not grow with stages or micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


def pipeline_seconds(
    schedule: str,
    *,
    first_s: Array,
    inner_s: Array,
    last_s: Array,
    weight_gradient_s: Array,
    pp: Array,
    virtual_stages: Array,
    num_micro_batches: Array,
) -> Array:
    """Return the seconds from the first forward to the last backward of one step.

    1F1B with m >= pp micro-batches is bound by one stage i at a time: the first micro-batch
    travels to the end and back to i, stage i works without a pause until its last forward, and
    that micro-batch again travels to the end and back. With w_i the forward and backward time of
    stage i this path takes

        sum_j w_j + (m - 1) w_i - sum_{j > i} (w_i - w_j),

    and the step takes the longest of them; equal stages give the textbook (m + pp - 1) w
    (Narayanan et al. 2021, arXiv 2104.04473, §2.2). With fewer micro-batches than stages nothing
    of the last term can be saved.

    Interleaved 1F1B fills and drains in chunks of w_i / v (same paper): the last rank works
    without a pause, and the inner ranks' chunks before and behind it cost one chunk time each.

    GPipe takes as long as 1F1B. ZB-H1 fills its bubble with weight gradients: (pp - 1) times
    (w - 2 W) is left of it, W the weight-gradient share (Qi et al. 2023, arXiv 2401.10241,
    table 2: T_F + T_B - T_W).

    Args:
        schedule: "1f1b", "gpipe" or "zb-h1".
        first_s: forward and backward seconds of one micro-batch on the first rank, [n].
        inner_s: the same on an inner rank.
        last_s: the same on the last rank.
        weight_gradient_s: the weight-gradient share of an inner rank's seconds.
        pp: pipeline ranks.
        virtual_stages: chunks on each rank.
        num_micro_batches: micro-batches of a step.

    Returns:
        Seconds, [n].
    """
    one = pp <= 1.0
    inner = np.where(pp > 2.0, inner_s, 0.0)
    inner_count = np.maximum(pp - 2.0, 0.0)
    total = first_s + inner_count * inner_s + last_s
    steady = num_micro_batches - 1.0
    full = num_micro_batches >= pp
    # Saved at the end of a path that stays on the first (inner) rank: later ranks are faster.
    first_saves = np.where(
        full, inner_count * (first_s - inner_s) + (first_s - last_s), 0.0
    )
    inner_saves = np.where(full, inner - np.minimum(last_s, inner), 0.0)
    path_first = steady * first_s - first_saves
    path_inner = np.where(pp > 2.0, steady * inner_s - inner_saves, 0.0)
    path_last = steady * last_s
    plain = total + np.maximum(np.maximum(path_first, path_inner), path_last)
    if schedule == "zb-h1":
        plain = plain - 2.0 * weight_gradient_s * np.minimum(pp - 1.0, steady)
    elif bool(np.any(virtual_stages > 1.0)):
        chunks = (first_s + inner_count * inner_s + last_s) / virtual_stages
        heaviest = np.maximum(np.maximum(first_s, inner), last_s)
        woven = num_micro_batches * heaviest + chunks - heaviest / virtual_stages
        plain = np.where(virtual_stages > 1.0, woven, plain)
    return np.where(one, num_micro_batches * first_s, plain)
