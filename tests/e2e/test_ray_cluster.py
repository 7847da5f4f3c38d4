"""A search on a Ray cluster whose nodes come and go ends in the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from vtrain_search.ray_executor import LOCAL_ENVIRONMENT
for name, value in LOCAL_ENVIRONMENT.items():
    os.environ.setdefault(name, value)
from ray.cluster_utils import Cluster
from vtrain_search.build import Request, build_problem
from vtrain_search.driver import search
from vtrain_search.executors import InlineExecutor
from vtrain_search.ray_executor import RayExecutor
from vtrain_search.search_state import Settings
from vtrain_search.storage import trials_csv

few = ("recompute=none", "micro_batch_size=2", "virtual_stages=1")
problem = build_problem(Request(budgets=("1e4usd",), fixed=few))
settings = Settings(max_trials=40)
memory = 80 * 2**20
cluster = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 1, "object_store_memory": memory, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, object_store_memory=memory) for _ in range(2)]
cluster.wait_for_nodes()
executor = RayExecutor(problem, address=cluster.address)
assert executor.workers == 3, executor.workers
done = []

def disturb(progress):
    if progress.evaluated >= 10 and not done:
        done.append(cluster.remove_node(nodes[0], allow_graceful=False))
        cluster.add_node(num_cpus=1, object_store_memory=memory)

found = search(problem, settings, executor, on_progress=disturb)
assert done
executor.close()
cluster.shutdown()
alone = search(problem, settings, InlineExecutor(problem))
texts = [trials_csv(["b"], [f.searches[0].trials]) for f in (found, alone)]
assert texts[0] == texts[1]
print("same", len(found.searches[0].trials))
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Ray's cluster utility is tried on Linux only")
def test_a_lost_and_an_added_node_change_nothing(tmp_path: Path) -> None:
    """Three nodes, one killed in mid-search and another added: the bytes of one process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path,
        env=environment, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "same" in done.stdout
