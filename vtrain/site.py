"""Site factors: what adapts shipped constants to one real cluster."""

from __future__ import annotations

from dataclasses import dataclass, fields

from vtrain.errors import UserInputError

LEAST_FACTOR = 0.05
LARGEST_FACTOR = 20.0
"""Beyond these a factor describes no site but a mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFactors:
    """Multipliers on predicted seconds, by kind of work; 1 leaves the shipped constants.

    Attributes:
        matrix: matrix multiplications and attention.
        memory: memory-bound kernels, the loss, the optimizer.
        communication: every collective and send/receive.
        host: launch cost.
    """

    matrix: float = 1.0
    memory: float = 1.0
    communication: float = 1.0
    host: float = 1.0

    def __post_init__(self) -> None:
        """Refuse factors no site can have.

        Raises:
            UserInputError: naming the field.
        """
        for item in fields(self):
            value = getattr(self, item.name)
            if not LEAST_FACTOR <= value <= LARGEST_FACTOR:
                raise UserInputError(
                    f"site factor {item.name}={value!r} must lie between {LEAST_FACTOR:g} and "
                    f"{LARGEST_FACTOR:g}",
                    hint="1 leaves the shipped constants as they are",
                )


SHIPPED = SiteFactors()
