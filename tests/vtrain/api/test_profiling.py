"""Profiles from Python are those of `vtrain profile`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner

import vtrain.api as vt
from vtrain.errors import UserInputError
from vtrain.latency.fit_cli import fit_device
from vtrain.profiler.cli import profile_group

GPU = "H100-SXM"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with products of a made-up GPU: 70 % of an H100's peak and 5 us to start."""
    folder = tmp_path_factory.mktemp("tables")
    lines = ["gpu,dtype,m,n,k,time_us,tflops,source,layout,batch,note"]
    for m in (512, 1024, 2048, 4096, 8192):
        for n, k in ((1024, 4096), (4096, 1024), (4096, 4096), (8192, 4096), (4096, 14336)):
            seconds = 5e-6 + 2.0 * m * n * k / (0.7 * 989.4e12)
            lines.append(f"{GPU},bf16,{m},{n},{k},{seconds * 1e6:.4g},,made up,TN,1,")
    (folder / "gemm.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_imported_tables_are_the_commands(tables: Path, tmp_path: Path) -> None:
    """The profile of published tables has the files and the words of `profile import`."""
    words = ["import", str(tables), "--gpu", GPU, "--base", "h100-sxm-80g", "--out"]
    theirs = tmp_path / "theirs" / "machine"
    printed = CliRunner().invoke(profile_group, [*words, str(theirs)], catch_exceptions=False)
    ours = tmp_path / "ours" / "machine"
    profile = vt.profile_import(tables, ours, gpu=GPU, base="h100-sxm-80g")
    for name in ("cluster.toml", "device.toml", "fit.csv", "gemm.csv", "residual.toml"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    told = printed.output.replace(str(theirs), str(ours)).splitlines()[1:]
    assert str(profile).splitlines() == told
    assert profile.table.loc["gemm, saturating", "rows"] == 25
    assert len(profile.rows("gemm")) == 25
    assert profile.rows("collectives").empty
    assert "mape_pct" in profile._repr_html_()


def test_a_profile_serves_as_cluster(tables: Path, tmp_path: Path) -> None:
    """A profile is simulated on; fitting it again gives the same constants."""
    profile = vt.profile_import(tables, tmp_path / "machine", gpu=GPU, base="h100-sxm-80g")
    plan = {"gpus": 8, "tp": 2, "global_batch_size": 512}
    first = vt.simulate("llama3-8b", profile.cluster, stack=profile.stack, **plan)
    again = vt.profile_fit(tmp_path / "machine")
    assert again.table.equals(profile.table)
    assert vt.simulate("llama3-8b", again.cluster, **plan).step_time_s == first.step_time_s


def test_the_plan_of_a_run_is_the_dry_run(tmp_path: Path) -> None:
    """`profile_plan` lists the rows that `profile run --dry-run` prints, without torch."""
    words = ["run", "--device", "cuda", "--out", str(tmp_path), "--gemms", "30", "--dry-run"]
    printed = CliRunner().invoke(profile_group, words, catch_exceptions=False).output
    planned = vt.profile_plan("cuda", gemms=30)
    assert [line.strip() for line in printed.splitlines()[1:]] == planned["operator"].tolist()


def test_mistakes_get_one_line(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be measured or fitted is refused with the rule and the way out."""
    with pytest.raises(UserInputError, match="GPUs in it: H100-SXM"):
        vt.profile_import(tables, tmp_path / "a", gpu="H100")
    with pytest.raises(UserInputError, match="no profile"):
        vt.profile_fit(tmp_path / "nowhere")
    with pytest.raises(UserInputError, match="gemms must be a whole number of at least 30"):
        vt.profile_run(tmp_path / "b", device="cpu", gemms=3)
    with pytest.raises(UserInputError, match="minutes must be above 0, got nan"):
        vt.profile_run(tmp_path / "b", device="cpu", minutes=float("nan"))
    with pytest.raises(UserInputError, match="one of cuda, cpu"):
        vt.profile_plan("tpu")
    with pytest.raises(UserInputError, match="one of gemm"):
        vt.profile_import(tables, tmp_path / "c", gpu=GPU).rows("gemms")
    with pytest.raises(UserInputError, match="at least 15"):
        vt.profile_budget(tables, shapes=3)
    with pytest.raises(UserInputError, match="H100"):
        vt.fit_devices(tables, devices="H100x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserInputError, match="torchrun --no-python vtrain profile run"):
        vt.profile_run(tmp_path / "d", device="cpu")


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="torch is installed: nothing to refuse"
)
def test_measuring_needs_torch(tmp_path: Path) -> None:
    """Without torch a run is refused in one line."""
    with pytest.raises(UserInputError, match="torch"):
        vt.profile_run(tmp_path / "mine", device="cpu")


def test_device_constants_are_the_commands(shared_data: Path, tmp_path: Path) -> None:
    """Fitted constants are written as by `vtrain fit-devices`, with the errors it prints."""
    words = ["--profiles", str(shared_data / "profiles"), "--device", "v100-sxm-32g"]
    words += ["--out", str(tmp_path / "theirs"), "--report", str(tmp_path / "their-report")]
    printed = CliRunner().invoke(fit_device, words, catch_exceptions=False).stdout
    found = vt.fit_devices(shared_data / "profiles", devices="v100-sxm-32g")
    assert len(found.table) == len(printed.splitlines())
    assert f"{found.table['mape_pct'].iloc[0]:6.1f}" in printed.splitlines()[0]
    found.write(tmp_path / "ours")
    found.report(tmp_path / "our-report")
    names = [
        path.relative_to(tmp_path / "theirs") for path in (tmp_path / "theirs").rglob("*.toml")
    ]
    assert len(names) == 2
    for name in names:
        ours, theirs = tmp_path / "ours" / name, tmp_path / "theirs" / name
        assert ours.read_bytes() == theirs.read_bytes()
    for name in ("operators.csv", "README.md"):
        ours, theirs = tmp_path / "our-report" / name, tmp_path / "their-report" / name
        assert ours.read_bytes() == theirs.read_bytes()
    assert "mape_pct" in found._repr_html_()
    with pytest.raises(UserInputError, match=r"gemm\.csv"):
        vt.fit_devices(tmp_path, devices="H100")


def test_the_size_of_a_profile_is_studied(shared_data: Path) -> None:
    """`profile_budget` has the errors that `profile budget` prints, a row a number of products."""
    tables = shared_data / "profiles"
    words = ["budget", "--tables", str(tables), "--device", "h100-sxm-80g", "--shapes", "30"]
    printed = CliRunner().invoke(profile_group, words, catch_exceptions=False).output
    row = vt.profile_budget(tables, devices="h100-sxm-80g", shapes=30).iloc[0]
    assert row["shapes"] == 30
    assert f"{row['tiles_mape_pct']:.1f} ({row['tiles_median_ape_pct']:.1f})" in printed
