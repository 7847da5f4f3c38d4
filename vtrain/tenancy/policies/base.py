"""What the event loop asks of a policy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from vtrain.tenancy.engine import Simulation
    from vtrain.tenancy.state import JobState


class Policy(ABC):
    """Decides how many nodes each job holds; told of every event first."""

    name: ClassVar[str]

    def arrive(self, sim: Simulation, state: JobState) -> None:  # noqa: B027
        """Take note of a new job, which is in `sim.active` already; may reject it."""

    def finish(self, sim: Simulation, state: JobState) -> None:  # noqa: B027
        """Take note of a job that is done, no longer in `sim.active`."""

    def disturbed(self, sim: Simulation, state: JobState) -> None:  # noqa: B027
        """Take note of a job that lost work to a failure."""

    @abstractmethod
    def decide(self, sim: Simulation) -> dict[int, int]:
        """Return the level every job shall hold from now on; jobs left out stay as they are."""

    def wake_s(self, sim: Simulation) -> float:
        """Return when to be asked again though nothing happens; inf for never."""
        return math.inf
