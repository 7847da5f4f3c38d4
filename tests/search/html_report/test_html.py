"""The HTML report is whole, closed to the outside, and the same for the same run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from vtrain.errors import UserInputError

pytest.importorskip("plotly", reason="the HTML report needs the extra `report`")

SECTIONS = (
    "answer", "frontier", "size", "choices", "binds", "sensitivity", "alternatives", "time",
    "memory", "pipeline", "assumptions", "again",
)  # fmt: skip
LIMIT_BYTES = 6_000_000


class Page(HTMLParser):
    """Tags, their addresses, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.words = ""
        self.styles = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if values.get(name):
                self.addresses.append(str(values[name]))
        if values.get("style"):
            self.styles += str(values["style"])
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.styles += data
        elif "script" not in self.open:
            self.words += data


def charts(page: str) -> dict[str, dict[str, object]]:
    """Return the charts of a page as the browser reads them."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)
    assert found is not None
    value: dict[str, dict[str, object]] = json.loads(found[1])
    return value


def test_nothing_outside_is_asked_for(page: str) -> None:
    """No element or style names an address, and the page's own policy forbids connections."""
    parsed = Page(page)
    assert all(a.startswith("#") for a in parsed.addresses)
    assert "url(" not in parsed.styles
    assert "@import" not in parsed.styles
    assert "default-src 'none'" in page
    assert len(page.encode()) < LIMIT_BYTES


def test_every_section_is_there_and_well_formed(page: str) -> None:
    """Tags close in order; each section has its anchor and each chart its place."""
    parsed = Page(page)
    assert not parsed.open
    assert [i for i in parsed.ids if i in SECTIONS] == list(SECTIONS)
    assert {f"plot-{key}" for key in charts(page)} <= set(parsed.ids)
    assert {"frontier-0", "time-0", "memory-0", "pipeline-0", "sensitivity-0"} <= set(charts(page))


def test_the_recommendation_comes_first(page: str, three_budgets: Any) -> None:
    """One sentence with the interval stands before anything else, the last budget in it."""
    answer = three_budgets.answers[-1]
    assert answer is not None
    words = Page(page).words
    low, loss = answer.row["loss_low"], answer.row["loss"]
    sentence = f"predicted loss {loss:.3f}, 90 % interval {low:.3f}"
    assert sentence in words
    assert words.index(sentence) < words.index("The answer")
    assert "With $1.00M on h100-sxm-80g at $3.00" in words
    assert "2026-12-01" in words


def test_same_run_same_bytes(three_budgets: Any, page: str, tmp_path: Path) -> None:
    """Writing it again gives the same file, byte for byte."""
    again = three_budgets.write(
        tmp_path / "again.html", alternatives=["tp=2", "20B"], date="2026-12-01"
    )
    assert again == page


def test_words_of_a_user_cannot_become_markup(one_budget: Any, tmp_path: Path) -> None:
    """A name with tags in it is shown, not run, in the page, its charts and Markdown."""
    evil = "</script><b>&\"'|`"
    case = replace(one_budget.problem.cases[0], label=evil)
    answer = one_budget.answers[0]
    assert answer is not None
    named = replace(answer, case=case, row={**answer.row, "budget": evil})
    run = replace(
        one_budget, answers=[named, named],
        found=replace(one_budget.found, searches=one_budget.found.searches * 2),
    )  # fmt: skip
    page = run.write(tmp_path / "evil.html")
    parsed = Page(page)
    assert not parsed.open
    assert "b" not in re.findall(r"<(\w+)", page.split("<script")[0])
    assert evil in parsed.words
    text = run.write(tmp_path / "evil.md")
    assert "<b>" not in text
    assert "\\|" in text


def test_charts_add_up(page: str, three_budgets: Any) -> None:
    """Bars of every rank sum to the played step; bars of memory stay under the drawn limit."""
    drawn = charts(page)
    data = drawn["time-0"]["data"]
    assert isinstance(data, list)
    sums = [sum(values) for values in zip(*(trace["x"] for trace in data), strict=True)]
    assert sums == pytest.approx([sums[0]] * len(sums), rel=1e-3)
    answer = three_budgets.answers[-1]
    assert answer is not None
    assert sums[0] == pytest.approx(answer.row["step_time_s"], rel=0.02)
    memory = drawn["memory-0"]["data"]
    assert isinstance(memory, list)
    heaviest = max(sum(v) for v in zip(*(trace["x"] for trace in memory), strict=True))
    assert heaviest == pytest.approx(answer.row["mem_peak_bytes"] / 2**30, rel=1e-3)


def test_a_missing_library_is_one_line(
    one_budget: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without plotly the HTML report names the command that installs it; Markdown needs none."""
    import sys

    for name in [n for n in sys.modules if n.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(UserInputError, match=r"pip install 'vtrain\[report\]'"):
        one_budget.write(tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    assert one_budget.write(tmp_path / "report.md").startswith("# Pre-training plan")


def test_other_files_are_refused(one_budget: Any, tmp_path: Path) -> None:
    """A type that is not written, and a folder that is not there, get one line each."""
    with pytest.raises(UserInputError, match=r"nearest valid: report\.html"):
        one_budget.write(tmp_path / "report.pdf")
    with pytest.raises(UserInputError, match="cannot write"):
        one_budget.write(tmp_path / "nowhere" / "report.md")
    with pytest.raises(UserInputError, match="is no budget of this search"):
        one_budget.write(tmp_path / "report.md", focus="$7")
