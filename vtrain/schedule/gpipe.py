"""GPipe: every forward, then every backward."""

from __future__ import annotations

from dataclasses import dataclass

from vtrain.schedule.tasks import BACKWARD, FORWARD, Segment, sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class GPipe:
    """All forwards, then all backwards in the same order (Huang et al. 2019, arXiv 1811.06965).

    Attributes:
        ranks: pipeline ranks.
        micro_batches: micro-batches of a step.
    """

    ranks: int
    micro_batches: int

    @property
    def chunks(self) -> int:
        """One chunk a rank."""
        return 1

    @property
    def splits_backward(self) -> bool:
        """Weight gradients belong to the backward task."""
        return False

    def warm_up(self, rank: int) -> int:
        """Return every micro-batch: no backward starts before the last forward."""
        del rank
        return self.micro_batches

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """Return forwards and backwards, the first and the last task on their own."""
        del rank
        forward, backward = sequence([FORWARD], [0], [0]), sequence([BACKWARD], [0], [0])
        last = sequence([BACKWARD], [self.micro_batches - 1], [0])
        between = self.micro_batches - 1
        middle = (
            Segment(forward._replace(micro_batch=forward.micro_batch + 1), between, 1),
            Segment(backward, between, 1),
        )
        return (Segment(forward, 1, 0), *(middle if between else ()), Segment(last, 1, 0))
