"""Site factors of memory from a few measured peaks, and what they leave unexplained.

Bytes are counted, not fitted; what a site may differ in is how states are kept (padding, copies),
how much of the activations a kernel keeps, and a constant that no item explains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vtrain.memory.rows import Parts

    Floats = npt.NDArray[np.float64]

PRIOR_SD = (0.05, 0.2, 2.0**30)
"""Spread between sites before any row is seen: states are byte counts, activations depend on
kernels, a gibibyte of buffers is common."""
NOISE = 0.1
"""Relative residual at which a row turns from noise to outlier: repeats of one plan differ by
3 to 6 % and unknown settings by more."""
_ITERATIONS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class MemorySite:
    """Factors of one site.

    Attributes:
        standing: multiplier of states and buffers.
        working: multiplier of activations and transients.
        unexplained_bytes: what the measured peaks hold beyond every item.
        log_sd: spread of measured over predicted that remains.
        rows: measured peaks used.
    """

    standing: float = 1.0
    working: float = 1.0
    unexplained_bytes: float = 0.0
    log_sd: float = 0.0
    rows: int = 0

    def apply(self, parts: Parts) -> float:
        """Return the calibrated prediction in bytes."""
        scaled = self.standing * parts.standing + self.working * parts.working
        return scaled + parts.fixed + self.unexplained_bytes


def fit_memory_site(
    parts: Sequence[Parts], measured_bytes: Sequence[float], *, noise: float = NOISE
) -> MemorySite:
    """Fit the three factors: relative errors with heavy tails, each factor held by its prior.

    Args:
        parts: predictions in the quantity that was measured.
        measured_bytes: measured peaks.
        noise: relative residual that is still noise; smaller where every setting is known and
            the figure is exact, so that a constant shows itself.

    Raises:
        UserInputError: no rows, different lengths, or a peak that is not positive.
    """
    measured = np.asarray(measured_bytes, dtype=np.float64)
    if len(parts) != len(measured) or not len(parts) or not np.all(measured > 0.0):
        raise UserInputError(
            f"memory calibration needs one positive peak for each of {len(parts)} plans, "
            f"got {len(measured)}"
        )
    columns = np.array([(p.standing, p.working, 1.0) for p in parts])
    prior = np.array(PRIOR_SD)
    design = columns * prior / measured[:, None] / noise
    offset = np.array([p.total for p in parts]) / measured / noise - 1.0 / noise
    move = np.zeros(3)
    for _ in range(_ITERATIONS):
        # Pseudo-Huber loss by iterated weights.
        weight = 1.0 / np.sqrt(1.0 + (offset + design @ move) ** 2)
        normal = design.T @ (weight[:, None] * design) + np.eye(3)
        move = -np.linalg.solve(normal, design.T @ (weight * offset))
    standing, working, unexplained = move * prior
    site = MemorySite(
        standing=1.0 + float(standing),
        working=1.0 + float(working),
        unexplained_bytes=float(unexplained),
    )
    ratios = np.log(measured / np.array([site.apply(p) for p in parts]))
    return MemorySite(
        standing=site.standing,
        working=site.working,
        unexplained_bytes=site.unexplained_bytes,
        log_sd=float(np.sqrt(np.mean(ratios**2))),
        rows=len(parts),
    )
