from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from vtrain.calibrate import load_site
from vtrain.calibrate_cli import calibrate_command
from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.models import load_model
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.simulate_cli import simulate_command
from vtrain.site import SHIPPED, SiteFactors

PLAN = ["--gpus", "64", "--tp", "2", "--micro-batch", "1", "--global-batch", "256"]
COMMON = ["--model", "llama3-8b", "--cluster", "h100-sxm-80g", "--seq", "8192", *PLAN]


def seconds(tp: int, pp: int, site: SiteFactors) -> float:
    plan = Plan(
        tp=tp, pp=pp, dp=64 // tp // pp, micro_batch_size=1, global_batch_size=256,
        sequence_parallel=tp > 1,
    )  # fmt: skip
    found = step_seconds(
        load_model("llama3-8b").architecture, load_cluster("h100-sxm-80g"),
        load_stack("megatron-core-2025"), PlanTable.from_plans([plan]), seq_length=8192, site=site,
    )  # fmt: skip
    return float(found[0])


def write_log(path: Path, step_s: float, batch: int = 256) -> None:
    path.write_text(
        "".join(
            f" [2024-04-06 02:59:36] iteration {i:8d}/     100 | consumed samples: {i * batch:12d} "
            f"| elapsed time per iteration (ms): {1000 * step_s * (3 if i == 1 else 1):.1f} | "
            f"learning rate: 8.6E-06 | global batch size: {batch:5d} | lm loss: 1.8E+00 | number "
            "of skipped iterations:   0 | number of nan iterations:   0 |\n"
            for i in range(1, 21)
        ),
        encoding="utf-8",
    )


def run(*arguments: str) -> str:
    result = CliRunner().invoke(calibrate_command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return str(result.output)


def test_four_logs_of_a_slow_site_give_its_factors_back(tmp_path: Path) -> None:
    """Logs whose matrix work runs 1.2 x slower give that factor, and predictions within 2 %."""
    truth = SiteFactors(matrix=1.2)
    logs = []
    for tp, pp in ((1, 1), (2, 1), (4, 1), (2, 2)):
        path = tmp_path / f"tp{tp}pp{pp}.log"
        write_log(path, seconds(tp, pp, truth))
        logs += ["--log", f"{path}@tp={tp},pp={pp}"]
    site = tmp_path / "site.toml"
    text = run(*logs, *COMMON, "--out", str(site))
    assert "16 steps" in text
    assert "4 warm-up" in text
    factors = load_site(site)
    assert factors.matrix == pytest.approx(1.2, rel=0.04)
    for tp, pp in ((1, 2), (4, 2)):
        assert seconds(tp, pp, factors) == pytest.approx(seconds(tp, pp, truth), rel=0.02)


def test_the_site_file_serves_other_commands(tmp_path: Path) -> None:
    """`vtrain simulate --site` takes what `vtrain calibrate` wrote."""
    log, site = tmp_path / "a.log", tmp_path / "site.toml"
    write_log(log, 1.3 * seconds(2, 1, SHIPPED))
    run("--log", str(log), *COMMON, "--out", str(site))
    results = [
        CliRunner().invoke(simulate_command, [*COMMON, *more, "--json"], catch_exceptions=False)
        for more in ([], ["--site", str(site)])
    ]
    plain, calibrated = (json.loads(result.output)["step_time_s"] for result in results)
    assert plain < calibrated < 1.3 * plain


def test_json_counts_what_was_left_out(tmp_path: Path) -> None:
    """The document names logs, factors, their spread and the interval."""
    log = tmp_path / "a.log"
    write_log(log, seconds(2, 1, SHIPPED))
    found = json.loads(run("--log", str(log), *COMMON, "--out", str(tmp_path / "s"), "--json"))
    assert found["schema_version"] == 1
    assert found["logs"][0]["steps"] == 16
    assert found["logs"][0]["warm_up"] == 4
    assert set(found["factors"]) == set(found["log_sd"])
    assert found["interval"][0] < 1 < found["interval"][1]


def test_an_impossible_log_writes_nothing(tmp_path: Path) -> None:
    """A log faster than the chip is refused with the arithmetic; --force fits it all the same."""
    log, site = tmp_path / "a.log", tmp_path / "site.toml"
    write_log(log, 0.2 * seconds(2, 1, SHIPPED))
    arguments = ["--log", str(log), *COMMON, "--out", str(site)]
    with pytest.raises(UserInputError, match=r"faster than the chip: .* of the dense peak"):
        run(*arguments)
    assert not site.exists()
    run(*arguments, "--force")
    assert site.exists()


def test_a_site_file_is_not_written_over(tmp_path: Path) -> None:
    """An earlier file stays unless --force says otherwise."""
    log, site = tmp_path / "a.log", tmp_path / "site.toml"
    write_log(log, seconds(2, 1, SHIPPED))
    site.write_text("mine", encoding="utf-8")
    with pytest.raises(UserInputError, match="exists"):
        run("--log", str(log), *COMMON, "--out", str(site))
    assert site.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("not toml [", "no site file"),
        ("schema_version = 9", "schema_version 9"),
        ("schema_version = 1", r"\[factors\]"),
        ("schema_version = 1\n[factors]\nmatrix = 'fast'", "must be a number"),
        ("schema_version = 1\n[factors]\nmatrix = 900.0", "between 0.05 and 20"),
        ("schema_version = 1\n[factors]\nluck = 2.0", r"\[factors\]"),
    ],
)
def test_a_damaged_site_file_is_refused(tmp_path: Path, text: str, word: str) -> None:
    """One line says what is wrong with a site file."""
    path = tmp_path / "site.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserInputError, match=word):
        load_site(path)


def test_a_wrong_override_names_the_valid_ones(tmp_path: Path) -> None:
    """What follows @ must be a plan option."""
    log = tmp_path / "a.log"
    write_log(log, 5.0)
    with pytest.raises(UserInputError, match="behind @"):
        run("--log", f"{log}@speed=9", *COMMON, "--out", str(tmp_path / "s"))
