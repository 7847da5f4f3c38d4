"""Tables that stay readable on a narrow terminal: rows become columns where they do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

_GAP = 3


@dataclass(kw_only=True, slots=True)
class Grid:
    """A titled table of short strings; prints one row a line, or one row a column.

    Attributes:
        title: printed above.
        heads: one a column.
        left: heads of columns of words, which stand to the left.
        rows: cells, in the order of the heads.
    """

    title: str
    heads: Sequence[str]
    left: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | str]:
        """Lay the table out for the width at hand; no number is ever cut."""
        widths = [
            max(len(head), *(len(row[i]) for row in self.rows)) if self.rows else len(head)
            for i, head in enumerate(self.heads)
        ]
        if sum(widths) + _GAP * len(widths) <= options.max_width:
            yield self._upright()
        else:
            yield from self._turned(options.max_width)

    def _upright(self) -> Table:
        table = _empty(self.title, header=True)
        for head in self.heads:
            side = "left" if head in self.left else "right"
            table.add_column(head, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for row in self.rows:
            table.add_row(*row)
        return table

    def _turned(self, width: int) -> Iterator[Table]:
        """Yield tables of as many rows side by side as fit."""
        room = width - max(len(head) for head in self.heads) - _GAP
        title, start = self.title, 0
        while start < len(self.rows):
            used, stop = 0, start
            while stop < len(self.rows):
                used += max(len(cell) for cell in self.rows[stop]) + _GAP
                if used > room and stop > start:
                    break
                stop += 1
            table = _empty(title, header=False)
            table.add_column(style="dim", no_wrap=True)
            for _ in range(start, stop):
                table.add_column(justify="right", no_wrap=True)
            for i, head in enumerate(self.heads):
                table.add_row(head, *(row[i] for row in self.rows[start:stop]))
            yield table
            title, start = "", stop


def _empty(title: str, *, header: bool) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD if header else None, show_header=header, title=title or None,
        title_justify="left", title_style="bold", padding=(0, 1), pad_edge=False,
    )  # fmt: skip
