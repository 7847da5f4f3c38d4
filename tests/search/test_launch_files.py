"""A run folder holds what starts its answers."""

from __future__ import annotations

from pathlib import Path

from vtrain_search.api import search

from vtrain.formats import read_any

QUICK = {"micro_batch_size": 2, "virtual_stages": 1, "recompute": "none"}


def test_launch_files_carry_the_answer(tmp_path: Path) -> None:
    """The Megatron script of a run folder is the recommended plan; what is left out is told."""
    found = search("1e4usd", fix=QUICK, trials=16, save_dir=tmp_path / "run")
    folder = tmp_path / "run" / "launch" / "10.0k"
    plan = read_any(folder / "megatron.sh").plan
    assert plan is not None
    for key in ("tp", "pp", "dp", "micro_batch_size", "global_batch_size"):
        assert getattr(plan, key) == found.best[key]
    assert (folder / "config.json").exists()
    assert (folder / "job.sbatch").exists()
    assert "torchtitan: not written" in (folder / "not-written.txt").read_text(encoding="utf-8")
    search("1e4usd", fix=QUICK, trials=8, save_dir=tmp_path / "run", force=True)
    assert [p.name for p in (tmp_path / "run" / "launch").iterdir()] == ["10.0k"]
