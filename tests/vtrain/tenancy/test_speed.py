"""Speed tables: the best plan of every count, and the fixed plan schedulers assume."""

from __future__ import annotations

import numpy as np
import pytest

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.formats import load_architecture
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SHIPPED
from vtrain.tenancy.generate import DEFAULT_MIX, WorkloadSpec, generate_jobs, parse_spec
from vtrain.tenancy.job import Job
from vtrain.tenancy.speed import node_counts
from vtrain.tenancy.speed_book import SpeedBook
from vtrain.tenancy.upkeep import Upkeep


@pytest.fixture(scope="module")
def book():
    return SpeedBook(
        load_cluster("a100-sxm-80g"), load_stack("megatron-core-2025"), SHIPPED, gpus=1024,
        read_model=load_architecture,
    )  # fmt: skip


def job_for(kind, **limits):
    return Job(
        name="x", model=kind.model, steps=1, global_batch_size=kind.global_batch_size,
        seq_length=kind.seq_length, **limits,
    )  # fmt: skip


def test_node_counts_have_small_factors():
    """2, 3, 5 and 7 only, ascending, one and the largest power of two among them."""
    counts = node_counts(128)
    assert counts.tolist() == sorted(set(counts.tolist()))
    assert {1, 7, 105, 125, 128} <= set(counts.tolist())
    assert not {11, 13, 121, 127} & set(counts.tolist())


@pytest.mark.parametrize("kind", DEFAULT_MIX, ids=lambda kind: kind.model)
def test_the_best_plan_is_never_slower_than_the_fixed_one(book, kind):
    """At every node count of the fixed plan the best plan is at least as fast."""
    best = book.table(job_for(kind), "vtrain")
    fixed = book.table(job_for(kind), "data-parallel")
    for nodes, time_s in zip(fixed.nodes, fixed.step_time_s, strict=True):
        reach = best.nodes <= nodes
        assert reach.any()
        assert best.step_time_s[reach].min() <= time_s * (1 + 1e-12)


@pytest.mark.parametrize("kind", DEFAULT_MIX, ids=lambda kind: kind.model)
def test_the_fixed_plan_changes_nothing_but_replicas(book, kind):
    """tp, pp, micro-batch and the rest are the same at every node count; dp is what grows."""
    plans = book.table(job_for(kind), "data-parallel").plans
    assert (
        len({(p.tp, p.pp, p.micro_batch_size, p.recompute, p.virtual_stages) for p in plans}) == 1
    )
    assert all(np.diff([p.dp for p in plans]) > 0)
    assert all(p.global_batch_size == kind.global_batch_size for p in plans)


def test_limits_cut_the_curve(book):
    """A job is never offered fewer or more GPUs than it allows."""
    curve = book.curve(job_for(DEFAULT_MIX[0], min_gpus=64, max_gpus=256), "vtrain", Upkeep())
    assert curve.nodes_of[0] == 0
    assert min(curve.nodes_of[1:]) >= 8
    assert max(curve.nodes_of) <= 32


def test_impossible_limits_name_what_is_possible(book):
    """Limits without a plan are refused with the counts the model runs on."""
    with pytest.raises(InfeasibleError, match="it runs on"):
        book.curve(job_for(DEFAULT_MIX[3], max_gpus=8), "vtrain", Upkeep())


def test_failures_and_checkpoints_only_slow_down(book):
    """Expected failures slow every level down; the pause shrinks with more GPUs."""
    job = job_for(DEFAULT_MIX[2])
    calm = book.curve(job, "vtrain", Upkeep(failures="none"))
    real = book.curve(job, "vtrain", Upkeep(failures="expected"))
    assert all(np.array(real.planned_of[1:3]) < np.array(calm.planned_of[1:3]))
    assert all(np.diff(real.pause_of[1:]) < 0)


def test_the_same_seed_draws_the_same_jobs(book):
    """Jobs follow from recipe and seed alone; another seed draws others."""
    spec = WorkloadSpec(jobs=16)
    first = generate_jobs(spec, book, Upkeep(), seed=3)
    assert first == generate_jobs(spec, book, Upkeep(), seed=3)
    assert first != generate_jobs(spec, book, Upkeep(), seed=4)


def test_the_load_is_the_load_asked_for(book):
    """GPU time asked for over GPU time of the cluster while jobs arrive, in the long run."""
    spec = WorkloadSpec(jobs=4000, load=0.8, tightness=1.5)
    jobs = generate_jobs(spec, book, Upkeep(), seed=0)
    asked_s = sum(j.gpus * (j.deadline_s - j.arrival_s) / spec.tightness for j in jobs)
    offered_s = 1024 * jobs[-1].arrival_s
    assert asked_s / offered_s == pytest.approx(0.8, rel=0.08)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("jobs", "must be key=value"),
        ("jbs=3", "unknown key 'jbs'"),
        ("jobs=2.5", "whole number"),
        ("load=0", "above zero"),
        ("models=gpt9", "not in the mix"),
        ("share=2", "share=2"),
        ("stretch=0.5", "stretch=0.5"),
    ],
)
def test_bad_recipes_are_refused(text, reason):
    """One line with the rule."""
    with pytest.raises(UserInputError) as error:
        parse_spec(text)
    assert reason in str(error.value)


def test_a_recipe_is_read():
    """Every key of a recipe reaches the specification."""
    spec = parse_spec("jobs=8,load=1.1,tightness=none,models=megatron-18.4b+megatron-39.1b")
    assert (spec.jobs, spec.load, spec.tightness) == (8, 1.1, float("inf"))
    assert [kind.model for kind in spec.mix] == ["megatron-18.4b", "megatron-39.1b"]
