"""What the report says follows from the answer."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vtrain_search.alternatives.setting import setting_of
from vtrain_search.alternatives.step_parts import IDEAL, play, step_parts
from vtrain_search.build import Request
from vtrain_search.case_search import Settings
from vtrain_search.evaluator import Evaluator
from vtrain_search.html_report.provenance import command_line
from vtrain_search.sensitivity import sensitivity, slower
from vtrain_search.space import Point

from vtrain.design import Design
from vtrain.plan import PlanTable


def best(run: Any, position: int = 0) -> tuple[Point, dict[str, object]]:
    answer = run.answers[position]
    assert answer is not None
    row = dict(answer.row)
    keys = ("hidden_size", "layers", "ffn_hidden_size", "num_key_value_heads", "head_dim")
    return Point(*(int(str(row[k])) for k in keys)), row


def test_markdown_has_every_table(three_budgets: Any, tmp_path: Path) -> None:
    """The Markdown report holds every budget, whole table rows, and no HTML but foldings."""
    text = three_budgets.write(tmp_path / "report.md")
    for budget in ("$10.0k", "$100k", "$1.00M"):
        assert f"| {budget} |" in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")
    assert "**With $1.00M" in text
    focused = three_budgets.write(tmp_path / "first.md", focus="$10.0k")
    assert "**With $10.0k" in focused


def test_the_command_asks_the_same_question(one_budget: Any) -> None:
    """The printed command, parsed by the real command line, is the request that was answered."""
    from vtrain_search.cli import cli

    words = shlex.split(command_line(one_budget.request, one_budget.settings))
    assert words[0] == "vtrain-search"
    context = cli.make_context("vtrain-search", words[1:])
    assert tuple(context.params["budgets"]) == one_budget.request.budgets
    assert tuple(context.params["fixed"]) == one_budget.request.fixed
    assert context.params["trials"] == one_budget.settings.max_trials
    assert context.params["seed"] == 0


def test_every_field_of_a_request_reaches_the_command() -> None:
    """No option that changes an answer is lost from the command."""
    request = Request(
        budgets=("2M gpu-hours",), clusters=("a100",), prices=("2.10",), deadline="45d",
        max_gpus=512, stack="torchtitan-2025", law="kaplan2020", unique_tokens="1e12",
        seq_length=8192, vocab_size=50257, arch="llama3-8b", site="my site.toml",
        fixed=("tp=8", "pp=2"), ranged=("layers=8..16",), target_losses=(1.9,), objective="time",
        memory_limit="85%",
    )  # fmt: skip
    line = command_line(request, Settings(seed=7, sampler="cmaes", space="joint", max_trials=9))
    for part in (
        "--budget '2M gpu-hours'", "--cluster a100", "--price 2.10", "--deadline 45d",
        "--max-gpus 512", "--stack torchtitan-2025", "--law kaplan2020", "--unique-tokens 1e12",
        "--seq-length 8192", "--vocab-size 50257", "--arch llama3-8b", "--site 'my site.toml'",
        "--fix tp=8", "--fix pp=2", "--range layers=8..16", "--target-loss 1.9",
        "--objective time", "--seed 7", "--sampler cmaes", "--space joint", "--trials 9",
        "--memory-limit 85%",
    ):  # fmt: skip
        assert part in line


def test_parts_of_a_step_sum_to_it(three_budgets: Any) -> None:
    """Ideal, lost and exposed seconds sum to the step; the ideal over the step is the MFU."""
    _, row = best(three_budgets, -1)
    problem = three_budgets.problem
    setting = setting_of(problem, problem.cases[-1], row)
    timeline = play(setting, Design.from_row(row).plan)
    parts = step_parts(setting, timeline)
    assert sum(parts.values()) == pytest.approx(timeline.step_time_s)
    played_mfu = float(str(row["mfu"])) * float(str(row["step_time_s"])) / timeline.step_time_s
    assert parts[IDEAL] / timeline.step_time_s == pytest.approx(played_mfu)


def test_slower_steps_are_a_smaller_budget(one_budget: Any) -> None:
    """Planning with budget and deadline divided by 1.2 is planning with steps 1.2 times as long."""
    from vtrain.estimate import estimate
    from vtrain.goodput import CHECKPOINT_BYTES_PER_PARAMETER, goodput
    from vtrain.training_run import training_run

    point, _ = best(one_budget)
    problem, case = one_budget.problem, one_budget.problem.cases[0]
    found = Evaluator(problem).outcome(point, slower(case, 1.2)).row
    design = Design.from_row(found)
    setting = setting_of(problem, case, found)
    time = estimate(
        setting.architecture, setting.cluster, setting.stack,
        PlanTable.from_plans([design.plan]), seq_length=setting.seq_length,
    ).step_time_s  # fmt: skip
    run = training_run(
        step_time_s=1.2 * time, global_batch_size=design.plan.global_batch_size,
        seq_length=design.seq_length, gpus=design.plan.gpus,
        goodput=goodput(
            design.plan.gpus,
            state_bytes=CHECKPOINT_BYTES_PER_PARAMETER * design.architecture.parameters,
        ),
        price_usd_per_gpu_hour=3.0, deadline_s=case.deadline_s, budget_usd=case.usd,
    )  # fmt: skip
    assert float(run.tokens[0]) == pytest.approx(found["tokens"], rel=1e-6)


def test_sensitivity_points_the_right_way(one_budget: Any) -> None:
    """Dearer, slower, hurried or fewer GPUs never lower the loss; the opposite never raises it."""
    answer = one_budget.answers[0]
    assert answer is not None
    gaps = {c.name: c.gap for c in sensitivity(one_budget.problem, answer)}
    assert gaps["price -20 %"] < 0.0 < gaps["price +20 %"]
    shorter, longer = (gap for name, gap in gaps.items() if name.startswith("step time"))
    assert shorter < 0.0 < longer
    assert gaps["deadline 60 days"] <= 0.0 <= gaps["deadline 15 days"]
    assert all(gap > 0.0 for name, gap in gaps.items() if name.startswith("at most"))
    # Judged by one law, what that law likes best is never worse than the answer.
    laws = {name: gap for name, gap in gaps.items() if name.startswith("law ")}
    assert set(laws) == {"law hoffmann2022-3", "law kaplan2020", "law gemstones2025"}
    assert all(gap <= 0.0 for gap in laws.values())
    judged = [c.row["loss"] for c in sensitivity(one_budget.problem, answer) if c.other_law]
    assert all(abs(loss - answer.row["loss"]) > 1e-3 for loss in judged)


def test_a_looser_limit_never_costs_time(make_run: Callable[..., Any]) -> None:
    """Where the answer keeps a changed deadline or cap, nothing worse than it is shown."""
    aimed = make_run(4, budgets=(), target_losses=(2.2,), objective="time")
    answer = aimed.answers[0]
    assert answer is not None
    changes = {c.name: c for c in sensitivity(aimed.problem, answer)}
    for name in ("deadline 15 days", "deadline 60 days"):
        assert changes[name].gap <= 0.0


def test_sensitivity_is_the_same_everywhere(one_budget: Any, tmp_path: Path) -> None:
    """Terminal, Markdown and JSON show the same figures; asked twice, the same bytes."""
    from vtrain_search.report import document
    from vtrain_search.report.what_if import what_if_cells, what_if_grid, what_if_json

    answer = one_budget.answers[0]
    assert answer is not None
    changes = sensitivity(one_budget.problem, answer)
    assert changes == sensitivity(one_budget.problem, answer)
    _, rows = what_if_cells(answer, changes)
    assert what_if_grid(answer, changes).rows == rows
    text = one_budget.write(tmp_path / "report.md")
    for row in rows:
        assert f"| {' | '.join(row)} |" in text.replace("  |", " |")
    made = document(one_budget.answers, assumptions={}, run={})["sensitivity"]
    assert made == what_if_json(answer, changes)
    assert [c["change"] for c in made["changes"]] == [row[0] for row in rows]
    first = made["changes"][0]
    assert {"gap_nats", "same_architecture", "tokens", "gpus", "days", "cost_usd"} <= set(first)


def test_a_target_loss_is_priced_in_dollars(make_run: Callable[..., Any], tmp_path: Path) -> None:
    """A report about a loss to reach tells what changes its cost, and by how many percent."""
    aimed = make_run(8, budgets=(), target_losses=(2.2,))
    text = aimed.write(tmp_path / "aimed.md", alternatives=["5B"])
    assert "**For loss 2.2 on" in text
    assert "| % of cost |" in text
    assert "| +20.0 % |" in text
    assert "5B (4.72B to 5.30B parameters): at best" in text
    assert "--why-not 5B --seed" in text
    assert "% more cost" in text


def test_gpu_hour_budgets_have_no_price_to_vary(
    make_run: Callable[..., Any], tmp_path: Path
) -> None:
    """With a budget in GPU-hours the price moves no loss, so the report does not ask."""
    hours = make_run(8, budgets=("20k gpu-hours",))
    text = hours.write(tmp_path / "hours.md")
    assert "price -20 %" not in text
    assert "| step time +" in text


def test_a_fixed_model_is_reported_too(make_run: Callable[..., Any], tmp_path: Path) -> None:
    """A search over plans only has no sizes to show and still explains its plan."""
    fixed = make_run(budgets=("1e5usd",), arch="llama3-8b", fixed=("micro_batch_size=1,2",))
    assert fixed.problem.space.fixed is not None
    text = fixed.write(tmp_path / "fixed.md", alternatives=["tp=8", "70B"])
    assert "## Pipeline timeline" in text
    assert "tp=8: at best 8.03B" in text
    assert "70B: cannot be: the model is fixed" in text


def test_nothing_feasible_is_no_report(one_budget: Any, tmp_path: Path) -> None:
    """Without an answer there is nothing to write."""
    from vtrain.errors import InfeasibleError

    with pytest.raises(InfeasibleError):
        replace(one_budget, answers=[None]).write(tmp_path / "none.md")
