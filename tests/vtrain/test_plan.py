"""Plan and PlanTable: refusals, round trip, grouping."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE, SCHEDULES, SHARDING, Plan, PlanTable, concatenate

DEGREE = st.integers(1, 64)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan that does not contradict itself."""
    schedule = draw(st.sampled_from(SCHEDULES))
    dp, micro = draw(DEGREE), draw(DEGREE)
    return Plan(
        tp=draw(DEGREE), cp=draw(DEGREE), pp=draw(DEGREE), dp=dp,
        virtual_stages=draw(st.integers(1, 8)) if schedule == "1f1b" else 1,
        micro_batch_size=micro, global_batch_size=dp * micro * draw(st.integers(1, 512)),
        recompute=draw(st.sampled_from(RECOMPUTE)), sharding=draw(st.sampled_from(SHARDING)),
        sequence_parallel=draw(st.booleans()), schedule=schedule,
    )  # fmt: skip


@given(st.lists(plans(), max_size=20))
def test_table_gives_back_its_plans(rows: list[Plan]) -> None:
    """Plans put into a table come out unchanged, in order, with the same derived columns."""
    table = PlanTable.from_plans(rows)
    assert len(table) == len(rows)
    assert [table.plan(i) for i in range(len(table))] == rows
    assert table.gpus.tolist() == [p.gpus for p in rows]
    assert table.num_micro_batches.tolist() == [p.num_micro_batches for p in rows]


@given(st.lists(plans(), min_size=1, max_size=30))
def test_groups_partition_the_rows(rows: list[Plan]) -> None:
    """Every row is in exactly one group, and a group shares one structure."""
    table = PlanTable.from_plans(rows)
    seen: Counter[int] = Counter()
    structures = []
    for structure, members in table.groups():
        structures.append(structure)
        seen.update(members.tolist())
        for row in members:
            plan = rows[row]
            assert structure == (
                plan.recompute, plan.sharding, plan.sequence_parallel, plan.schedule
            )  # fmt: skip
    assert seen == Counter(range(len(rows)))
    assert len(set(structures)) == len(structures)


@given(st.lists(plans(), min_size=1, max_size=10), st.data())
def test_take_and_concatenate(rows: list[Plan], data: st.DataObject) -> None:
    """Rows picked by index or mask keep their order, and stacked tables keep all rows."""
    table = PlanTable.from_plans(rows)
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    taken = table.take(np.array(picked, dtype=np.int64))
    assert [taken.plan(i) for i in range(len(taken))] == [rows[i] for i in picked]
    mask = table.tp > 8
    assert len(table.take(mask)) == int(mask.sum())
    both = concatenate([table, taken])
    assert [both.plan(i) for i in range(len(both))] == rows + [rows[i] for i in picked]


def test_empty_table_has_no_groups() -> None:
    """A table without rows is legal and has no groups."""
    assert list(PlanTable.from_plans([]).groups()) == []


BASE = Plan(dp=2, micro_batch_size=2, global_batch_size=8)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tp": 0}, "tp must be a whole number of at least 1"),
        ({"pp": 1.5}, "pp must be a whole number"),
        ({"dp": True}, "dp must be a whole number"),
        ({"global_batch_size": 10}, "multiple of dp x micro_batch_size = 2 x 2 = 4"),
        ({"global_batch_size": 11}, "nearest valid: global_batch_size=12"),
        ({"recompute": "some"}, "one of none, selective, full"),
        ({"sharding": "zero9"}, "one of none, zero1, zero2, zero3"),
        ({"schedule": "random"}, "one of 1f1b, gpipe, zb-h1"),
        ({"virtual_stages": 2, "schedule": "gpipe"}, "nearest valid: virtual_stages=1"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], rule: str) -> None:
    """A plan that contradicts itself is refused with the rule and the nearest valid value."""
    with pytest.raises(UserInputError, match=rule):
        replace(BASE, **change)
