"""The budget grammar: what it takes, what it refuses, and that it reads back."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vtrain_search.budget import Budget, canonical, join_units, parse_budget, parse_budgets
from vtrain_search.budget_files import ready_made_budgets

from vtrain.errors import UserInputError
from vtrain.presets import load_cluster


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("1e6usd", "usd", 1e6), ("$250k", "usd", 250e3), ("250kUSD", "usd", 250e3),
        ("1,000,000usd", "usd", 1e6), ("1_000_000 USD", "usd", 1e6), ("$1M", "usd", 1e6),
        ("US$1.5B", "usd", 1.5e9), ("usd 5k", "usd", 5e3), ("1M$", "usd", 1e6),
        ("1e6 dollars", "usd", 1e6), ("$1e6", "usd", 1e6), ("  $10  ", "usd", 10.0),
        ("2Mgpuh", "gpu_hours", 2e6), ("2M gpu-hours", "gpu_hours", 2e6),
        ("2M GPU hours", "gpu_hours", 2e6), ("1e5 gpu-h", "gpu_hours", 1e5),
        ("500k GPU-hrs", "gpu_hours", 5e5), ("100 gpu*hour", "gpu_hours", 100.0),
        ("1e24flop", "flop", 1e24), ("1e24 FLOPs", "flop", 1e24), ("1 ZFLOP", "flop", 1e21),
        ("1e24 model flops", "flop", 1e24), ("3.8YFLOPs", "flop", 3.8e24),
    ],
)  # fmt: skip
def test_amounts(text: str, kind: str, amount: float) -> None:
    """Every spelling has its one kind and value, and reads back from its canonical form."""
    budget = parse_budget(text)
    assert (budget.kind, budget.amount) == (kind, pytest.approx(amount, rel=1e-15))
    assert budget.text == text
    assert parse_budget(canonical(budget)) == budget


@pytest.mark.parametrize(
    ("text", "gpus", "cluster", "deadline_s"),
    [
        ("512xH100x30d", 512, "H100", 30 * 86400),
        ("1,024xA100x2h30m", 1024, "A100", 9000),
        ("8 x H100-SXM x 12h", 8, "H100-SXM", 43200),
        ("64XgB200X1w", 64, "gB200", 7 * 86400),
    ],
)
def test_gpus_for_a_time(text: str, gpus: int, cluster: str, deadline_s: float) -> None:
    """GPUs for a time set the cluster, the cap, the deadline and the GPU-hours."""
    budget = parse_budget(text)
    assert budget.kind == "gpus_for"
    assert (budget.max_gpus, budget.cluster, budget.deadline_s) == (gpus, cluster, deadline_s)
    assert budget.gpu_hours == budget.amount == gpus * deadline_s / 3600
    assert parse_budget(canonical(budget)) == budget


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("1M", "has no unit; nearest valid: 1Musd"),
        ("1e6", "has no unit; nearest valid: 1e6usd"),
        ("5m", "nearest valid: 5Musd"),
        ("5m usd", "thousandths or millions; nearest valid: 5Musd"),
        ("5m gpuh", "nearest valid: 5Mgpuh"),
        ("7b usd", "nearest valid: B"),
        ("-3usd", "is negative; nearest valid: 3usd"),
        ("$-3", "is negative; nearest valid: $3"),
        ("0usd", "is zero; nearest valid: 1usd"),
        ("1e6eur", "only US dollars are understood; convert it, then write e.g. 1e6usd"),
        ("€1M", "only US dollars"),
        ("1M GBP", "1Musd"),
        ("nan usd", "is not finite"),
        ("infusd", "is not finite"),
        ("1e400usd", "is not finite"),
        ("M", "single quotes, e.g. --budget '$1M'"),
        ("k", "single quotes"),
        ("", "single quotes"),
        ("0M", "single quotes"),
        ("e6", "single quotes"),
        (",000,000", "single quotes"),
        ("50k", "in single quotes, or the shell eats the $"),
        ("512xH100", "has no duration; nearest valid: 512xH100x30d"),
        ("512xH100x30", "nearest valid: 30d"),
        ("0xH100x30d", "has no GPUs"),
        ("512xH100x1month", "nearest valid: 30d"),
        ("2M A100-hours", "nearest valid: 2Mgpuh with --cluster A100"),
        ("2M gpus", "nearest valid: 2Mgpuh"),
        ("1e15flop/s", "is a rate"),
        ("1 million usd", "nearest valid: 1Musd"),
        ("1Q usd", "unknown suffix 'Q'"),
        ("1,00usd", "cannot read"),
        ("usd", "cannot read"),
        ("banana", "write 1e6usd"),
        ("lab-2m", "unknown budget 'lab-2m'; nearest: lab-1m"),
        ("none.toml", "cannot read budget file"),
        ("1e4usd..1e7usd:3", "is a range"),
    ],
)
def test_refusals(text: str, way_out: str) -> None:
    """What has no single reading is refused in one line that names the way out."""
    with pytest.raises(UserInputError, match=re.escape(way_out)) as caught:
        parse_budget(text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


AMOUNTS = st.floats(min_value=1e-3, max_value=1e30, allow_nan=False)
BUDGETS = st.one_of(
    st.builds(Budget, kind=st.sampled_from(["usd", "gpu_hours", "flop"]), amount=AMOUNTS),
    st.builds(
        lambda count, gpu, seconds: Budget(
            kind="gpus_for", amount=count * seconds / 3600, cluster=gpu, max_gpus=count,
            deadline_s=seconds,
        ),
        st.integers(1, 10**6),
        st.from_regex(r"[A-WYZa-wyz][A-Za-z0-9.\-]{0,12}", fullmatch=True).filter(
            lambda text: not re.search(r"[xX]", text)
        ),
        st.floats(1.0, 1e9),
    ),
)  # fmt: skip


@given(BUDGETS)
def test_canonical_text_reads_back(budget: Budget) -> None:
    """The canonical text of any budget reads back as the same budget."""
    assert parse_budget(canonical(budget)) == budget


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed, the answer is a budget or one line for the user, never a crash."""
    with contextlib.suppress(UserInputError):
        assert parse_budget(text).amount > 0


@given(
    st.text(alphabet="0123456789.,_eExXkKmMBT$usdgpuhfloH:-+/ ", max_size=14),
)
def test_near_misses_are_read_or_refused(text: str) -> None:
    """The same for texts made of the grammar's own letters; what is read, reads back."""
    try:
        budgets = parse_budgets([text])
    except UserInputError:
        return
    for budget in budgets:
        assert parse_budget(canonical(budget)) == budget


def test_range() -> None:
    """A geometric range has its ends exactly, constant ratios, and as many budgets as asked."""
    budgets = parse_budgets(["1e4usd..1e7usd:13"])
    amounts = [b.amount for b in budgets]
    assert (len(amounts), amounts[0], amounts[-1]) == (13, 1e4, 1e7)
    ratios = [b / a for a, b in itertools.pairwise(amounts)]
    assert all(math.isclose(r, 10 ** (3 / 12), rel_tol=2e-5) for r in ratios)
    for budget in budgets:
        assert parse_budget(canonical(budget)) == budget
    assert [b.kind for b in parse_budgets(["1e5gpuh..1e6gpuh:3"])] == ["gpu_hours"] * 3
    assert parse_budgets(["$10k .. $1M : 3"])[1].amount == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("1e4usd..1e7usd", "needs the number of budgets; nearest valid: 1e4usd..1e7usd:7"),
        ("1e4usd..1e7usd:x", "needs the number of budgets"),
        ("1e4..1e7usd:3", "both ends of a range need one, e.g. 1e4usd"),
        ("1e4usd..1e7:3", "both ends of a range need one"),
        ("1e7usd..1e4usd:3", "must rise; nearest valid: 1e4usd..1e7usd:3"),
        ("1e4usd..1e7gpuh:3", "alike"),
        ("8xH100x1d..16xH100x1d:3", "alike"),
        ("1e4usd..1e7usd:1", "2 to 1000"),
        ("1e4usd..1e7usd:100000", "2 to 1000"),
    ],
)
def test_bad_ranges(text: str, way_out: str) -> None:
    """A range without count, unit or direction is refused with the nearest valid one."""
    with pytest.raises(UserInputError, match=re.escape(way_out)):
        parse_budgets([text])


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["2M", "gpu-hours"], ["2.00M GPU-h"]),
        (["2M", "GPU", "hours", "1e6usd"], ["2.00M GPU-h", "$1.00M"]),
        (["1e6", "usd"], ["$1.00M"]),
        (["1", "Musd"], ["$1.00M"]),
        (["1e24", "flops"], ["1e+24 FLOP"]),
        (["1e4usd..1e6usd:3", "512xH100x30d"],
         ["$10.0k", "$100k", "$1.00M", "512 x H100 x 30.0 d"]),
    ],
)  # fmt: skip
def test_unquoted_units_are_joined(words: list[str], labels: list[str]) -> None:
    """A following word that is only a unit belongs to the number before it."""
    assert [b.label for b in parse_budgets(words)] == labels


def test_joining_leaves_other_words_alone() -> None:
    """On a whole command line only a number followed by a unit is joined."""
    line = ["--budget", "2M", "gpu-hours", "--cluster", "A100", "--seed", "1", "--json"]
    assert join_units(line) == [
        "--budget", "2M gpu-hours", "--cluster", "A100", "--seed", "1", "--json",
    ]  # fmt: skip
    assert join_units(["--budget=2M", "gpu-hours"]) == ["--budget=2M gpu-hours"]
    assert join_units(["--seed", "1", "--budget", "1e6usd"])[:2] == ["--seed", "1"]


def test_no_budget() -> None:
    """No budget at all is refused."""
    with pytest.raises(UserInputError, match="no budget given"):
        parse_budgets([])


@pytest.mark.parametrize("name", ready_made_budgets())
def test_ready_made_budgets(name: str) -> None:
    """Each ready-made budget loads, names a shipped cluster, and reads back by its name."""
    budget = parse_budget(name)
    assert canonical(budget) == budget.text == name
    assert parse_budget(canonical(budget)) == budget
    assert budget.cluster is not None
    assert budget.deadline_s is not None
    assert load_cluster(budget.cluster).max_gpus >= (budget.max_gpus or 0)


GOOD = 'amount = "2Mgpuh"\ncluster = "A100"\ndeadline = "30d"\nprice = "1.10usd/gpu-h"\n'


def test_own_file(tmp_path: Path) -> None:
    """A file settles cluster, price, cap and deadline, and reads back by its path."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + "max_gpus = 1024\n")
    budget = parse_budget(str(path))
    assert (budget.kind, budget.amount, budget.max_gpus) == ("gpu_hours", 2e6, 1024)
    assert (budget.cluster, budget.deadline_s) == ("A100", 30 * 86400)
    assert budget.price_usd_per_gpu_hour == 1.10
    assert parse_budget(canonical(budget)) == budget
    assert parse_budgets([str(path)]) == [budget]


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("amount", "ammount", "unknown field 'ammount'; nearest: amount"),
        ('amount = "2Mgpuh"\n', "", "amount is missing"),
        ('"2Mgpuh"', "2", "amount is missing"),
        ('"2Mgpuh"', '"2M"', "has no unit"),
        ('"30d"', '"30"', "nearest valid: 30d"),
        ('"1.10usd/gpu-h"', '"cheap"', "as a price"),
        ('"2Mgpuh"', '"8xH100x1d"', "contradicts the 'H100' of its amount"),
        ('deadline = "30d"', "max_gpus = 0", "max_gpus must be a whole number"),
        ("=", ":", "is not TOML"),
    ],
)
def test_bad_files(tmp_path: Path, old: str, new: str, rule: str) -> None:
    """A file with an unknown, missing, contradicting or unreadable field is refused by name."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UserInputError, match=re.escape(rule)):
        parse_budget(str(path))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "gold"}, "is not known"),
        ({"amount": 0.0}, "above zero"),
        ({"amount": math.inf}, "above zero"),
        ({"kind": "gpus_for"}, "needs all three"),
    ],
)
def test_budget_values_are_checked(change: dict[str, object], rule: str) -> None:
    """A budget that buys nothing cannot be built."""
    with pytest.raises(UserInputError, match=rule):
        Budget(**{"kind": "usd", "amount": 1.0, **change})
