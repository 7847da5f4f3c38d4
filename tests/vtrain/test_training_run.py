"""The whole run: identities, limits, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.training_run import BINDING, training_run

DAY = 86400.0
CASE = st.fixed_dictionaries(
    {
        "step_time_s": st.floats(0.05, 500.0),
        "global_batch_size": st.integers(1, 8192),
        "seq_length": st.sampled_from([512, 2048, 4096, 131072]),
        "gpus": st.integers(1, 4096).map(lambda n: 8 * n),
        "goodput": st.floats(0.5, 1.0),
        "price_usd_per_gpu_hour": st.floats(0.1, 20.0),
        "deadline_s": st.floats(DAY, 400 * DAY),
    }
)


@given(CASE, st.floats(1e3, 1e9))
def test_identities(case: dict[str, float], budget_usd: float) -> None:
    """cost = GPUs x wall hours x price; tokens = steps x batch x sequence; nothing is lost."""
    run = training_run(**case, budget_usd=budget_usd)
    assert run.steps == np.floor(run.steps)
    assert run.tokens == run.steps * case["global_batch_size"] * case["seq_length"]
    assert run.wall_s * case["goodput"] == pytest.approx(run.steps * case["step_time_s"])
    hours = case["gpus"] * run.wall_s / 3600
    assert run.gpu_hours == pytest.approx(hours)
    assert run.cost_usd == pytest.approx(hours * case["price_usd_per_gpu_hour"])
    assert run.cost_usd + run.unspent_usd == pytest.approx(budget_usd)
    assert run.wall_s <= case["deadline_s"] * (1 + 1e-12)
    assert run.cost_usd <= budget_usd * (1 + 1e-12)


@given(CASE, st.floats(1e3, 1e9))
def test_one_step_more_breaks_the_binding_limit(case: dict[str, float], budget_usd: float) -> None:
    """The run is as long as it can be, and the constraint it names is the one that ends it."""
    run = training_run(**case, budget_usd=budget_usd)
    step_wall_s = case["step_time_s"] / case["goodput"]
    step_usd = step_wall_s * case["gpus"] / 3600 * case["price_usd_per_gpu_hour"]
    if BINDING[int(run.binding)] == "deadline":
        assert run.wall_s + step_wall_s > case["deadline_s"] * (1 - 1e-12)
    else:
        assert run.cost_usd + step_usd > budget_usd * (1 - 1e-12)
        assert run.unspent_usd < step_usd * (1 + 1e-9)


@given(CASE, st.floats(1e3, 1e9), st.floats(1.0, 10.0))
def test_more_money_or_time_never_buys_fewer_tokens(
    case: dict[str, float], budget_usd: float, factor: float
) -> None:
    """Tokens never fall with budget or deadline, nor rise with price."""
    tokens = training_run(**case, budget_usd=budget_usd).tokens
    assert training_run(**case, budget_usd=budget_usd * factor).tokens >= tokens
    longer = {**case, "deadline_s": case["deadline_s"] * factor}
    assert training_run(**longer, budget_usd=budget_usd).tokens >= tokens
    dearer = {**case, "price_usd_per_gpu_hour": case["price_usd_per_gpu_hour"] * factor}
    assert training_run(**dearer, budget_usd=budget_usd).tokens <= tokens


PLAIN = {
    "step_time_s": 10.0, "global_batch_size": 1000, "seq_length": 4096, "gpus": 512,
    "goodput": 1.0, "price_usd_per_gpu_hour": 3.0, "deadline_s": 30 * DAY,
}  # fmt: skip


def test_gpu_hours_and_dollars_are_one_limit() -> None:
    """A GPU-hour budget is a dollar budget over the price."""
    hours = training_run(**PLAIN, budget_gpu_hours=1e5)
    dollars = training_run(**PLAIN, budget_usd=3e5)
    assert hours.steps == dollars.steps == 70312
    assert hours.unspent_usd == pytest.approx(dollars.unspent_usd)


def test_flop_budget() -> None:
    """A FLOP budget buys FLOPs over FLOPs a token, in whole steps."""
    run = training_run(**PLAIN, budget_flop=1e22, model_flops_per_token=6 * 7e9)
    assert run.steps == np.floor(1e22 / (42e9 * 1000 * 4096))
    with pytest.raises(UserInputError, match="model_flops_per_token"):
        training_run(**PLAIN, budget_flop=1e22)


def test_the_smallest_of_several_budgets_binds() -> None:
    """Budgets given together all hold."""
    both = training_run(**PLAIN, budget_usd=3e5, budget_gpu_hours=2e4)
    assert both.steps == training_run(**PLAIN, budget_gpu_hours=2e4).steps


def test_fixed_tokens() -> None:
    """Fixed tokens round up to whole steps and are infeasible past budget or deadline."""
    run = training_run(**PLAIN, budget_usd=3e5, tokens=1e11)
    assert (run.steps, run.tokens) == (24415, 24415 * 1000 * 4096)
    assert run.feasible
    assert BINDING[int(run.binding)] == "tokens"
    over = training_run(**PLAIN, budget_usd=1e5, tokens=1e11)
    assert not over.feasible
    assert over.unspent_usd < 0
    assert not training_run(**{**PLAIN, "deadline_s": DAY}, tokens=1e11).feasible


def test_mt_nlg_takes_what_vtrain_says() -> None:
    """530B, 2,240 A100, 42.59 s a step, batch 1,920, 270B tokens: 33.5 days and $9.0M at $5, as
    the vTrain paper (arXiv 2312.12391) reports for that plan."""
    run = training_run(
        step_time_s=42.59, global_batch_size=1920, seq_length=2048, gpus=2240, goodput=1.0,
        price_usd_per_gpu_hour=5.0, deadline_s=np.inf, tokens=270e9,
    )  # fmt: skip
    assert run.wall_s / DAY == pytest.approx(33.52, rel=0.02)
    assert run.cost_usd == pytest.approx(9.01e6, rel=0.02)


def test_bloom_took_its_hours() -> None:
    """BLOOM 176B: 366B tokens on 384 A100 took 1,082,990 GPU-hours (arXiv 2211.05100); at its
    103 s a step of 2,048 sequences the formula gives the part that was spent stepping."""
    run = training_run(
        step_time_s=103.0, global_batch_size=2048, seq_length=2048, gpus=384, goodput=1.0,
        price_usd_per_gpu_hour=1.0, deadline_s=np.inf, tokens=366e9,
    )  # fmt: skip
    assert 0.85 < float(run.gpu_hours) / 1_082_990 < 1.0


def test_too_little_for_one_step_is_infeasible() -> None:
    """A budget below the price of one step buys nothing and says so."""
    run = training_run(**PLAIN, budget_usd=1.0)
    assert (run.steps, run.tokens, run.cost_usd) == (0, 0, 0)
    assert not run.feasible
    assert run.unspent_usd == pytest.approx(1.0)


def test_nothing_limits_the_run() -> None:
    """No budget, no deadline, no tokens: refused."""
    with pytest.raises(UserInputError, match="nothing limits the run"):
        training_run(**{**PLAIN, "deadline_s": np.inf})


def test_rows_are_independent() -> None:
    """A table gives each row what it gets alone."""
    rng = np.random.default_rng(0)
    steps, gpus = rng.uniform(1, 60, 100), 8 * rng.integers(1, 1000, 100)
    table = training_run(
        **{**PLAIN, "step_time_s": steps, "gpus": gpus, "goodput": 0.9}, budget_usd=1e6
    )
    for i in (0, 17, 99):
        alone = training_run(
            **{**PLAIN, "step_time_s": steps[i], "gpus": gpus[i], "goodput": 0.9}, budget_usd=1e6
        )
        assert table.tokens[i] == alone.tokens
        assert table.cost_usd[i] == alone.cost_usd
        assert table.binding[i] == alone.binding
