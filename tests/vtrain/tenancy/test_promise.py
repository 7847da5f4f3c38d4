"""Progressive filling: the smallest share that keeps a date."""

from __future__ import annotations

import math

import pytest

from vtrain.tenancy.promise import Capacity, Promise, fill
from vtrain.tenancy.upkeep import Upkeep

from .conftest import curve_of


def ask(capacity, curve, *, steps, deadline, level=0, ready=0.0):
    return fill(
        capacity, curve, steps=steps, start_s=0.0, deadline_s=deadline, level=level, ready_s=ready
    )


def test_the_published_example():
    """ElasticFlow's worked example: speeds 1, 1.5, 2 on 1, 2, 4 GPUs; three of four GPUs are taken
    in the first unit of time; three units of work by time 2 need 1 GPU, then 4."""
    curve = curve_of({1: 1.0, 2: 1.5, 4: 2.0}, nodes=4)
    capacity = Capacity(0.0, 4)
    capacity.take(Promise((0.0,), (2,), 1.0), curve)
    capacity.take(Promise((0.0,), (1,), 1.0), curve)
    promise = ask(capacity, curve, steps=3.0, deadline=2.0)
    assert promise is not None
    assert promise.levels == (1, 3)
    assert promise.starts == (0.0, 1.0)
    assert promise.end == pytest.approx(2.0, abs=2e-3)
    assert ask(capacity, curve, steps=3.1, deadline=2.0) is None


def test_the_smallest_share_is_taken():
    """A job that has time is promised one GPU, not more."""
    curve = curve_of({1: 1.0, 2: 1.5, 4: 2.0}, nodes=4)
    promise = ask(Capacity(0.0, 4), curve, steps=10.0, deadline=10.0)
    assert promise is not None
    assert promise.levels == (1,)


def test_the_pause_counts():
    """A pause of 3 s turns a date that could be kept into one that cannot, and 2 nodes into 4."""
    upkeep = Upkeep(failures="none", failures_per_gpu_hour=0.0, rescale_s=3.0)
    curve = curve_of({1: 1.0, 2: 1.5, 4: 2.0}, nodes=4, upkeep=upkeep)
    promise = ask(Capacity(0.0, 4), curve, steps=15.0, deadline=11.0)
    assert promise is not None
    assert promise.levels == (3,)
    assert ask(Capacity(0.0, 4), curve, steps=17.0, deadline=11.0) is None


def test_going_on_costs_no_pause():
    """A job that holds the level already is promised it without a new pause."""
    upkeep = Upkeep(failures="none", failures_per_gpu_hour=0.0, rescale_s=3.0)
    curve = curve_of({4: 2.0}, nodes=4, upkeep=upkeep)
    assert ask(Capacity(0.0, 4), curve, steps=20.0, deadline=10.0, level=1) is not None
    assert ask(Capacity(0.0, 4), curve, steps=20.0, deadline=10.0, level=0) is None


def test_without_a_date_the_earliest_end_is_promised():
    """With no deadline the share is the one that ends first."""
    curve = curve_of({1: 1.0, 2: 1.5, 4: 2.0}, nodes=4)
    capacity = Capacity(0.0, 4)
    capacity.take(Promise((0.0,), (2,), 5.0), curve)
    promise = ask(capacity, curve, steps=17.5, deadline=math.inf)
    assert promise is not None
    assert promise.levels == (2, 3)
    assert promise.end == pytest.approx(10.0, abs=2e-3)


def test_capacity_given_back_is_capacity():
    """Taking and giving back leaves every node free; time that has passed is forgotten."""
    curve = curve_of({1: 1.0, 2: 2.0}, nodes=4)
    capacity = Capacity(0.0, 4)
    promise = Promise((1.0, 3.0), (2, 1), 7.0)
    capacity.take(promise, curve)
    assert dict(zip(capacity.times, capacity.free, strict=True)) == {0.0: 4, 1.0: 2, 3.0: 3, 7.0: 4}
    capacity.advance(2.0)
    capacity.give_back(promise, curve)
    capacity.advance(2.5)
    assert (capacity.times, capacity.free) == ([2.5], [4])
