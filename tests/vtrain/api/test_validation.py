"""Validation from Python is `vtrain validate`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import vtrain.api as vt
from vtrain.errors import UserInputError
from vtrain.validation.cli import validate

RUNS = pd.DataFrame({
    "run_id": [f"lab-{i:04d}" for i in range(6)], "gpu": "H100-SXM", "gpu_memory_gib": 80,
    "gpus": 8, "gpus_per_node": 8, "inter_link_gbps_per_gpu": 400,
    "framework": "NeMo/Megatron-Core", "dtype": "bf16", "model_name": "llama-1B", "layers": 16,
    "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn_hidden": 5632, "gated_mlp": 1,
    "vocab": 32000, "seq_len": 2048, "experts": None, "global_batch_seqs": 64,
    "micro_batch": [1, 2, 4, 8, 1, 2], "tp": [1, 1, 1, 1, 2, 2], "pp": 1,
    "dp": [8, 8, 8, 8, 4, 4], "cp": 1, "vpp": 1, "zero_stage_or_fsdp": "zero1",
    "sequence_parallel": 0, "recompute": "none", "flash_attention": 1,
    "iteration_s": [0.41, 0.38, 0.37, 0.37, 0.45, 0.42], "mfu": 0.4,
})  # fmt: skip


@pytest.fixture
def runs_file(tmp_path: Path) -> Path:
    """The same runs as a file."""
    path = tmp_path / "runs.csv"
    RUNS.to_csv(path, index=False)
    return path


def test_a_frame_is_judged_as_a_file_is(runs_file: Path, printed) -> None:
    """A frame, a file and the command give one document; tables have a row a group and a run."""
    theirs = printed(validate, runs_file, "--max-memory-share", 0.9)
    ours = vt.validate(RUNS, max_memory_share=0.9)
    assert ours.document() == theirs
    assert vt.validate([runs_file], max_memory_share=0.9).document() == theirs
    (group,) = theirs["zero_shot"]
    assert ours.table.index.tolist() == ["lab"]
    assert ours.table["time_mape_pct"].iloc[0] == pytest.approx(group["time_mape_pct"], abs=1e-3)
    assert len(ours.rows) == group["judged"]
    assert (ours.rows["low_s"] < ours.rows["predicted_s"]).all()
    assert ours.few_shot.empty
    assert "time_mape_pct" in ours._repr_html_()
    assert str(ours).startswith("Zero-shot")


def test_several_files_and_sources(runs_file: Path) -> None:
    """Files and frames add up; a source narrows them."""
    other = RUNS.assign(run_id=[f"shop-{i:04d}" for i in range(len(RUNS))])
    both = vt.validate([runs_file, other])
    assert both.table.index.tolist() == ["lab", "shop"]
    assert vt.validate([RUNS, other], sources="shop").table.index.tolist() == ["shop"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"runs": RUNS.drop(columns="tp")}, "frame.csv is no file of measured runs: it lacks tp"),
        ({"runs": RUNS, "sources": "nobody"}, "have: lab"),
        ({"runs": RUNS, "seeds": 0}, "seeds=0"),
        ({"runs": "no-such.csv"}, "cannot read no-such.csv"),
    ],
)
def test_mistakes_get_one_line(words: dict[str, object], message: str) -> None:
    """What cannot be judged is refused with the rule and the way out."""
    with pytest.raises(UserInputError, match=message):
        vt.validate(**words)
