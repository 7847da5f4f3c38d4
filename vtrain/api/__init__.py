"""vtrain from Python: the simulator's commands as functions, tables as pandas frames.

    import vtrain.api as vt

    vt.simulate("llama3-70b", gpus=512, tp=8, pp=4, global_batch_size=1024)
    vt.plans("llama3-8b", "H100", gpus=64, global_batch_size=512).head()

Models, clusters and stacks are names, files, or the objects themselves. The search over
architectures is `vtrain_search.api.search`; docs/api.md shows every function at work.
"""

from __future__ import annotations

from vtrain.api.calibration import SiteCalibration, calibrate
from vtrain.api.catalogue import clusters, models, prices, stacks
from vtrain.api.devices import DeviceFits, fit_devices, profile_budget
from vtrain.api.planning import explain_plans, plans, simulate, simulate_design
from vtrain.api.profiling import (
    MachineProfile,
    StepChecks,
    profile_fit,
    profile_import,
    profile_plan,
    profile_run,
    profile_verify,
)
from vtrain.api.result import Simulation
from vtrain.api.sharing import Admission, TenancyRun, tenancy_admit, tenancy_run
from vtrain.api.tools import explain_mfu, export, mfu, read_file
from vtrain.api.validation import Validation, validate

__all__ = [
    "Admission", "DeviceFits", "MachineProfile", "Simulation", "SiteCalibration", "StepChecks",
    "TenancyRun", "Validation", "calibrate", "clusters", "explain_mfu", "explain_plans", "export",
    "fit_devices", "mfu", "models", "plans", "prices", "profile_budget", "profile_fit",
    "profile_import", "profile_plan", "profile_run", "profile_verify", "read_file", "simulate",
    "simulate_design", "stacks", "tenancy_admit", "tenancy_run", "validate",
]  # fmt: skip
