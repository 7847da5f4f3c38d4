"""The processes that torchrun started, seen from one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.profiler.runtime import open_runtime

if TYPE_CHECKING:
    from vtrain.profiler.runtime import Runtime

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """All ranks.

    Attributes:
        runtime: this rank's device.
        dist: torch.distributed.
        rank: of this process.
        size: ranks in all.
        nodes: machines they lie on.
        backend: nccl or gloo.
    """

    runtime: Runtime
    dist: Any
    rank: int
    size: int
    nodes: int
    backend: str

    def barrier(self) -> None:
        """Wait until every rank is here and its device is idle."""
        self.runtime.synchronize()
        self.dist.barrier()

    def slowest(self, seconds: float) -> float:
        """Return the largest value over the ranks: a collective ends when its last rank does."""
        torch = self.runtime.torch
        value = torch.tensor([seconds], dtype=torch.float64, device=self.runtime.device)
        self.dist.all_reduce(value, op=self.dist.ReduceOp.MAX)
        return float(value.item())

    def mean(self, seconds: float) -> float:
        """Return the mean over the ranks."""
        torch = self.runtime.torch
        value = torch.tensor([seconds], dtype=torch.float64, device=self.runtime.device)
        self.dist.all_reduce(value)
        return float(value.item()) / self.size


def require_one_device(names: Sequence[str]) -> None:
    """Refuse a job whose ranks have different devices.

    Raises:
        UserInputError: naming them.
    """
    devices = sorted(set(names))
    if len(devices) > 1:
        raise UserInputError(
            f"the ranks have different devices: {', '.join(devices)}",
            hint="profile each kind of device in a job of its own",
        )


@contextmanager
def open_group(kind: str, threads: int = 1) -> Iterator[Group]:
    """Join the processes of torchrun; every rank must have the same kind of device.

    Raises:
        UserInputError: no torch, no device, or different devices in one job (every rank then
            raises, so that none waits).
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    runtime = open_runtime(kind, threads=threads, index=local if kind == "cuda" else 0)
    import torch.distributed as dist

    dist.init_process_group(BACKENDS[kind])
    try:
        size = dist.get_world_size()
        names: list[Any] = [None] * size
        dist.all_gather_object(names, (runtime.facts.name, os.uname().nodename))
        require_one_device([name for name, _ in names])
        yield Group(
            runtime=runtime, dist=dist, rank=dist.get_rank(), size=size,
            nodes=len({node for _, node in names}), backend=BACKENDS[kind],
        )  # fmt: skip
    finally:
        dist.destroy_process_group()
