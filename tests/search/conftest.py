"""Small real problems for the tests of the search: seconds, not minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from vtrain_search.build import Request, build_problem
from vtrain_search.problem import Problem


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., Problem]:
    """Build a problem from the words of a command line."""

    def build(*budgets: str, **changes: object) -> Problem:
        return build_problem(Request(**{"budgets": budgets, **changes}))

    return build


@pytest.fixture(scope="session")
def quick_problem(make_problem: Callable[..., Problem]) -> Callable[..., Problem]:
    """Build a problem whose plans are mostly pinned: a few milliseconds an architecture."""

    def build(*budgets: str, **changes: object) -> Problem:
        few = ("recompute=none", "micro_batch_size=2", "virtual_stages=1", "tp=1,2")
        return make_problem(*budgets, fixed=few, **changes)

    return build


@pytest.fixture(scope="session")
def small_problem(quick_problem: Callable[..., Problem]) -> Problem:
    """$10k on H100, plans mostly pinned."""
    return quick_problem("1e4usd")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One local Ray for every test that needs it: it takes seconds to start."""
    import os

    from vtrain_search.ray_executor import LOCAL_ENVIRONMENT

    for name, value in LOCAL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray = pytest.importorskip("ray")
    ray.init(
        address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False,
        logging_level="ERROR", object_store_memory=100 * 2**20,
    )  # fmt: skip
    yield
    ray.shutdown()
