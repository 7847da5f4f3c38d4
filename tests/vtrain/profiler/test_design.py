from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.profiler.configs import RANGES, random_configs
from vtrain.profiler.group import require_one_device
from vtrain.profiler.operators import plan_operators
from vtrain.profiler.residual import step_products
from vtrain.profiler.rows import key_of
from vtrain.profiler.session import shipped_name
from vtrain.profiler.shapes import SPACES, attention_shapes, gemm_shapes, halton, message_sizes


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("count", [30, 48, 150])
def test_products_fill_the_space_within_its_limits(kind: str, count: int) -> None:
    """As many distinct shapes as asked, none above the FLOP limit, sizes spread over decades."""
    space = SPACES[kind]
    shapes = gemm_shapes(space, count)
    assert len(set(shapes)) == count
    assert all(2 * m * n * k <= space.flops for m, n, k in shapes)
    assert all(n % 64 == 0 and k % 64 == 0 and m % 16 == 0 for m, n, k in shapes)
    for sizes in zip(*shapes, strict=True):
        assert max(sizes) >= 16 * min(sizes)


@given(st.integers(30, 120), st.integers(1, 30))
def test_a_longer_design_begins_with_the_shorter(count: int, more: int) -> None:
    """A profile cut short is a coarser one, not another one."""
    space = SPACES["cpu"]
    assert gemm_shapes(space, count + more)[:count] == gemm_shapes(space, count)


@pytest.mark.parametrize("kind", SPACES)
def test_rows_have_distinct_names(kind: str) -> None:
    """No two rows of a plan share a key, so that resuming neither repeats nor skips one."""
    keys = []
    for operator in plan_operators(kind, 2.0, 48):
        row = {key: str(value) for key, value in operator.columns.items()}
        keys.append((operator.table, key_of(operator.table, row)))
    assert len(keys) == len(set(keys))


def test_a_halton_sequence_fills_evenly() -> None:
    """Every quarter of each axis gets a quarter of the points."""
    points = halton(256, 3)
    for column in points.T:
        counts = np.histogram(column, bins=4, range=(0, 1))[0]
        assert counts.min() >= 60


def test_attention_and_messages_cover_their_range() -> None:
    """Attention varies sequence and head size; messages grow by four."""
    shapes = attention_shapes(SPACES["cpu"])
    assert len(shapes) == 14
    assert {shape[3] for shape in shapes} == {64, 128}
    sizes = message_sizes(SPACES["cpu"])
    assert sizes == sorted(set(sizes))
    assert all(b == 4 * a for a, b in pairwise(sizes))


@pytest.mark.parametrize("kind", RANGES)
def test_random_configurations_are_within_range_and_repeat(kind: str) -> None:
    """A seed gives the same configurations; they stay within what is asked."""
    first, second = random_configs(kind, 24, 5), random_configs(kind, 24, 5)
    assert [x.label for x in first] == [x.label for x in second]
    assert len({x.label for x in first}) == 24
    low, high = RANGES[kind].hidden
    assert all(low <= x.architecture.hidden_size <= high for x in first)
    assert all(x.flops <= RANGES[kind].flops for x in first)


def test_products_of_a_step_are_its_model_flops() -> None:
    """Products of the reference decoder are its model FLOPs less attention, to the last one."""
    for config in random_configs("cpu", 8, 2):
        rows, counts = step_products(config)
        a = config.architecture
        attention = 3.0 * 4.0 * config.seq_length * a.query_size * a.num_layers * config.tokens
        assert float(np.sum(rows.flops * counts)) == pytest.approx(config.flops - attention)


def test_different_devices_in_one_job_are_refused() -> None:
    """Ranks on different GPUs are named; equal ones pass."""
    require_one_device(["NVIDIA H100 80GB HBM3"] * 8)
    with pytest.raises(UserInputError, match=r"different devices: NVIDIA A100.*, NVIDIA H100"):
        require_one_device(["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"])


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80g"),
        ("NVIDIA H200", "h200-sxm-141g"),
        ("NVIDIA B200", "b200-sxm-180g"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GeForce RTX 4090", ""),
    ],
)
def test_a_driver_name_finds_its_datasheet(driver: str, name: str) -> None:
    """What the driver calls a device leads to the shipped one, or to none."""
    assert shipped_name(driver) == name
