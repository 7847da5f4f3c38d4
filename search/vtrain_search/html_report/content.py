"""What a report holds, before it is drawn: sentences, tables, data of charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One figure of the summary: its name, its value, and how sure it is."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of text; columns named in `left` are words, the others numbers.

    Attributes:
        heads: one a column.
        rows: cells as text, one tuple a row.
        left: heads of left-aligned columns.
        bars: for each row the length (0-1) of a bar behind its last column; empty for none.
        title: what a reader unfolds when the table is folded away; empty shows it at once.
        marked: positions of rows to set in bold.
        html_only: too long for Markdown.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[str, ...] = ()
    bars: tuple[float, ...] = ()
    title: str = ""
    marked: tuple[int, ...] = ()
    html_only: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """Data of one chart; `plots` knows how each kind is drawn.

    Attributes:
        kind: name of a drawing function.
        caption: what it shows, one sentence.
        data: what that function takes.
    """

    kind: str
    caption: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One heading with sentences, charts and tables, shown in that order.

    Attributes:
        key: anchor; also the identifier of its charts.
        title: heading.
        lines: paragraphs.
        charts: drawn in HTML, left out of Markdown.
        tables: after the charts.
        bullets: the paragraphs are items of a list.
    """

    key: str
    title: str
    lines: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    bullets: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A whole report.

    Attributes:
        title: for the window and the first heading.
        recommendation: the answer in one sentence, its interval in it.
        figures: the summary under it.
        notes: what a careful reader should know before believing it.
        sections: the rest.
        command: what reproduces it.
        version: of vtrain.
        date: as the caller gives it; nothing else in a report depends on when it was made.
    """

    title: str
    recommendation: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    command: str
    version: str
    date: str = ""
