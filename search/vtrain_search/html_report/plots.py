"""Charts drawn by plotly; colours of text and grid are left to the page's style sheet."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain.units import format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vtrain_search.html_report.content import Chart

    Figure = Any

# Okabe and Ito's palette, distinguishable without colour vision and on light and dark pages.
_BLUE, _ORANGE, _GREEN, _RED = "#3b8ed0", "#e69f00", "#1fa187", "#d55e00"
_PINK, _YELLOW, _GREY, _SKY = "#cc79a7", "#c9b400", "#8a8f98", "#8cc7ee"
COLOURS = {
    "forward": _SKY, "backward": _BLUE, "weight-gradient": "#5566aa", "recompute": _YELLOW,
    "tensor-parallel": _ORANGE, "data-parallel": _RED, "host": _GREY, "send": _PINK,
    "optimizer": _GREEN, "bubble": "rgba(138, 143, 152, 0.25)",
    "weights": _BLUE, "gradients": _SKY, "optimizer state": _GREEN, "buffers": _GREY,
    "activations": _ORANGE, "activation gradients": _YELLOW,
    "backward workspace": _PINK, "logits and loss": _RED,
    "optimizer workspace": "#5566aa",
}  # fmt: skip
_HEIGHT = 340
_ROW_HEIGHT = 34
_MANY_DECADES = 1.7


def plotly_js() -> str:
    """Return plotly's own JavaScript, for one self-contained file.

    Raises:
        UserInputError: when plotly is not installed.
    """
    _plotly()
    from plotly.offline import get_plotlyjs

    # `</script>` inside a string of the library would end its element.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def figure_json(chart: Chart) -> str:
    """Return one chart as JSON that is safe inside a script element.

    Raises:
        UserInputError: when plotly is not installed.
    """
    figure = _DRAW[chart.kind](chart.data)
    figure.update_layout(
        template="none", autosize=True, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)", font={"size": 12}, hoverlabel={"font": {"size": 12}},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )  # fmt: skip
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    text = json.dumps(figure.to_plotly_json(), sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise UserInputError(
            "an HTML report needs plotly, which is not installed",
            hint="pip install 'vtrain[report]', or write a .md report",
        ) from None
    return go


def _legend_below(figure: Figure) -> None:
    figure.update_layout(
        legend={
            "orientation": "h",
            "yanchor": "bottom",
            "y": 1.02,
            "x": 0,
            "xanchor": "left",
            "traceorder": "normal",
        }
    )


def _log_ticks(values: Sequence[float], words: Callable[[float], str]) -> dict[str, Any]:
    """Return ticks at 1, 2 and 5 (or 1 alone over many decades), labelled as people write them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    steps = (1.0,) if high - low > _MANY_DECADES else (1.0, 2.0, 5.0)
    at = [
        step * 10.0**decade
        for decade in range(math.floor(low) - 1, math.ceil(high) + 1)
        for step in steps
        if low - 0.3 <= decade + math.log10(step) <= high + 0.3
    ]
    return {"tickvals": at, "ticktext": [_short(words(value)) for value in at]}


def _short(text: str) -> str:
    """Return `100B` for `100.0B` and `$1M` for `$1.00M`."""
    return re.sub(r"\.0+(?=\D|$)", "", text)


def _frontier(data: Mapping[str, Any]) -> Figure:
    """Draw loss against cost with its interval."""
    go = _plotly()
    x = data["x"]
    figure = go.Figure()
    figure.add_scatter(
        x=[*x, *reversed(x)], y=[*data["high"], *reversed(data["low"])], fill="toself",
        fillcolor="rgba(59, 142, 208, 0.2)", line={"width": 0}, mode="lines", hoverinfo="skip",
        name="90 % interval",
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=data["loss"], mode="lines+markers", name="predicted loss", text=data["labels"],
        line={"color": _BLUE}, hovertemplate="%{text}<br>loss %{y:.4f}<extra></extra>",
    )  # fmt: skip
    words = format_usd if data["unit"] == "dollars" else format_count
    figure.update_xaxes(type="log", title=f"{data['unit']} spent", **_log_ticks(x, words))
    figure.update_yaxes(title="loss, nats a token", tickformat=".2f")
    figure.update_layout(height=_HEIGHT)
    _legend_below(figure)
    return figure


def _sizes(data: Mapping[str, Any]) -> Figure:
    """Draw loss, dollars or days against size."""
    go = _plotly()
    loss = data["unit"].startswith("loss")
    figure = go.Figure()
    layers = (
        ("architectures tried", data["parameters"], data["values"], data["labels"],
         {"color": _SKY, "size": 6, "line": {"color": _BLUE, "width": 1}}),
        ("half, quarter", [p for p, _ in data["others"]], [v for _, v in data["others"]], "",
         {"color": _ORANGE, "size": 10, "symbol": "diamond"}),
        ("recommended", data["best"][:1], data["best"][1:], "",
         {"color": _RED, "size": 13, "symbol": "star"}),
    )  # fmt: skip
    for name, sizes, values, labels, marker in layers:
        figure.add_scatter(
            x=sizes, y=values, mode="markers", name=name, text=labels, marker=marker,
            customdata=[format_count(size) for size in sizes],
            hovertemplate=f"%{{customdata}} parameters<br>%{{text}}<br>{data['unit']} "
            f"%{{y:{'.4f' if loss else '.4s'}}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(
        type="log", title="parameters", **_log_ticks(data["parameters"], format_count)
    )
    figure.update_yaxes(title=data["unit"], tickformat=".3f" if loss else "~s")
    figure.update_layout(height=_HEIGHT)
    _legend_below(figure)
    return figure


def _stages(data: Mapping[str, Any]) -> Figure:
    """Draw one stacked bar a pipeline rank."""
    go = _plotly()
    ranks = [str(rank) for rank in data["ranks"]]
    figure = go.Figure()
    for name, values in data["parts"].items():
        figure.add_bar(
            y=ranks, x=values, name=name, orientation="h", marker={"color": COLOURS[name]},
            hovertemplate=f"{name}: %{{x:.4g}} {data['unit']}<extra>rank %{{y}}</extra>",
        )  # fmt: skip
    if data["limit"] is not None:
        figure.add_vline(x=data["limit"], line={"dash": "dash", "width": 2, "color": _RED})
    figure.update_layout(barmode="stack", bargap=0.25, height=150 + _ROW_HEIGHT * len(ranks))
    figure.update_yaxes(title="rank", type="category", autorange="reversed")
    figure.update_xaxes(title=data["unit"])
    _legend_below(figure)
    return figure


def _timeline(data: Mapping[str, Any]) -> Figure:
    """Draw the spans of each pipeline rank on a common clock."""
    go = _plotly()
    figure = go.Figure()
    for name, spans in data["spans"].items():
        figure.add_bar(
            y=[str(rank) for rank, _, _, _ in spans],
            base=[start for _, start, _, _ in spans],
            x=[seconds for _, _, seconds, _ in spans],
            customdata=[micro for _, _, _, micro in spans],
            name=name, orientation="h", marker={"color": COLOURS[name], "line": {"width": 0}},
            hovertemplate=f"{name}, micro-batch %{{customdata}}<br>from %{{base:.4g}} s"
            "<extra>rank %{y}</extra>",
        )  # fmt: skip
    if data["skips"]:
        figure.add_bar(
            y=[str(rank) for rank, _, _, _ in data["skips"]],
            base=[start for _, start, _, _ in data["skips"]],
            x=[seconds for _, _, seconds, _ in data["skips"]],
            name="repeats, not drawn", orientation="h",
            marker={"color": COLOURS["bubble"], "pattern": {"shape": "/", "fgcolor": _GREY}},
            hovertemplate="repeats, not drawn<extra>rank %{y}</extra>",
        )  # fmt: skip
    ranks = [str(rank) for rank in data["ranks"]]
    figure.update_layout(barmode="overlay", bargap=0.2, height=150 + _ROW_HEIGHT * len(ranks))
    figure.update_yaxes(title="rank", type="category", categoryorder="array",
                        categoryarray=ranks, autorange="reversed")  # fmt: skip
    figure.update_xaxes(title="seconds")
    _legend_below(figure)
    return figure


def _tornado(data: Mapping[str, Any]) -> Figure:
    """Draw what each question changes."""
    go = _plotly()
    colours = [_GREEN if gap <= 0.0 else _RED for gap in data["gaps"]]
    figure = go.Figure(
        go.Bar(
            y=data["names"], x=data["gaps"], orientation="h", marker={"color": colours},
            hovertemplate=f"%{{y}}: %{{x:+.4f}} {data['unit']}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title=data["unit"], zeroline=True, tickformat="+.3~f")
    figure.update_layout(height=90 + _ROW_HEIGHT * len(data["names"]), showlegend=False)
    return figure


_DRAW: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "frontier": _frontier, "sizes": _sizes, "stages": _stages, "timeline": _timeline,
    "tornado": _tornado,
}  # fmt: skip
