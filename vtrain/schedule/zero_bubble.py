"""ZB-H1: weight gradients move into the bubble, at the memory of 1F1B."""

from __future__ import annotations

from dataclasses import dataclass

from vtrain.schedule.tasks import (
    BACKWARD,
    FORWARD,
    WEIGHT_GRADIENT,
    Segment,
    Tasks,
    fold,
    sequence,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroBubbleH1:
    """1F1B whose weight gradients run `rank` micro-batches late (Qi et al. 2023, arXiv 2401.10241).

    §2.1 and figure 3: the warm-up is that of 1F1B, so no rank holds more activations; the later a
    rank, the more weight gradients it keeps for the end, where it would wait for earlier ranks.

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
        """Weight gradients are tasks of their own."""
        return True

    def warm_up(self, rank: int) -> int:
        """Return ranks - rank - 1, or every micro-batch if there are fewer."""
        return min(self.ranks - rank - 1, self.micro_batches)

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """Return warm-up, the triple that repeats, and the rest."""

        def whole(micro_batches: int) -> Tasks:
            return _order(min(self.ranks - rank - 1, micro_batches), rank, micro_batches)

        return fold(
            whole, micro_batches=self.micro_batches, period=1,
            # After the warm-up come `rank` pairs without a weight gradient and one triple.
            start=self.ranks + 2 + rank, length=3, least=self.ranks + 1,
        )  # fmt: skip


def _order(warm: int, delay: int, micro_batches: int) -> Tasks:
    order = [(FORWARD, i) for i in range(warm)]
    for i in range(micro_batches):
        if warm + i < micro_batches:
            order.append((FORWARD, warm + i))
        order.append((BACKWARD, i))
        if i >= delay:
            order.append((WEIGHT_GRADIENT, i - delay))
    order += [(WEIGHT_GRADIENT, i) for i in range(max(micro_batches - delay, 0), micro_batches)]
    kind, micro_batch = zip(*order, strict=True)
    return sequence(kind, micro_batch, [0] * len(kind))
