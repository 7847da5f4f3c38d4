"""Intervals of predicted step times: asymmetric, because runs go wrong in one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

SLOW_SD = 1.9
FAST_SD = 1.7
"""Ends of the 90 % interval of measured / predicted, in residual standard deviations: outliers are
slow runs (retries, contention), hardly ever fast ones. Chosen for coverage on the published runs
(results/validation)."""

UNRELIABLE_SHARE = 0.85
"""Plans above this share of device memory run into allocator retries: all published ones with
70 GiB or more of 80 took 3 to 8 times as long as others like them (nanotron rows)."""


def interval_multipliers(log_sd: npt.ArrayLike) -> tuple[Array, Array]:
    """Return the 90 % interval of measured / predicted for a residual spread.

    Args:
        log_sd: standard deviation of log(measured / predicted), any shape.
    """
    spread = np.asarray(log_sd, dtype=np.float64)
    return np.exp(-FAST_SD * spread), np.exp(SLOW_SD * spread)
