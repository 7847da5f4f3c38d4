"""Which nodes a job holds: whole nodes, kept while it runs, lowest numbers first."""

from __future__ import annotations

import heapq


class Placement:
    """Hands out whole nodes.

    The network of the shipped clusters is flat between nodes, so which ones a job gets does not
    change its speed; they are tracked because a node is never given twice and for the picture.
    """

    def __init__(self, nodes: int) -> None:
        """Start with every node free."""
        self._free = list(range(nodes))
        self._held: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        """Number of free nodes."""
        return len(self._free)

    def held(self, owner: int) -> tuple[int, ...]:
        """Return the nodes of a job, ascending."""
        return tuple(self._held.get(owner, ()))

    def resize(self, owner: int, nodes: int) -> None:
        """Give a job so many nodes: it keeps what it can, gives back its highest, takes the lowest.

        Raises:
            ValueError: when fewer are free; the caller's books are wrong.
        """
        held = self._held.pop(owner, [])
        if nodes - len(held) > len(self._free):
            raise ValueError(f"job {owner} wants {nodes - len(held)} of {len(self._free)} nodes")
        while len(held) > nodes:
            heapq.heappush(self._free, held.pop())
        taken = [heapq.heappop(self._free) for _ in range(nodes - len(held))]
        held = sorted(held + taken)
        if held:
            self._held[owner] = held


def ranges(nodes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return ascending node numbers as (first, count) of unbroken runs."""
    runs: list[tuple[int, int]] = []
    for node in nodes:
        if runs and runs[-1][0] + runs[-1][1] == node:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((node, 1))
    return runs
