"""The Python API says what the commands say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.errors import InfeasibleError, UserInputError
from vtrain.plans_cli import plans_command
from vtrain.simulate_cli import simulate_command

LLAMA = {"gpus": 64, "tp": 2, "global_batch_size": 512}


def test_simulate_is_the_command() -> None:
    """`simulate` returns the document that `vtrain simulate --json` prints."""
    words = "--model llama3-8b --cluster h100 --gpus 64 --tp 2 --global-batch 512"
    options = [*words.split(), "--json"]
    printed = CliRunner().invoke(simulate_command, options, catch_exceptions=False).output
    found = vt.simulate("llama3-8b", "h100", **LLAMA)
    assert found.document == json.loads(printed)
    assert found.step_time_s == found.table["step_time_s"].iloc[0]
    assert "llama3-8b" in found._repr_html_()


def test_plans_are_the_command() -> None:
    """`plans` returns every row that `vtrain plans --json` prints, with its pins obeyed."""
    words = "--model llama3-8b --cluster h100 --gpus 64 --global-batch 512 --tp 2 --top 100000"
    options = [*words.split(), "--tokens", "1e12", "--json"]
    printed = CliRunner().invoke(plans_command, options, catch_exceptions=False).output
    frame = vt.plans("llama3-8b", "h100", gpus=64, global_batch_size=512, tp=2, tokens=1e12)
    assert frame.to_dict("records") == json.loads(printed)["rows"]
    assert "cost_usd" not in vt.plans("llama3-8b", gpus=64, global_batch_size=512, tp=2)


def test_breakdowns_sum_to_the_whole() -> None:
    """Seconds of every stage sum to the played step, GiB of every stage to its peak."""
    found = vt.simulate("llama3-70b", gpus=128, tp=8, pp=4, global_batch_size=256)
    seconds = found.time_by_stage()
    assert len(seconds) == 4
    assert seconds.sum(axis=1).to_numpy() == pytest.approx(found.timeline().step_time_s)
    memory = found.memory_by_stage()
    items = [c for c in memory if c.endswith("_gib") and c != "peak_gib"]
    assert memory[items].sum(axis=1).to_numpy() == pytest.approx(memory["peak_gib"].to_numpy())
    assert memory["peak_gib"].max() * 2**30 == pytest.approx(found.mem_peak_bytes)
    assert found.fits
    spans = found.spans()
    assert (spans["end_s"] > spans["start_s"]).all()


def test_objects_serve_as_well_as_names() -> None:
    """An Architecture, a Cluster and a Stack give what their names give."""
    from vtrain.models import load_model
    from vtrain.presets import load_cluster, load_stack

    named = vt.simulate("llama3-8b", "h200", **LLAMA)
    objects = vt.simulate(
        load_model("llama3-8b").architecture, load_cluster("h200"), **LLAMA,
        stack=load_stack("megatron-core-2025"), seq_length=8192,
    )  # fmt: skip
    assert objects.document == named.document


def test_catalogues_name_what_can_be_loaded() -> None:
    """Every model and cluster of the catalogues is priced, counted and usable by its name."""
    models, clusters = vt.models(), vt.clusters()
    assert models.loc["llama3-8b", "parameters"] == 8_030_261_248  # config.json of Meta
    assert clusters.loc["h100-sxm-80g", "peak_bf16_tflops"] == pytest.approx(989.4, abs=0.2)
    assert "megatron-core-2025" in vt.stacks().index
    assert (vt.prices("H100")["usd_per_gpu_hour"] > 0.0).all()
    assert vt.prices("H100")["source"].str.len().min() > 0


def test_a_design_goes_out_and_comes_back(tmp_path: Path) -> None:
    """A simulated design exports, imports as the same plan, and simulates to the same step."""
    found = vt.simulate("llama3-8b", "h100", **LLAMA)
    design = found.design(tokens=512 * 8192 * 1000)
    assert vt.simulate_design(design).step_time_s == found.step_time_s
    script = tmp_path / "run.sh"
    script.write_text(vt.export(design, "megatron"))
    assert vt.read_file(script).plan == found.plan
    assert found.trace(tmp_path / "step.json") > 0
    assert "which waits least" in found.explain()


def test_mfu_in_every_dialect() -> None:
    """The house dialect agrees with the simulator at the simulated throughput."""
    found = vt.simulate("llama3-8b", "h100", **LLAMA)
    table = vt.mfu("llama3-8b", "h100", gpus=64, tokens_per_s=found.document["tokens_per_s"])
    assert table.loc["vtrain", "mfu"] == pytest.approx(found.mfu)
    assert table.loc["vtrain-causal", "mfu"] < found.mfu


def test_calibration_recovers_a_slower_machine() -> None:
    """Steps 10 % slower than predicted give factors with which they are predicted within 2 %."""
    plans = [dict(gpus=64, tp=tp, global_batch_size=512, micro_batch_size=m)
             for tp in (1, 2, 4) for m in (1, 2)]  # fmt: skip
    runs = pd.DataFrame(plans)
    runs["step_time_s"] = [1.1 * vt.simulate("llama3-8b", **p).step_time_s for p in plans]
    site = vt.calibrate("llama3-8b", runs=runs).factors
    for plan, measured in zip(plans, runs["step_time_s"], strict=True):
        predicted = vt.simulate("llama3-8b", **plan, site=site).step_time_s
        assert predicted == pytest.approx(measured, rel=0.02)


def test_mistakes_get_one_line() -> None:
    """What cannot be is refused with the rule and the way out, as on the command line."""
    with pytest.raises(UserInputError, match="nearest"):
        vt.simulate("llama3-8x", **LLAMA)
    with pytest.raises(UserInputError, match="takes no 'layers'"):
        vt.plans("llama3-8b", gpus=64, global_batch_size=512, layers=3)
    with pytest.raises(UserInputError, match="needs a column 'gpus'"):
        vt.calibrate("llama3-8b", runs=pd.DataFrame({"step_time_s": [1.0]}))
    with pytest.raises(UserInputError, match="no fp8 peak"):
        vt.mfu("llama3-8b", "A100", gpus=8, tokens_per_s=1e5, precision="fp8")
    with pytest.raises(InfeasibleError, match="fits"):
        vt.plans("llama3-405b", gpus=8, global_batch_size=512)
