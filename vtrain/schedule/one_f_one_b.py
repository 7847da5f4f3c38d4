"""1F1B and its interleaved form: a forward and a backward in turn, after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtrain.errors import UserInputError
from vtrain.schedule.tasks import BACKWARD, FORWARD, Segment, Tasks, fold


@dataclass(frozen=True, kw_only=True, slots=True)
class OneFOneB:
    """One forward, one backward (PipeDream-Flush; Narayanan et al. 2021, arXiv 2104.04473, §2.2).

    Rank r warms up with ranks - r - 1 forwards (Megatron-LM core/pipeline_parallel/schedules.py,
    forward_backward_pipelining_without_interleaving).

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
        """Return ranks - rank - 1, or every micro-batch if there are fewer."""
        return min(self.ranks - rank - 1, self.micro_batches)

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """Return warm-up, the pair that repeats, and the rest."""

        def whole(micro_batches: int) -> Tasks:
            return _weave(min(self.ranks - rank - 1, micro_batches), 1, 1, micro_batches)

        return fold(
            whole, micro_batches=self.micro_batches, period=1,
            # Rank r starts to repeat r + 1 pairs after its warm-up: by then every rank has run as
            # many forwards, and none is without a first task.
            start=self.ranks + 1 + rank, length=2, least=self.ranks + 1,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Interleaved:
    """Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, §2.2).

    Micro-batches advance in groups of `ranks`: a rank runs the group through its first chunk,
    then through its second, and so on; backward in reverse order of chunks. Rank r warms up with
    2 (ranks - r - 1) + (chunks - 1) ranks forwards (Megatron-LM
    core/pipeline_parallel/schedules.py, get_pp_rank_microbatches).

    Attributes:
        ranks: pipeline ranks.
        chunks: chunks of layers on each rank.
        micro_batches: micro-batches of a step, a multiple of ranks.
    """

    ranks: int
    chunks: int
    micro_batches: int

    def __post_init__(self) -> None:
        """Refuse a step that does not fill its groups.

        Raises:
            UserInputError: naming the nearest valid count.
        """
        if self.micro_batches % self.ranks:
            near = max(1, round(self.micro_batches / self.ranks)) * self.ranks
            raise UserInputError(
                f"interleaving needs micro-batches ({self.micro_batches}) to be a multiple of "
                f"pp={self.ranks}",
                hint=f"nearest valid: {near}",
            )

    @property
    def splits_backward(self) -> bool:
        """Weight gradients belong to the backward task."""
        return False

    def warm_up(self, rank: int) -> int:
        """Return 2 (ranks - rank - 1) + (chunks - 1) ranks, or every task if there are fewer."""
        return min(self._warm_up(rank), self.micro_batches * self.chunks)

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """Return warm-up, the group of pairs that repeats, and the rest."""
        ranks, chunks = self.ranks, self.chunks

        def whole(micro_batches: int) -> Tasks:
            warm = min(self._warm_up(rank), micro_batches * chunks)
            return _weave(warm, ranks, chunks, micro_batches)

        most = self._warm_up(0)
        return fold(
            whole, micro_batches=self.micro_batches, period=ranks,
            start=self._warm_up(rank) + 2 * rank, length=2 * ranks * chunks,
            least=-(-most // (ranks * chunks)) * ranks,
        )  # fmt: skip

    def _warm_up(self, rank: int) -> int:
        return 2 * (self.ranks - rank - 1) + (self.chunks - 1) * self.ranks


def _weave(warm: int, ranks: int, chunks: int, micro_batches: int) -> Tasks:
    """Return `warm` forwards, then forward and backward in turn, then the backwards left."""
    count = micro_batches * chunks
    index = np.arange(count, dtype=np.int64)
    group, place = np.divmod(index, ranks * chunks)
    chunk, member = np.divmod(place, ranks)
    micro_batch = group * ranks + member
    # The i-th backward directly follows the (warm + i)-th forward.
    forward_at = np.where(index < warm, index, 2 * index - warm)
    backward_at = np.minimum(warm + 2 * index + 1, count + index)
    kind = np.empty(2 * count, dtype=np.int8)
    micro_batches_at, chunk_at = (np.empty(2 * count, dtype=np.int64) for _ in range(2))
    kind[forward_at], kind[backward_at] = FORWARD, BACKWARD
    micro_batches_at[forward_at] = micro_batches_at[backward_at] = micro_batch
    chunk_at[forward_at], chunk_at[backward_at] = chunk, chunks - 1 - chunk
    return Tasks(kind, micro_batches_at, chunk_at)
