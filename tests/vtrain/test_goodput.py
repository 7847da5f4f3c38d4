"""Goodput: published points, the optimum, monotony."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from vtrain.goodput import (
    CHECKPOINT_BYTES_PER_PARAMETER,
    CHECKPOINT_BYTES_PER_S_PER_GPU,
    FAILURES_PER_GPU_HOUR,
    PUBLISHED_FAILURES,
    RESTART_S,
    checkpoint_interval_s,
    goodput,
    optimal_interval_share,
)


def test_llama_3_loses_a_job_every_three_hours() -> None:
    """419 interruptions in 54 days on 16,384 GPUs: one in 3.1 hours (arXiv 2407.21783)."""
    hours = 1.0 / (FAILURES_PER_GPU_HOUR * 16384)
    assert hours == pytest.approx(3.09, abs=0.01)


def test_llama_3_405b_trains_more_than_90_percent() -> None:
    """The paper reports an effective training time above 90 % on 16,384 GPUs."""
    value = goodput(16384, state_bytes=CHECKPOINT_BYTES_PER_PARAMETER * 405e9)
    assert 0.90 < value < 0.97


def test_megascale_trains_more_than_90_percent() -> None:
    """More than 90 % on 12,288 GPUs for a 175B model (arXiv 2402.15627)."""
    value = goodput(12288, state_bytes=CHECKPOINT_BYTES_PER_PARAMETER * 175e9)
    assert 0.90 < value < 0.98


def test_published_failure_rates_agree_within_a_factor_of_four() -> None:
    """The default is a fair one: other clusters' rates lie within a factor of four."""
    rates = np.array(list(PUBLISHED_FAILURES.values()))
    assert np.all(np.abs(np.log2(rates / FAILURES_PER_GPU_HOUR)) < 2)


def test_rsc_1_projects_failures_every_108_minutes() -> None:
    """6.50 failures per 1,000 node-days: 1.8 hours at 16,384 GPUs (arXiv 2410.21680)."""
    rate = next(value for name, value in PUBLISHED_FAILURES.items() if name.startswith("RSC-1"))
    assert 1 / (16384 * rate) == pytest.approx(1.8, abs=0.01)


@given(st.floats(1e-9, 20.0))
def test_interval_is_the_exact_optimum(d: float) -> None:
    """x solves log(1 - x) + x = -d, that is 1 - x = -W0(-exp(-1 - d)); no neighbour is better."""
    x = float(optimal_interval_share(d))
    assert 1 - x == pytest.approx(-lambertw(-np.exp(-1 - d)).real, abs=1e-7)

    def wall_over_work(share: float) -> float:  # Daly 2006, eq. 13, without the restart
        return np.expm1(share + d) / share

    assert 1 / (1 - x) == pytest.approx(wall_over_work(x), rel=1e-6)
    for near in (x * 0.9, x * 1.1):
        assert wall_over_work(near) >= wall_over_work(x) * (1 - 1e-12)


@given(st.floats(1e-9, 1e-4))
def test_young_s_rule_is_the_limit(d: float) -> None:
    """Rare failures: the interval is sqrt(2 delta M), Young 1974."""
    assert float(optimal_interval_share(d)) == pytest.approx(np.sqrt(2 * d), rel=0.01)


@given(
    st.lists(st.integers(1, 10**7), min_size=2, max_size=50),
    st.floats(0, 1e14),
    st.floats(0, 1e5),
)
def test_goodput_never_rises_with_gpus(
    gpus: list[int], state_bytes: float, restart_s: float
) -> None:
    """More GPUs fail more often; whatever the state and the restart, goodput stays in [0, 1]."""
    values = goodput(np.sort(gpus), state_bytes=state_bytes, restart_s=restart_s)
    assert np.all(np.diff(values) <= 1e-15)
    assert np.all((values >= 0) & (values <= 1))


def _played(
    rng: np.random.Generator, attempts: int, length_s: float, mtbf_s: float
) -> tuple[float, int]:
    """Seconds until each attempt has once survived its length, and failures on the way."""
    spent_s, failures = 0.0, 0
    while attempts:
        times_s = rng.exponential(mtbf_s, attempts)
        lost_s = times_s[times_s < length_s]
        spent_s += float(lost_s.sum()) + (attempts - len(lost_s)) * length_s
        failures += len(lost_s)
        attempts = len(lost_s)
    return spent_s, failures


def test_goodput_against_simulated_failures() -> None:
    """A run with random failures, played through, takes the wall time the formula says."""
    rng = np.random.default_rng(0)
    gpus, state = 16384, 12 * 405e9
    mtbf_s = 3600 / (FAILURES_PER_GPU_HOUR * gpus)
    interval_s = float(checkpoint_interval_s(gpus, state_bytes=state))
    segment_s = interval_s + state / (CHECKPOINT_BYTES_PER_S_PER_GPU * gpus)
    segments = 100_000
    # Work and its checkpoint must survive together, and so must a restart after each failure.
    work_s, failures = _played(rng, segments, segment_s, mtbf_s)
    restarts_s, _ = _played(rng, failures, RESTART_S, mtbf_s)
    wall_s = work_s + restarts_s
    played = segments * interval_s / wall_s
    assert float(goodput(gpus, state_bytes=state)) == pytest.approx(played, abs=1e-3)


def test_one_gpu_hardly_fails() -> None:
    """A small run loses next to nothing."""
    assert goodput(8, state_bytes=12 * 1e9) > 0.998
