"""The architecture table holds the fastest plan of every GPU count and batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from vtrain_search.grid import cell_batch, plan_space
from vtrain_search.inner import ArchitectureTable
from vtrain_search.pins import Pins, parse_pins

from vtrain.architecture import default_architecture
from vtrain.enumeration import enumerate_plans
from vtrain.estimate import estimate
from vtrain.plan import PlanTable
from vtrain.presets import load_cluster, load_stack

H100 = load_cluster("h100")
STACK = load_stack("megatron-core-2025")
MODEL = default_architecture(hidden_size=4096, num_layers=32)


def keys(gpus: list[int], blocks: Iterable[int]) -> list[tuple[int, int]]:
    return [(g, b) for g in gpus for b in blocks]


def table(pins: Pins | None = None) -> ArchitectureTable:
    return ArchitectureTable(MODEL, H100, STACK, seq_length=4096, pins=pins or Pins())


def test_each_cell_holds_the_fastest_plan_that_fits() -> None:
    """No plan of a cell that fits beats the one the table names."""
    cells = table().window(keys([16], [18]))
    for batch in cell_batch(np.array([36, 37])):
        plans, _ = enumerate_plans(
            MODEL, H100, stack=STACK, seq_length=4096, gpus=np.array([16]),
            global_batch_size=np.array([batch]), space=plan_space(H100, STACK, Pins()),
        )  # fmt: skip
        found = estimate(MODEL, H100, STACK, plans, seq_length=4096)
        near = np.abs(np.log2(plans.global_batch_size / batch)) < 0.12
        best = np.min((found.step_time_s / plans.global_batch_size)[found.fits & near])
        own = cells.step_time_s / cells.plans.global_batch_size
        assert np.min(np.abs(own - best) / best) < 1e-9


def test_a_row_is_what_the_simulator_says_of_its_plan() -> None:
    """Step time, memory and MFU of a row equal an estimate of that one plan."""
    cells = table().window(keys([8, 16], [17, 18]))
    for row in range(len(cells)):
        one = PlanTable.from_plans([cells.plans.plan(row)])
        found = estimate(MODEL, H100, STACK, one, seq_length=4096)
        assert found.fits[0]
        assert found.step_time_s[0] == pytest.approx(cells.step_time_s[row], rel=1e-9)
        assert found.mem_peak_bytes[0] == pytest.approx(cells.mem_peak_bytes[row], rel=1e-9)
        assert found.mfu[0] == pytest.approx(cells.mfu[row], rel=1e-9)


def test_filling_in_any_order_gives_the_same_rows() -> None:
    """What was asked before never changes an answer."""
    first, second = table(), table()
    first.window(keys([8], [16]))
    first.window(keys([16, 24], [17]))
    a, b = first.window(keys([8, 16, 24], [16, 17])), second.window(keys([8, 16, 24], [16, 17]))
    assert a.step_time_s.tolist() == b.step_time_s.tolist()
    assert a.plans.global_batch_size.tolist() == b.plans.global_batch_size.tolist()
    assert (a.plans_seen, a.plans_fit) == (b.plans_seen, b.plans_fit)


def test_no_plan_appears_in_two_cells() -> None:
    """A plan belongs to the cell its actual batch falls in, and to no other."""
    cells = table().window(keys([64], range(10, 20)))
    plans = [cells.plans.plan(row) for row in range(len(cells))]
    assert len(set(plans)) == len(plans)


def test_pins_hold_for_every_row() -> None:
    """Pinned degrees, batches and data parallelism are obeyed by all rows."""
    pins = parse_pins(["tp=2", "micro_batch_size=1", "dp=8"], [])
    cells = table(pins).window(keys([16, 32], [17, 18]))
    assert len(cells) > 0
    assert set(cells.plans.tp.tolist()) == {2}
    assert set(cells.plans.micro_batch_size.tolist()) == {1}
    assert set(cells.plans.dp.tolist()) == {8}
    exact = table(parse_pins(["global_batch_size=480"], [])).window(keys([16], [17, 18]))
    assert set(exact.plans.global_batch_size.tolist()) == {480}
