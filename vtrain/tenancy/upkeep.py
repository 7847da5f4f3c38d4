"""What running costs beyond training: checkpoints, failures, moving to other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.goodput import (
    CHECKPOINT_BYTES_PER_S_PER_GPU,
    FAILURES_PER_GPU_HOUR,
    RESTART_S,
    checkpoint_interval_s,
    goodput,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FAILURE_MODES = ("none", "expected", "random")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """Failure, checkpoint and rescaling costs of one cluster.

    Attributes:
        failures: "none": nothing fails; "expected": every job runs at its speed times goodput;
            "random": failures strike nodes at random, and schedulers plan with the expectation.
        failures_per_gpu_hour: unexpected interruptions, `vtrain.goodput`.
        restart_s: seconds from a failure to training again, `vtrain.goodput`.
        rescale_s: seconds from a change of nodes to training again, the last checkpoint apart.
            The default is `restart_s`: an upper bound, since nothing has to be detected or
            diagnosed in a planned move.
        write_bytes_per_s_per_gpu: rate at which a checkpoint is written, a GPU's share.
    """

    failures: str = "expected"
    failures_per_gpu_hour: float = FAILURES_PER_GPU_HOUR
    restart_s: float = RESTART_S
    rescale_s: float = RESTART_S
    write_bytes_per_s_per_gpu: float = CHECKPOINT_BYTES_PER_S_PER_GPU

    def __post_init__(self) -> None:
        """Refuse costs no cluster can have.

        Raises:
            UserInputError: naming the field.
        """
        if self.failures not in FAILURE_MODES:
            raise UserInputError(
                f"failures={self.failures!r} is not known", hint=f"one of {FAILURE_MODES}"
            )
        for field in ("failures_per_gpu_hour", "restart_s", "rescale_s"):
            if not 0.0 <= getattr(self, field) < float("inf"):
                raise UserInputError(f"{field} must not be negative, got {getattr(self, field)}")
        if not self.write_bytes_per_s_per_gpu > 0.0:
            raise UserInputError("write_bytes_per_s_per_gpu must be above zero")

    def pause_s(self, gpus: Array, state_bytes: float) -> Array:
        """Return the seconds without training after a move to so many GPUs.

        One checkpoint is written and the job starts anew. The write is charged at the rate of the
        new nodes, so that a plan's cost does not depend on the way that led to it.
        """
        return self.rescale_s + state_bytes / (self.write_bytes_per_s_per_gpu * gpus)

    def interval_s(self, gpus: Array, state_bytes: float) -> Array:
        """Return the seconds of training between checkpoints; inf where nothing ever fails."""
        if self.failures_per_gpu_hour == 0.0:
            return np.full_like(gpus, np.inf)
        return checkpoint_interval_s(
            gpus, state_bytes=state_bytes, failures_per_gpu_hour=self.failures_per_gpu_hour,
            write_bytes_per_s_per_gpu=self.write_bytes_per_s_per_gpu,
        )  # fmt: skip

    def undisturbed_share(self, gpus: Array, state_bytes: float) -> Array:
        """Return the share of time that trains while nothing fails: checkpoints take the rest."""
        if self.failures_per_gpu_hour == 0.0:
            return np.ones_like(gpus)
        interval = self.interval_s(gpus, state_bytes)
        write_s = state_bytes / (self.write_bytes_per_s_per_gpu * gpus)
        return interval / (interval + write_s)

    def planned_share(self, gpus: Array, state_bytes: float) -> Array:
        """Return the share of time a scheduler expects to train."""
        if self.failures == "none" or self.failures_per_gpu_hour == 0.0:
            return self.undisturbed_share(gpus, state_bytes)
        return goodput(
            gpus, state_bytes=state_bytes, failures_per_gpu_hour=self.failures_per_gpu_hour,
            restart_s=self.restart_s, write_bytes_per_s_per_gpu=self.write_bytes_per_s_per_gpu,
        )  # fmt: skip

    def real_share(self, gpus: Array, state_bytes: float) -> Array:
        """Return the share of time that trains between the failures that are simulated."""
        if self.failures == "random":
            return self.undisturbed_share(gpus, state_bytes)
        return self.planned_share(gpus, state_bytes)
