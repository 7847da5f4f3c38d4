"""The Chrome trace of a step: well-formed, without overlap, and adding up to the breakdown."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.architecture import default_architecture
from vtrain.errors import UserInputError
from vtrain.plan import Plan
from vtrain.presets import load_cluster, load_stack
from vtrain.simulate import simulate
from vtrain.simulation.timeline import Timeline
from vtrain.trace import RankMemory, representative_ranks, trace_document, write_trace
from vtrain.trace_cli import trace_command

# What the Trace Event Format asks of each phase used here.
REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "ts", "args"},
}
PLAN = Plan(
    tp=2, pp=4, dp=4, virtual_stages=2, global_batch_size=64, recompute="selective",
    sequence_parallel=True,
)  # fmt: skip
MEMORY = RankMemory(standing_bytes=20e9, chunk_bytes=1e9)


def timeline(plan: Plan = PLAN, **options: Any) -> Timeline:
    return simulate(
        default_architecture(hidden_size=4096, num_layers=32),
        load_cluster("h100-sxm-80g"),
        load_stack("megatron-core-2025"),
        plan,
        seq_length=4096,
        **options,
    )


PLANS = {
    "interleaved": PLAN,
    "1f1b": replace(PLAN, virtual_stages=1),
    "zb-h1": replace(PLAN, virtual_stages=1, schedule="zb-h1", recompute="full"),
    "gpipe": replace(PLAN, virtual_stages=1, schedule="gpipe", sharding="zero2"),
    "no pipeline": replace(PLAN, pp=1, virtual_stages=1, sharding="zero3"),
    "long": replace(PLAN, global_batch_size=40_000),
}


@pytest.fixture(params=PLANS, scope="module")
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A trace with memory, as a reader gets it."""
    played = timeline(PLANS[request.param], played_tasks=2_000)
    memory = dict.fromkeys(range(PLANS[request.param].pp), MEMORY)
    text = json.dumps(trace_document(played, memory=memory), allow_nan=False)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def spans(document: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    by_track = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            by_track[event["pid"]].append(event)
    return by_track


def test_events_have_what_the_format_asks(document: dict[str, Any]) -> None:
    """Every event is of a known phase and has its fields, with finite times from 0 on."""
    for event in document["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert event.get("ts", 0.0) >= 0.0
        assert event.get("dur", 0.0) >= 0.0
    assert document["displayTimeUnit"] in ("ms", "ns")


def test_spans_of_a_track_never_overlap(document: dict[str, Any]) -> None:
    """A rank does one thing at a time."""
    step_us = document["otherData"]["step_time_s"] * 1e6
    for track in spans(document).values():
        track.sort(key=lambda span: span["ts"])
        for before, after in pairwise(track):
            assert after["ts"] - (before["ts"] + before["dur"]) >= -1e-9 * step_us
        assert track[-1]["ts"] + track[-1]["dur"] <= step_us * (1 + 1e-9)


def test_spans_add_up_to_the_breakdown(document: dict[str, Any]) -> None:
    """On every track the seconds of each kind are those of the printed breakdown within 0.1 %."""
    printed = document["otherData"]["breakdown_s"]
    step = document["otherData"]["step_time_s"]
    for at, rank in enumerate(document["otherData"]["ranks"]):
        total: dict[str, float] = defaultdict(float)
        for span in spans(document)[rank]:
            if "seconds" in span["args"]:
                for kind, seconds in span["args"]["seconds"].items():
                    total[kind] += seconds
            else:
                total[span["args"]["kind"]] += span["dur"] / 1e6
        assert set(total) <= set(printed)
        for kind, seconds in printed.items():
            if kind != "bubble":
                assert total[kind] == pytest.approx(seconds[at], rel=1e-3, abs=1e-9)
        rest = step - sum(total.values())
        assert rest == pytest.approx(printed["bubble"][at], rel=1e-3, abs=1e-6 * step)


def test_compute_and_each_kind_of_communication_are_told_apart() -> None:
    """Spans name what they are; communication has a category of its own."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for track in spans(trace_document(timeline())).values():
        for span in track:
            kinds[span["cat"]].add(span["args"]["kind"])
    assert kinds["communication"] == {"tensor-parallel", "data-parallel", "send"}
    assert {"forward", "backward", "recompute", "optimizer"} <= kinds["compute"]


def test_arrows_join_the_tasks_that_pass_a_message(document: dict[str, Any]) -> None:
    """Each arrow leaves inside a span of one rank and arrives later inside a span of another."""
    ends: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in document["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    tracks = spans(document)
    if len(tracks) == 1:
        assert not ends
        return
    assert ends

    def inside(event: dict[str, Any]) -> bool:
        return any(
            span["ts"] <= event["ts"] <= span["ts"] + span["dur"] for span in tracks[event["pid"]]
        )

    for pair in list(ends.values())[:: max(1, len(ends) // 50)]:
        assert pair["s"]["pid"] != pair["f"]["pid"]
        assert pair["s"]["ts"] < pair["f"]["ts"]
        assert inside(pair["s"])
        assert inside(pair["f"])


def test_every_message_of_a_small_step_has_an_arrow() -> None:
    """Two boundaries, forward and backward, for each micro-batch."""
    plan = Plan(tp=2, pp=3, global_batch_size=5, sequence_parallel=True)
    arrows = [
        event for event in trace_document(timeline(plan))["traceEvents"] if event["ph"] == "s"
    ]
    assert len(arrows) == 2 * 2 * 5


def test_memory_follows_the_activations_held(document: dict[str, Any]) -> None:
    """The counter starts and ends at what always stands, and peaks with the warm-up."""
    level = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "C":
            level[event["pid"]].append(event["args"]["GiB"] * 2**30)
    assert set(level) == set(document["otherData"]["ranks"])
    for values in level.values():
        assert values[0] == pytest.approx(MEMORY.standing_bytes, rel=1e-3)
        assert values[-1] == pytest.approx(MEMORY.standing_bytes, rel=1e-3)
        assert max(values) > MEMORY.standing_bytes


def test_peak_of_activations_is_the_warm_up() -> None:
    """Rank 0 of interleaved 1F1B holds 2 (p - 1) + (v - 1) p + 1 chunks."""
    _, held = timeline().activations_held(0)
    assert held.sum(axis=1).max() == 2 * 3 + 1 * 4 + 1


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [(1, [0]), (8, list(range(8))), (35, [0, 1, 2, 16, 17, 18, 33, 34])],
)
def test_representative_ranks(ranks: int, expected: list[int]) -> None:
    """Long pipelines show both ends and the middle."""
    assert representative_ranks(ranks) == expected


def test_an_unknown_rank_is_refused(tmp_path: Path) -> None:
    """A rank beyond the pipeline is named, with the nearest one, and no file appears."""
    with pytest.raises(UserInputError, match="rank 4 does not exist at pp=4; nearest valid: 3"):
        write_trace(tmp_path / "t.json", timeline(), ranks=[0, 4])
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_trace_and_prints_the_breakdown(tmp_path: Path) -> None:
    """`vtrain trace` writes JSON that loads, and its --json sums to the step."""
    path = tmp_path / "step.json"
    options = (
        "--model llama3-8b --gpus 32 --tp 2 --pp 4 --vpp 2 --global-batch 64 "
        f"--ranks 0,3 --json --out {path}"
    )
    done = CliRunner().invoke(trace_command, options.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    trace = json.loads(path.read_text())
    assert trace["otherData"]["ranks"] == [0, 3]
    assert len(trace["traceEvents"]) == printed["events"]
    assert any(event["ph"] == "C" for event in trace["traceEvents"])
    for rank in range(4):
        total = sum(seconds[rank] for seconds in printed["breakdown_s"].values())
        assert total == pytest.approx(printed["step_time_s"])


def test_the_command_refuses_ranks_it_cannot_read(tmp_path: Path) -> None:
    """--ranks takes all or whole numbers."""
    options = f"--model llama3-8b --gpus 8 --pp 8 --global-batch 8 --ranks x --out {tmp_path}/t"
    with pytest.raises(UserInputError, match="--ranks must be all or whole numbers"):
        CliRunner().invoke(trace_command, options.split(), catch_exceptions=False)


def test_a_design_is_traced_as_it_is_simulated(tmp_path: Path) -> None:
    """`trace --design` plays the plan of the file and refuses options that the file settles."""
    run = vt.simulate("llama3-8b", gpus=16, tp=2, pp=2, global_batch_size=32)
    row = {k: v for k, v in run.design().to_row().items() if v is not None}
    file, out = tmp_path / "best.toml", tmp_path / "step.json"
    file.write_text(tomli_w.dumps(row))
    words = ["--design", str(file), "--out", str(out), "--json"]
    done = CliRunner().invoke(trace_command, words, catch_exceptions=False)
    assert json.loads(done.output)["step_time_s"] == run.timeline().step_time_s
    refused = CliRunner().invoke(trace_command, [*words, "--tp", "4"]).exception
    assert isinstance(refused, UserInputError)
    assert "--design settles tp" in str(refused)
