"""One limit on memory decides what fits, wherever a user may state it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import vtrain.api as vt
from vtrain.errors import InfeasibleError, UserInputError
from vtrain.interval import UNRELIABLE_SHARE
from vtrain.memory import memory_limit_bytes, reliable_limit_share, verdict
from vtrain.memory.verdict import SHARE_TIGHT, tight_share
from vtrain.memory_limit import SHARE_FITS, format_share, parse_memory_limit
from vtrain.plans_cli import plans_command
from vtrain.presets import cluster_names, load_cluster, load_stack, stack_names
from vtrain.ranking import verdict_codes
from vtrain.simulate_cli import simulate_command

STACK = load_stack("megatron-core-2025")
H100_BYTES = load_cluster("h100-sxm-80g").device.memory_bytes
PLAN = {"gpus": 8, "tp": 2, "pp": 1, "micro_batch_size": 1, "global_batch_size": 64}


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.85", 0.85), ("85%", 0.85), ("86.3 %", 0.863), (".5", 0.5), ("1", 1.0), (0.9, 0.9),
     (1, 1.0), ("30%", 0.3), (None, SHARE_FITS), ("", SHARE_FITS)],
)  # fmt: skip
def test_a_share_is_read_exactly(text: str | float | None, share: float) -> None:
    """A share and the same in percent are the same number."""
    assert parse_memory_limit(text) == share


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("85", "nearest valid: 0.85"), ("1.2", "nearest valid: 1"), ("120%", "nearest valid: 1"),
     ("0.1", "nearest valid: 0.3"), ("0", "nearest valid: 0.3"), ("5000", "nearest valid: 1"),
     ("lots", "for example 0.85"), ("-0.5", "for example 0.85"), ("nan", "for example 0.85"),
     (float("nan"), "for example 0.85"), ("70GiB", "for example 0.85")],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text: str | float, nearest: str) -> None:
    """Rule, value and nearest valid choice; 85 is taken for 85 %, not guessed."""
    with pytest.raises(UserInputError) as caught:
        parse_memory_limit(text)
    assert str(text) in str(caught.value)
    assert nearest in str(caught.value)
    assert "0.3 to 1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shares_are_written_in_percent() -> None:
    """No digits appear that nobody wrote."""
    assert [format_share(s) for s in (0.9, 0.57, 0.863, 1.0)] == ["90 %", "57 %", "86.3 %", "100 %"]


def test_the_default_is_as_it_was() -> None:
    """Nothing stated: 90 % fits, 95 % is tight, to the last bit."""
    assert tight_share(SHARE_FITS) == SHARE_TIGHT
    limit = memory_limit_bytes(H100_BYTES, STACK)
    assert verdict(1.0, H100_BYTES, STACK).limit_bytes == limit
    assert (
        vt.simulate("llama3-8b", gpus=8, global_batch_size=8).document["mem_limit_bytes"] == limit
    )


@given(st.floats(0.2, 1.1), st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_a_larger_limit_never_judges_worse(peak_share: float, one: float, other: float) -> None:
    """What fits below a limit fits below a larger one, for one plan as for tables."""
    usable = memory_limit_bytes(H100_BYTES, STACK, 1.0)
    words = ("fits", "tight", "does not fit")
    found, codes = [], []
    for share in sorted((one, other)):
        judged = verdict(peak_share * usable, H100_BYTES, STACK, limit_share=share)
        assert judged.verdict != "fits" or judged.peak_bytes <= judged.limit_bytes
        found.append(words.index(judged.verdict))
        peaks = np.array([peak_share * usable])
        codes.append(int(verdict_codes(peaks, H100_BYTES, STACK, share)[0]))
    assert found[1] <= found[0]
    assert codes[1] <= codes[0]


def test_the_reliable_limit_clears_the_warning_on_every_machine() -> None:
    """Whole percent, at most one below what the warning's share of the device would allow."""
    for cluster in cluster_names():
        device_bytes = load_cluster(cluster).device.memory_bytes
        for name in stack_names():
            stack = load_stack(name)
            share = reliable_limit_share(device_bytes, stack)
            allowed = memory_limit_bytes(device_bytes, stack, share)
            assert allowed <= UNRELIABLE_SHARE * device_bytes
            assert share == 1.0 or allowed > (UNRELIABLE_SHARE - 0.01) * device_bytes
            assert parse_memory_limit(f"{share:g}") == share


def _words(plan: dict[str, int]) -> list[str]:
    names = {"micro_batch_size": "--micro-batch", "global_batch_size": "--global-batch"}
    return [w for key, value in plan.items() for w in (names.get(key, f"--{key}"), str(value))]


def test_the_verdict_of_a_simulation_follows_the_limit() -> None:
    """Fits, tight (within five points), does not fit and exit code 3; figures stay the same."""
    usual = vt.simulate("llama3-8b", **PLAN)
    usable = memory_limit_bytes(H100_BYTES, STACK, 1.0)
    own = usual.mem_peak_bytes / usable
    assert 0.4 < own < 0.9
    for limit, word in ((own + 0.01, "fits"), (own - 0.01, "tight"), (own - 0.08, "does not fit")):
        found = vt.simulate("llama3-8b", **PLAN, memory_limit=round(limit, 4))
        assert found.document["verdict"] == word
        assert found.document["mem_limit_share"] == round(limit, 4)
        assert found.document["mem_limit_bytes"] == pytest.approx(round(limit, 4) * usable)
        assert (found.step_time_s, found.mem_peak_bytes) == (
            usual.step_time_s, usual.mem_peak_bytes,
        )  # fmt: skip
        options = ["--model", "llama3-8b", *_words(PLAN), "--memory-limit", f"{limit:.4f}"]
        done = CliRunner().invoke(simulate_command, options)
        assert f": {word} (P" in done.output
        assert isinstance(done.exception, InfeasibleError) == (word == "does not fit")


def test_explanations_count_from_the_stated_limit() -> None:
    """A plan that a stated limit excludes is explained, with changes that keep that limit."""
    found = vt.simulate("llama3-8b", **PLAN, memory_limit=0.6)
    assert "would fit" not in vt.simulate("llama3-8b", **PLAN).explain()
    text = found.explain()
    limit = found.document["mem_limit_bytes"] / 2**30
    assert f"GiB over {limit:.1f}" in text
    fixes = [line for line in text.splitlines() if "would fit" in line]
    assert fixes
    for line in fixes:
        assert float(line.rsplit("(", 1)[1].split(" GiB")[0]) <= limit + 0.05


def test_every_plan_called_fitting_keeps_the_limit() -> None:
    """`plans` judges by the stated limit; the command and the function agree."""
    options = ["--model", "llama3-8b", "--gpus", "16", "--global-batch", "64"]
    usual = vt.plans("llama3-8b", gpus=16, global_batch_size=64)
    tight = vt.plans("llama3-8b", gpus=16, global_batch_size=64, memory_limit="60%")
    assert 0 < len(tight) < len(usual)
    fits = tight[tight.verdict == "fits"]
    assert (fits.mem_peak_bytes <= fits.mem_limit_bytes).all()
    usable = memory_limit_bytes(H100_BYTES, STACK, 1.0)
    assert tight.mem_limit_bytes.iloc[0] == 0.6 * usable
    assert (tight.mem_peak_bytes <= tight_share(0.6) * usable).all()
    done = CliRunner().invoke(plans_command, [*options, "--memory-limit", "0.6", "--json"])
    rows = json.loads(done.output)["rows"]
    assert rows[0]["mem_limit_bytes"] == 0.6 * usable
    refused = CliRunner().invoke(plans_command, [*options, "--memory-limit", "60"])
    assert isinstance(refused.exception, UserInputError)


def test_a_design_file_carries_its_limit(tmp_path: Path) -> None:
    """A design is judged by the limit it was searched with, unless another is stated."""
    run = vt.simulate("llama3-8b", gpus=8, tp=2, global_batch_size=64)
    row = {k: v for k, v in run.design().to_row().items() if v is not None}
    file = tmp_path / "best.toml"
    file.write_text(tomli_w.dumps({"rows": [{**row, "mem_limit_share": 0.35}]}))
    done = CliRunner().invoke(simulate_command, ["--design", str(file), "--json"])
    document = json.loads(done.output)
    assert document["mem_limit_share"] == 0.35
    assert vt.simulate_design(file).document == document
    other = ["--design", str(file), "--json", "--memory-limit", "95%"]
    assert json.loads(CliRunner().invoke(simulate_command, other).output)["mem_limit_share"] == 0.95
    assert vt.simulate_design(file, memory_limit=0.95).document["mem_limit_share"] == 0.95
    file.write_text(tomli_w.dumps(row))
    assert vt.simulate_design(file).document["mem_limit_share"] == SHARE_FITS
    file.write_text(tomli_w.dumps({**row, "mem_limit_share": 7.0}))
    with pytest.raises(UserInputError, match="memory limit"):
        vt.simulate_design(file)


def test_the_warning_of_a_simulation_names_the_way_out() -> None:
    """A plan that fits but fills the device says under which limit plans keep clear of it."""
    plans = vt.plans("llama3-8b", gpus=16, global_batch_size=64)
    over = plans[plans.mem_peak_bytes > UNRELIABLE_SHARE * H100_BYTES].iloc[0]
    names = ("tp", "pp", "virtual_stages", "micro_batch_size", "recompute", "sharding")
    flags = {"virtual_stages": "--vpp", "micro_batch_size": "--micro-batch"}
    options = [w for n in names for w in (flags.get(n, f"--{n}"), str(over[n]))]
    done = CliRunner().invoke(
        simulate_command, ["--model", "llama3-8b", "--gpus", "16", "--global-batch", "64", *options]
    )
    share = reliable_limit_share(H100_BYTES, STACK)
    assert f"--memory-limit {share:g}" in done.output
