"""One training job as its owner hands it in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtrain.errors import UserInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training run with its work, its dates and its limits.

    Attributes:
        name: what the log calls it.
        model: a shipped model or a file that `vtrain.formats` reads.
        steps: optimizer steps to run.
        global_batch_size: sequences of one step; kept whatever the GPU count, so that the result
            of the training does not depend on the scheduler.
        seq_length: tokens of one sequence; 0 takes the model's own.
        arrival_s: when it is handed in, seconds on the cluster's clock.
        deadline_s: when it must be done, same clock; inf for no deadline.
        gpus: GPUs its owner asks for; 0 leaves it to the scheduler. Policies that do not scale
            jobs give exactly what is asked for.
        min_gpus: an elastic policy never gives less, except none at all.
        max_gpus: nor more; 0 for no limit.
        priority: larger goes first; equal by default.
    """

    name: str
    model: str
    steps: int
    global_batch_size: int
    seq_length: int = 0
    arrival_s: float = 0.0
    deadline_s: float = math.inf
    gpus: int = 0
    min_gpus: int = 1
    max_gpus: int = 0
    priority: int = 0

    def __post_init__(self) -> None:
        """Refuse jobs that cannot exist.

        Raises:
            UserInputError: naming the rule and the value.
        """
        for field in ("steps", "global_batch_size", "min_gpus"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise UserInputError(f"{field} must be a whole number of at least 1, got {value!r}")
        for field in ("seq_length", "gpus", "max_gpus"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 0:
                raise UserInputError(f"{field} must be a whole number, not negative, got {value!r}")
        if not (0.0 <= self.arrival_s < math.inf):
            raise UserInputError(f"arrival_s must be finite and not negative, got {self.arrival_s}")
        if not self.deadline_s > self.arrival_s:
            raise UserInputError(
                f"deadline_s={self.deadline_s:g} must lie after arrival_s={self.arrival_s:g}",
                hint="leave it empty for a job without deadline",
            )
        if self.max_gpus and self.max_gpus < max(self.min_gpus, self.gpus):
            raise UserInputError(
                f"max_gpus={self.max_gpus} must not lie under "
                f"{'min_gpus' if self.max_gpus < self.min_gpus else 'gpus'}="
                f"{self.min_gpus if self.max_gpus < self.min_gpus else self.gpus}",
            )
        if self.gpus and self.gpus < self.min_gpus:
            raise UserInputError(f"gpus={self.gpus} must not lie under min_gpus={self.min_gpus}")

    @property
    def has_deadline(self) -> bool:
        """Whether anybody waits for it."""
        return math.isfinite(self.deadline_s)
