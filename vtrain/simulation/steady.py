"""When a repeating schedule has settled, and for how long it stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# Differences below this share of a repetition count as rounding. It bounds the error of the
# extrapolated step relative to its length.
_TOLERANCE = 1e-12


class Steady:
    """Watches repetitions; tells how many will only add a constant to every time.

    A start time is the larger of arrival and free time. While the larger one stays the larger at
    every task, all times grow linearly with the repetition, each at a rate of its own (a stage
    that is not yet held up by a slower one runs at its own pace). The first task whose smaller
    time, growing faster, would overtake ends the stretch.
    """

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._seen: list[Array] = []
        self._tasks = 0

    def observe(self, arrival_s: Array, free_s: Array, state_s: Array) -> None:
        """Take the times of one repetition.

        Args:
            arrival_s: when the input of each task arrived, [tasks].
            free_s: when its rank was free, [tasks].
            state_s: clocks and arrivals in flight after the repetition, same layout every time.
        """
        self._tasks = len(arrival_s)
        self._seen = [*self._seen[-2:], np.concatenate([arrival_s, free_s, state_s])]

    @property
    def growth(self) -> Array:
        """How much the state grew in the last repetition."""
        grown: Array = self._seen[-1] - self._seen[-2]
        return grown[2 * self._tasks :]

    def repetitions_ahead(self) -> int:
        """Return how many repetitions follow from the last one; 0 if it has not settled."""
        if len(self._seen) < 3 or len({len(seen) for seen in self._seen}) > 1:
            return 0
        before, previous, last = self._seen
        grown = last - previous
        noise = _TOLERANCE * grown.max() + 4.0 * np.finfo(np.float64).eps * last.max()
        if np.any(np.abs(grown - (previous - before)) > noise):
            return 0
        n = self._tasks
        arrival, free = last[:n], last[n : 2 * n]
        arrival_rate, free_rate = grown[:n], grown[n : 2 * n]
        behind = np.where(arrival > free, free_rate, arrival_rate)
        ahead = np.where(arrival > free, arrival_rate, free_rate)
        started = np.maximum(arrival, free) - np.maximum(previous[:n], previous[n : 2 * n])
        if np.any(np.abs(started - ahead) > noise):
            return 0
        closing = behind - ahead
        faster = closing > noise
        if not faster.any():
            return _FOREVER
        return int(np.min(np.abs(arrival - free)[faster] / closing[faster]))


_FOREVER = 1 << 62
