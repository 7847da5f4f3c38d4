"""vtrain from Python: the simulator's commands as functions, tables as pandas frames.

    import vtrain.api as vt

    vt.simulate("llama3-70b", gpus=512, tp=8, pp=4, global_batch_size=1024)
    vt.plans("llama3-8b", "H100", gpus=64, global_batch_size=512).head()

Models, clusters and stacks are names, files, or the objects themselves. The search over
architectures is `vtrain_search.api.search`; docs/api.md shows every function at work.
"""

from __future__ import annotations

from vtrain.api.catalogue import clusters, models, prices, stacks
from vtrain.api.planning import plans, simulate, simulate_design
from vtrain.api.result import Simulation
from vtrain.api.tools import calibrate, export, mfu, read_file

__all__ = [
    "Simulation", "calibrate", "clusters", "export", "mfu", "models", "plans", "prices",
    "read_file", "simulate", "simulate_design", "stacks",
]  # fmt: skip
