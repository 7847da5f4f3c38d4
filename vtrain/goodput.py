"""Goodput: the share of wall time that advances training.

Failures arrive at random at a constant rate a GPU-hour; each costs a restart and the work since
the last checkpoint, and each checkpoint stops training while it is written. Daly (2006, "A higher
order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22, eq. 13) gives the expected wall time of work split into segments of length tau with
checkpoints of delta, restarts of R and a mean time between failures M:

    wall / work = M / tau * exp(R / M) * (exp((tau + delta) / M) - 1)

Minimising over tau leads, with x = tau / M, to log(1 - x) + x = -delta / M, and there

    goodput = (1 - x) exp(-R / M).

The first term of x is sqrt(2 delta / M), Young's rule (1974). Failures during a restart are in
the formula; planned maintenance and idle time for want of spare nodes are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16384)
"""Unexpected interruptions of Llama 3 405B: 419 in 54 days on 16,384 H100 (arXiv 2407.21783,
section 3.3.4), one in 50,700 GPU-hours. Other published clusters lie within a factor of four, see
PUBLISHED_FAILURES."""

RESTART_S = 600.0
"""Seconds from failure to training again: detection, diagnosis, node replacement, loading.
MegaScale (arXiv 2402.15627) finds and diagnoses a failure in under 10 minutes on average; a
504-GPU B200 cluster retries after a median of 11 minutes, interquartile 10 to 11 (arXiv
2605.09370)."""

CHECKPOINT_BYTES_PER_S_PER_GPU = 20e9 / 256
"""Checkpoint write rate a GPU: 20 GB/s for a scalable unit of 32 nodes with 8 GPUs, the write
rate of the "better" of three storage classes (DGX SuperPOD reference architecture for DGX H100,
RA-11333-001, table 6; "good" 7, "best" 62 GB/s). Training waits for the write; asynchronous
writers wait less."""

CHECKPOINT_BYTES_PER_PARAMETER = 12.0
"""fp32 master weights and the two Adam moments; the bf16 copy is made from the master."""

PUBLISHED_FAILURES = {
    "Llama 3 405B, H100 (arXiv 2407.21783)": 419 / (54 * 24 * 16384),
    "RSC-1, A100, 6.50 per 1,000 node-days (arXiv 2410.21680)": 6.50 / (1000 * 24 * 8),
    "RSC-2, A100, 2.34 per 1,000 node-days (arXiv 2410.21680)": 2.34 / (1000 * 24 * 8),
    "BLOOM, A100, 1 to 2 GPUs a week of 384 (arXiv 2211.05100)": 1.5 / (7 * 24 * 384),
    "OPT-175B, A100, 35 manual and 70 automatic restarts in 2 months of 992 (arXiv 2205.01068)": (
        105 / (61 * 24 * 992)
    ),
}
"""Failures per GPU-hour by source, for comparison with the default."""

_NEWTON_STEPS = 3
_TINY = 1e-9
_LEAST = 1e-30
_BELOW_ONE = 1.0 - 2.0**-53


def optimal_interval_share(write_share: ArrayLike) -> NDArray[np.float64]:
    """Return the best checkpoint interval as a share of the mean time between failures.

    Solves log(1 - x) + x = -d; Newton from a two-term start is within 1e-8 after three steps for
    any d.

    Args:
        write_share: d, checkpoint write time over mean time between failures, any shape.

    Returns:
        x in [0, 1), same shape.
    """
    d = np.asarray(write_share, dtype=np.float64)
    # 1 - x = -W0(-exp(-1 - d)): sqrt(2 d) - 2 d / 3 for small d, one fixed-point step for large.
    root = np.sqrt(2.0 * d)
    rest = np.exp(-1.0 - d)
    x = np.where(d < 0.3, root - root * root / 3.0, 1.0 - rest * np.exp(rest))
    for _ in range(_NEWTON_STEPS):
        x = np.clip(x, _TINY, _BELOW_ONE)
        x = x + (np.log1p(-x) + x + d) * (1.0 - x) / x
    return np.clip(x, 0.0, _BELOW_ONE)


def checkpoint_interval_s(
    gpus: ArrayLike,
    *,
    state_bytes: ArrayLike,
    failures_per_gpu_hour: float = FAILURES_PER_GPU_HOUR,
    write_bytes_per_s_per_gpu: float = CHECKPOINT_BYTES_PER_S_PER_GPU,
) -> NDArray[np.float64]:
    """Return the seconds of training between checkpoints that lose the least time.

    Arguments as in `goodput`.
    """
    count = np.asarray(gpus, dtype=np.float64)
    mtbf_s = 3600.0 / (failures_per_gpu_hour * count)
    write_s = np.asarray(state_bytes, dtype=np.float64) / (write_bytes_per_s_per_gpu * count)
    return optimal_interval_share(write_s / mtbf_s) * mtbf_s


def goodput(
    gpus: ArrayLike,
    *,
    state_bytes: ArrayLike,
    failures_per_gpu_hour: float = FAILURES_PER_GPU_HOUR,
    restart_s: float = RESTART_S,
    write_bytes_per_s_per_gpu: float = CHECKPOINT_BYTES_PER_S_PER_GPU,
) -> NDArray[np.float64]:
    """Return the share of wall time that advances training, at the best checkpoint interval.

    Never rises with the number of GPUs: a checkpoint is written faster by more of them, but
    failures come as much more often.

    Args:
        gpus: GPUs of the run, any shape.
        state_bytes: bytes of one checkpoint, CHECKPOINT_BYTES_PER_PARAMETER a parameter; broadcast
            against `gpus`.
        failures_per_gpu_hour: unexpected interruptions of the run.
        restart_s: seconds from failure to training again.
        write_bytes_per_s_per_gpu: rate at which a checkpoint is written, a GPU's share.

    Returns:
        Values in (0, 1], float64 of the broadcast shape.
    """
    count = np.asarray(gpus, dtype=np.float64)
    rate_per_s = count * (failures_per_gpu_hour / 3600.0)
    # write time / MTBF: the GPU count cancels.
    per_gpu_rate = failures_per_gpu_hour / 3600.0 / write_bytes_per_s_per_gpu
    lost = optimal_interval_share(np.asarray(state_bytes, dtype=np.float64) * per_gpu_rate)
    # Above zero even where a run of this size would never restart, so that time stays finite.
    return np.maximum((1.0 - lost) * np.exp(-restart_s * rate_per_s), _LEAST)
