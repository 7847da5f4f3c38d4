"""Named alternatives are read, searched for, and priced."""

from __future__ import annotations

import pytest
from vtrain_search.alternatives import (
    compare,
    distinct_alternatives,
    parse_alternative,
    usual_alternatives,
)
from vtrain_search.alternatives.words import merged
from vtrain_search.build import Request, build_problem
from vtrain_search.case_search import Settings
from vtrain_search.driver import search
from vtrain_search.executors import InlineExecutor
from vtrain_search.pins import parse_pins
from vtrain_search.problem import Problem
from vtrain_search.report import Answer, answer_case

from vtrain.errors import UserInputError


@pytest.fixture(scope="module")
def asked() -> tuple[Problem, Answer]:
    """$100k on H100, plans partly pinned."""
    few = ("recompute=none,full", "micro_batch_size=2", "virtual_stages=1")
    problem = build_problem(Request(budgets=("1e5usd",), fixed=few))
    found = search(problem, Settings(max_trials=32), InlineExecutor(problem)).searches[0]
    answer = answer_case(problem, problem.cases[0], found, seed=0)
    assert answer is not None
    return problem, answer


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("tp=4", {"tp": (4,)}),
        ("TP 4", {"tp": (4,)}),
        ("tp4, pp=2", {"tp": (4,), "pp": (2,)}),
        ("tp=2,4", {"tp": (2, 4)}),
        ("256 GPUs", {"gpus": (256,)}),
        ("1,024 gpus and recompute=full", {"gpus": (1024,), "recompute": ("full",)}),
        ("layers=48", {"layers": (48,)}),
        ("mbs 4", {"micro_batch_size": (4,)}),
    ],
)
def test_words_become_pins(text: str, pins: dict[str, object]) -> None:
    """People name a degree or a GPU count in several ways; all mean the same pins."""
    assert dict(parse_alternative(text).pins.exact) == pins


def test_sizes_clusters_and_models_are_told_apart() -> None:
    """70B is a size, A100 a cluster, llama3-70b a model; parts hold together."""
    assert parse_alternative("70B").parameters == 70e9
    assert parse_alternative("1.5b parameters").parameters == 1.5e9
    cluster = parse_alternative("70B on A100").cluster
    assert cluster is not None
    assert cluster.name == "a100-sxm-80g"
    model = parse_alternative("llama3-70b").architecture
    assert model is not None
    assert model.num_layers == 80


@pytest.mark.parametrize("text", ["quick", "tp=", "", "tq=4", "tp=x", "lama3-70b"])
def test_other_words_are_refused(text: str) -> None:
    """What cannot be read gets one line with an example or the nearest name."""
    with pytest.raises(UserInputError) as caught:
        parse_alternative(text)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_pins_of_an_alternative_take_the_place_of_the_users() -> None:
    """Only the dimensions an alternative names are changed."""
    own = parse_pins(["tp=8", "pp=2"], ["layers=8..16"])
    other = parse_pins(["tp=4", "layers=32"], [])
    assert dict(merged(own, other).exact) == {"pp": (2,), "tp": (4,), "layers": (32,)}
    assert not merged(own, other).ranges


def test_an_alternative_holds_what_it_names(asked: tuple[Problem, Answer]) -> None:
    """The best design of every alternative has the named value and the same budget."""
    problem, answer = asked
    gpus = int(answer.row["gpus"])
    for text, key, value in (
        ("tp=8", "tp", 8), ("pp=2", "pp", 2), (f"{2 * gpus} GPUs", "gpus", 2 * gpus),
        ("recompute=full", "recompute", "full"), ("layers=24", "layers", 24),
    ):  # fmt: skip
        found = compare(problem, answer, text, sweeps=1)
        assert found.row is not None
        assert found.row[key] == value
        assert found.row["cost_usd"] <= 1e5
        assert found.gap_nats == pytest.approx(found.row["loss"] - answer.row["loss"])
        assert found.gap_budget_share > -0.02
        assert 1 <= len(found.lines) <= 3
        assert found.lines[0].startswith(text)
        assert all("\n" not in line for line in found.lines)


def test_a_size_is_held_within_six_percent(asked: tuple[Problem, Answer]) -> None:
    """A 7B alternative is a 7B model; it is worse, and the split of the gap says why."""
    problem, answer = asked
    found = compare(problem, answer, "7B")
    assert found.row is not None
    assert 7e9 / 1.06 <= found.row["parameters"] <= 7e9 * 1.06
    assert found.gap_nats > 0.0
    assert "the smaller model alone would change the loss by +" in found.lines[1]


def test_the_recommendation_itself_is_a_tie(asked: tuple[Problem, Answer]) -> None:
    """Naming what was recommended finds it again: no gap worth 1 % of the budget."""
    problem, answer = asked
    row = answer.row
    found = compare(problem, answer, f"tp={row['tp']}, pp={row['pp']}, {row['gpus']} GPUs")
    assert abs(found.gap_budget_share) < 0.01
    assert "that is the recommended design" in found.lines[0]
    assert len(found.lines) == 1
    size = f"{row['parameters'] / 1e9:.0f}B"
    named = compare(problem, answer, size)
    near = [f"{float(size[:-1]) * factor:.1f}B" for factor in (1 / 1.06, 1.06)]
    assert named.lines[0].startswith(
        f"{size} ({near[0]} to {near[1]} parameters): that is the recommended design"
    )


def test_at_best_is_never_worse_than_what_was_tried(asked: tuple[Problem, Answer]) -> None:
    """No design of the answer's tables that has the named size or degree beats "at best"."""
    problem, answer = asked
    half = next(s for s in answer.smaller if s["size"] == "half")
    sizes = [n for n in usual_alternatives(problem.cases[0], answer.row) if n.endswith("B")]
    found = compare(problem, answer, sizes[0], sweeps=0)
    assert found.gap_budget_share <= half["gap_budget_share"] + 1e-9
    for text, key, value in (("pp=2", "pp", 2), ("recompute=full", "recompute", "full")):
        seen = [row["loss"] for row in answer.tried if row[key] == value]
        best = compare(problem, answer, text, sweeps=0).row
        assert best is not None
        assert best["loss"] <= min(seen, default=float("inf")) + 1e-9


def test_the_same_alternative_is_told_once() -> None:
    """Other words for the same thing are dropped, the first stays; other things stay."""
    kept = distinct_alternatives(["tp=8", "TP 8", "70B", "tp=4", "70B parameters", "tp=8"])
    assert [one.text for one in kept] == ["tp=8", "70B", "tp=4"]


def test_what_cannot_be_is_said_in_one_line(asked: tuple[Problem, Answer]) -> None:
    """Contradictions and misfits name the rule instead of a design."""
    problem, answer = asked
    for text, words in (
        ("tp=3", "must divide"),
        ("100000 GPUs", "at most 8192"),
        ("700B", "no shape of that size"),
        ("llama3-405b, tp=1, pp=1", "nothing feasible"),
    ):
        found = compare(problem, answer, text)
        assert found.row is None
        assert found.gap_nats == float("inf")
        assert len(found.lines) == 1
        assert words in found.lines[0]


def test_other_hardware_comes_with_its_own_price(asked: tuple[Problem, Answer]) -> None:
    """A cluster is compared at its listed price, under the same budget."""
    problem, answer = asked
    found = compare(problem, answer, "A100", sweeps=0)
    assert found.row is not None
    assert found.row["cluster"] == "a100-sxm-80g"
    assert found.row["price_usd_per_gpu_hour"] != answer.row["price_usd_per_gpu_hour"]
    assert found.row["cost_usd"] <= 1e5


def test_usual_alternatives_can_be_read(asked: tuple[Problem, Answer]) -> None:
    """What is offered when nobody names anything parses and differs from the answer."""
    problem, answer = asked
    names = usual_alternatives(problem.cases[0], answer.row)
    assert len(names) >= 4
    for name in names:
        wanted = parse_alternative(name)
        assert wanted.parameters is not None or all(
            answer.row[key] not in values for key, values in wanted.pins.exact.items()
        )
    assert not any(n.endswith("B") for n in usual_alternatives(
        problem.cases[0], answer.row, fixed=True))  # fmt: skip
