"""Where the step and the memory go: waterfall, stages, pipeline timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.design import Design
from vtrain.memory import memory_breakdown, memory_limit_bytes
from vtrain.schedule.tasks import BACKWARD
from vtrain.simulation.events import BREAKDOWN, SPAN_KINDS
from vtrain.trace import representative_ranks
from vtrain.units import GIB, format_duration
from vtrain_search.alternatives.setting import setting_of
from vtrain_search.alternatives.step_parts import IDEAL, WORDS, play, step_parts
from vtrain_search.html_report.content import Chart, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain.simulation.timeline import Timeline
    from vtrain_search.problem import Case, Problem

    _Span = tuple[float, int, int, float, int]

DRAWN_TASKS = 320
"""Longer steps are drawn with their repetitions left out: warm-up and drain are what differs."""
_DRAWN_SPANS = 6_000
_WIDE_SPANS = 120
"""Spans a rank that are still told apart on a page."""
_BEGIN_BACKWARDS = 24
"""The chart of the beginning ends with so many backward tasks: warm-up and some repetitions."""
_STAGES_SHOWN = 16
_LEAST_BYTES = 0.005 * GIB
MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buffers": "buffers",
    "activations": "activations",
    "backward_gradients": "activation gradients",
    "backward": "backward workspace",
    "loss": "logits and loss",
    "optimizer_step": "optimizer workspace",
}


def step_sections(problem: Problem, case: Case, row: Mapping[str, Any]) -> list[Section]:
    """Return the sections on time, memory and the pipeline of one row.

    Args:
        problem: stack, site, sequence length.
        case: names the offers.
        row: the answer's row.
    """
    setting = setting_of(problem, case, row)
    plan = Design.from_row(row).plan
    timeline = play(setting, plan)
    ranks = representative_ranks(plan.pp, _STAGES_SHOWN)
    parts = step_parts(setting, timeline)
    ideal = parts[IDEAL] / timeline.step_time_s
    closed = float(row["step_time_s"])
    time = Section(
        key="time",
        title="Where a step goes",
        lines=(
            f"One step of {format_duration(timeline.step_time_s)} as played task by task "
            f"(closed form, which the search uses: {format_duration(closed)}). At the dense peak "
            f"it would take {100 * ideal:.1f} % of that; the rest goes to what follows, averaged "
            "over pipeline ranks.",
        ),
        charts=(_time_chart(timeline, ranks),),
        tables=(_waterfall(parts, timeline.step_time_s), _time_table(timeline, ranks)),
    )
    drawn = play(setting, plan, played_tasks=DRAWN_TASKS)
    pipeline = Section(
        key="pipeline",
        title="Pipeline timeline",
        lines=_pipeline_lines(drawn, plan.pp),
        charts=_timeline_charts(drawn),
    )
    return [time, _memory_section(problem, case, row, ranks), pipeline]


def _waterfall(parts: Mapping[str, float], step_s: float) -> Table:
    used = [(name, parts[name]) for name in WORDS if abs(parts[name]) > 5e-5 * step_s]
    longest = max(seconds for _, seconds in used)
    return Table(
        heads=("part", "seconds", "of the step"),
        rows=tuple((WORDS[n], f"{s:.3f}", f"{100 * s / step_s:.1f} %") for n, s in used),
        left=("part",),
        bars=tuple(max(0.0, s / longest) for _, s in used),
    )


def _time_chart(timeline: Timeline, ranks: list[int]) -> Chart:
    kinds = [n for n in BREAKDOWN if np.any(timeline.breakdown_s[n] > 5e-5 * timeline.step_time_s)]
    return Chart(
        kind="stages",
        caption="Seconds of one step on each pipeline rank; every bar is the whole step.",
        data={
            "ranks": ranks,
            "parts": {n: [float(timeline.breakdown_s[n][r]) for r in ranks] for n in kinds},
            "unit": "seconds",
            "limit": None,
        },
    )


def _time_table(timeline: Timeline, ranks: list[int]) -> Table:
    kinds = [n for n in BREAKDOWN if np.any(timeline.breakdown_s[n] > 5e-5 * timeline.step_time_s)]
    return Table(
        title="seconds on each pipeline rank",
        heads=("rank", "layers", *kinds),
        rows=tuple(
            (str(r), str(int(timeline.layers[r].sum())),
             *(f"{timeline.breakdown_s[n][r]:.3f}" for n in kinds))
            for r in ranks
        ),
    )  # fmt: skip


def _memory_section(
    problem: Problem, case: Case, row: Mapping[str, Any], ranks: list[int]
) -> Section:
    setting = setting_of(problem, case, row)
    plan = Design.from_row(row).plan
    stages = memory_breakdown(
        setting.architecture, setting.stack, plan, seq_length=setting.seq_length
    )
    heaviest = next(stage for stage in stages if stage.heaviest)
    limit = memory_limit_bytes(setting.cluster.device.memory_bytes, setting.stack)
    items = [
        n for n in MEMORY_WORDS if any(s.items_bytes.get(n, 0.0) > _LEAST_BYTES for s in stages)
    ]
    shown = sorted({*ranks, heaviest.stage})
    own = [(n, heaviest.items_bytes[n]) for n in items if n in heaviest.items_bytes]
    longest = max(size for _, size in own)
    return Section(
        key="memory",
        title="Where memory goes",
        lines=(
            f"Rank {heaviest.stage} of {plan.pp} is the heaviest: "
            f"{heaviest.peak_bytes / GIB:.1f} GiB allocated at {heaviest.moment} of "
            f"{limit / GIB:.1f} GiB allowed, {heaviest.reserved_bytes / GIB:.1f} GiB held by the "
            f"allocator, {heaviest.total_bytes / GIB:.1f} GiB with the context.",
        ),
        charts=(
            Chart(
                kind="stages",
                caption="GiB allocated on each pipeline rank at its worst moment; the line is the "
                "limit.",
                data={
                    "ranks": shown,
                    "parts": {
                        MEMORY_WORDS[n]: [stages[r].items_bytes.get(n, 0.0) / GIB for r in shown]
                        for n in items
                    },
                    "unit": "GiB",
                    "limit": limit / GIB,
                },
            ),
        ),
        tables=(
            Table(
                heads=("on the heaviest rank", "GiB"),
                rows=tuple((MEMORY_WORDS[n], f"{size / GIB:.2f}") for n, size in own),
                left=("on the heaviest rank",),
                bars=tuple(size / longest for _, size in own),
            ),
            Table(
                title="GiB on each pipeline rank",
                heads=("rank", "layers", "in flight", "worst at", *(MEMORY_WORDS[n] for n in items),
                       "peak"),
                rows=tuple(
                    (str(s.stage), str(s.layers), f"{s.micro_batches_in_flight:.3g}", s.moment,
                     *(f"{s.items_bytes.get(n, 0.0) / GIB:.2f}" for n in items),
                     f"{s.peak_bytes / GIB:.2f}")
                    for s in (stages[r] for r in shown)
                ),
                left=("worst at",),
            ),
        ),
    )  # fmt: skip


def _pipeline_lines(timeline: Timeline, pp: int) -> tuple[str, ...]:
    plan = timeline.plan
    lines = [
        f"{plan.num_micro_batches} micro-batches of {plan.micro_batch_size} on {pp} pipeline "
        f"rank{'s' if pp > 1 else ''}, schedule {plan.schedule}"
        + (f" with {plan.virtual_stages} virtual stages" if plan.virtual_stages > 1 else "")
        + "; all replicas do the same at the same time."
    ]
    skipped = sum(skip.micro_batches for skip in timeline.skips)
    if skipped:
        lines.append(
            f"{skipped} micro-batches in the middle repeat the ones before them and are not drawn."
        )
    return tuple(lines)


def _timeline_charts(timeline: Timeline) -> tuple[Chart, ...]:
    """Return the whole step and, where its tasks are too thin to see, its beginning."""
    ranks = representative_ranks(timeline.plan.pp)
    spans = sorted(span for span in _spans(timeline) if span[1] in ranks)
    # A browser draws so many swiftly; of a step with more, the beginning shows the pattern.
    whole = _timeline_chart(
        timeline, ranks, spans[:_DRAWN_SPANS],
        "What each pipeline rank does from when to when, a task with its own traffic; gaps are "
        "the pipeline bubble.",
    )  # fmt: skip
    if len(spans) <= _WIDE_SPANS * len(ranks):
        return (whole,)
    back = [span[0] for span in spans if span[1] == ranks[0] and span[2] == BACKWARD]
    begin = [span for span in spans if span[0] < back[:_BEGIN_BACKWARDS][-1]]
    return whole, _timeline_chart(timeline, ranks, begin, "Its beginning.")


def _timeline_chart(
    timeline: Timeline, ranks: list[int], spans: list[_Span], caption: str
) -> Chart:
    drawn: dict[str, list[tuple[int, float, float, int]]] = {}
    for start_s, rank, kind, end_s, micro_batch in spans:
        span = (rank, _round(start_s), _round(end_s - start_s), micro_batch)
        drawn.setdefault(SPAN_KINDS[kind], []).append(span)
    last_s = max(end_s for _, _, _, end_s, _ in spans)
    return Chart(
        kind="timeline",
        caption=caption,
        data={
            "ranks": ranks,
            "spans": {name: drawn[name] for name in SPAN_KINDS if name in drawn},
            "skips": [
                (rank, _round(skip.start_s[rank]), _round(skip.end_s[rank] - skip.start_s[rank]),
                 skip.micro_batches)
                for skip in timeline.skips for rank in ranks if skip.start_s[rank] < last_s
            ],
        },
    )  # fmt: skip


def _spans(timeline: Timeline) -> list[_Span]:
    """Return (start, rank, kind, end, micro-batch) of every task and of what is once a step.

    A task has the kind of its compute: SPAN_KINDS begins with the kinds of tasks.
    """
    played, events = timeline.played, timeline.events
    of_step = events.micro_batch < 0
    columns = (
        (played.start_s, events.start_s[of_step]),
        (played.rank, events.rank[of_step]),
        (played.kind, events.kind[of_step]),
        (played.end_s, events.end_s[of_step]),
        (played.micro_batch, events.micro_batch[of_step]),
    )
    return list(zip(*([*a.tolist(), *b.tolist()] for a, b in columns), strict=True))


def _round(seconds: float) -> float:
    return float(f"{float(seconds):.6g}")
