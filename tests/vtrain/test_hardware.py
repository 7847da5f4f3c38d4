"""Devices, clusters, their data files, and where a communication group lies."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.errors import UserInputError
from vtrain.hardware import COLLECTIVES, Cluster, GemmConstants, group_span, nic_sharers
from vtrain.presets import (
    cluster_names,
    cluster_table,
    device_names,
    device_table,
    load_cluster,
    load_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _leaves(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@pytest.mark.parametrize(
    "table",
    [*map(device_table, device_names()), *map(cluster_table, cluster_names())],
    ids=lambda table: table["name"],
)
def test_every_shipped_value_has_a_dated_source_and_is_positive(table):
    """Every leaf of a device or cluster file has a source, and no number is negative."""
    sources = table.pop("sources")
    for path, value in _leaves(table):
        parts = path.split(".")
        covering = [
            key for end in range(len(parts), 0, -1) if (key := ".".join(parts[:end])) in sources
        ]
        assert covering, path
        assert sources[covering[0]]["source"], path
        assert sources[covering[0]]["date"], path
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float):
                assert math.isfinite(number), path
                assert number >= 0, path


@pytest.mark.parametrize("name", cluster_names())
def test_every_shipped_cluster_loads_with_its_device(name):
    """A cluster has constants for every collective and a half precision with all generations."""
    cluster = load_cluster(name)
    assert set(cluster.intra.terms) == set(COLLECTIVES)
    device = cluster.device
    assert {"bf16", "fp16"} & set(device.gemm)
    assert set(device.attention) == {"flash1", "flash2", "flash3"}
    assert set(device.gemm) <= set(device.peak_flops)
    assert device.attention["flash2"].sm_count == device.sm_count
    for values in device.gemm.values():
        assert values.hbm_fraction <= 0.8
        assert 0.5 <= values.sustained <= 1.0


def test_same_names_serve_devices_and_clusters():
    """Every device has a cluster of its name, and `H100` finds the same machine in both.

    A device may have further clusters (the same board on another network).
    """
    assert set(device_names()) <= set(cluster_names())


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("A100", "a100-sxm-80g"),
        ("a100-40", "a100-sxm-40g"),
        ("H100", "h100-sxm-80g"),
        ("h200", "h200-sxm-141g"),
        ("B200", "b200-sxm-180g"),
        ("V100", "v100-sxm-32g"),
        ("GB200", "gb200"),
        ("H100-SXM-80G", "h100-sxm-80g"),
    ],
)
def test_aliases_in_any_case(alias, name):
    """The short names of the command line mean the SXM boards."""
    assert load_cluster(alias).name == name
    assert load_device(alias).name == name


def test_unknown_names_offer_the_nearest():
    """A typo gets one line with what was probably meant."""
    with pytest.raises(UserInputError, match=r"unknown cluster 'H10'.*h100"):
        load_cluster("H10")
    with pytest.raises(UserInputError, match="unknown device"):
        load_device("tpu-v9")


def test_user_cluster_states_only_what_differs(tmp_path: Path):
    """A file with `base` inherits a shipped cluster, deep tables included."""
    path = tmp_path / "mine.toml"
    path.write_text('base = "H100"\nmax_gpus = 64\n[inter]\nnic_efficiency = 0.5\n')
    mine, shipped = load_cluster(path), load_cluster("H100")
    assert (mine.name, mine.max_gpus, mine.inter.nic_efficiency) == ("mine", 64, 0.5)
    assert mine.inter.hop_s == shipped.inter.hop_s
    assert mine.device == shipped.device


def test_user_device_beside_its_cluster(tmp_path: Path):
    """A cluster file may name a device file by a path relative to itself."""
    (tmp_path / "card.toml").write_text('base = "h100-sxm-80g"\nmemory_bytes = 5e10\n')
    path = tmp_path / "mine.toml"
    path.write_text('base = "H100"\ndevice = "card.toml"\n')
    assert load_cluster(str(path)).device.memory_bytes == 5e10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_gpus = ", "not valid TOML"),
        ('base = "H100"\nmax_gpu = 8', "unknown key 'max_gpu' in Cluster"),
        ('base = "H100"\nnic_bytes_per_s = -1.0', "must be finite and positive"),
        ('base = "H100"\nmax_gpus = 4', "max_gpus must be at least gpus_per_node=8"),
        ('base = "h1000"', "unknown cluster"),
        ("max_gpus = 8", "key 'device' is missing"),
    ],
)
def test_bad_cluster_files_get_one_line(tmp_path: Path, text, message):
    """A broken file names the rule and the value, never a traceback."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserInputError, match=message):
        load_cluster(path)


def test_missing_file_is_a_user_error(tmp_path: Path):
    """A path that does not exist is told as such."""
    with pytest.raises(UserInputError, match="cannot read"):
        load_cluster(tmp_path / "none.toml")


def test_constants_refuse_nonsense():
    """Constants validate on construction."""
    good = {
        "efficiency": 0.8, "half_m": 1.0, "half_n": 1.0, "half_k": 1.0,
        "hbm_fraction": 0.7, "floor_s": 1e-6,
    }  # fmt: skip
    GemmConstants(**good)
    for key, value in (("efficiency", 2.0), ("hbm_fraction", 1.1), ("floor_s", math.nan)):
        with pytest.raises(UserInputError, match=key):
            GemmConstants(**{**good, key: value})


H100, GB200 = load_cluster("H100"), load_cluster("GB200")


@pytest.mark.parametrize(
    ("cluster", "size", "stride", "ranks", "domains"),
    [
        (H100, 8, 1, 8, 1),  # tp 8 fills a node
        (H100, 1, 8, 1, 1),  # one rank is alone
        (H100, 16, 8, 1, 16),  # dp beside tp 8: one rank a node
        (H100, 2, 4, 2, 1),  # dp 2 beside tp 4 stays inside
        (H100, 4, 4, 2, 2),  # dp 4 beside tp 4: two a node
        (H100, 64, 2, 4, 16),
        (H100, 16, 1, 8, 2),  # tp 16 over two nodes
        (H100, 4, 1, 4, 1),  # half a node
        (H100, 6, 1, 3, 2),  # does not tile a node: some group straddles two
        (H100, 3, 2, 1.5, 2),
        (GB200, 72, 1, 72, 1),  # the rack, not the tray of four
        (GB200, 8, 1, 8, 1),
        (GB200, 16, 8, 8, 2),  # 64 of 72 GPUs of each rack
        (GB200, 16, 1, 16, 1),
        (GB200, 128, 1, 64, 2),
        (GB200, 144, 1, 72, 2),
        (GB200, 9, 8, 9, 1),
        (GB200, 8, 72, 1, 8),
    ],
)
def test_group_span_by_hand(cluster: Cluster, size, stride, ranks, domains):
    """Ranks in a domain and domains spanned, counted by hand."""
    got = group_span(cluster, size, stride)
    assert (float(got[0]), float(got[1])) == (ranks, domains)


@settings(deadline=None, max_examples=60)
@given(domain=st.sampled_from([4, 8, 18]), size=st.integers(1, 24), stride=st.integers(1, 24))
def test_group_span_is_the_worst_group(domain, size, stride):
    """The closed form equals the widest group found by laying out every group."""
    cluster = dataclasses.replace(H100, nvlink_domain=domain, gpus_per_node=domain)
    block = size * stride
    groups = [
        {(start + offset + rank * stride) // domain for rank in range(size)}
        for start in range(0, block * domain, block)
        for offset in range(stride)
    ]
    worst = max(map(len, groups))
    ranks, domains = group_span(cluster, size, stride)
    assert float(domains) == worst
    assert float(ranks) == pytest.approx(size / worst)


def test_group_span_broadcasts():
    """Sizes and strides broadcast as arrays."""
    ranks, domains = group_span(H100, np.array([[1], [8], [64]]), np.array([1, 8]))
    assert ranks.shape == domains.shape == (3, 2)
    np.testing.assert_array_equal(domains, [[1, 1], [1, 8], [8, 64]])


def test_nic_sharers():
    """Eight data-parallel groups of a tp-8 layout share a node's NICs; one full group has them."""
    np.testing.assert_array_equal(nic_sharers(H100, [1.0, 4.0, 8.0, 72.0]), [8.0, 2.0, 1.0, 1.0])
