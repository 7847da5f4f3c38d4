"""Importing the API is quick: heavy packages come with the call that needs them."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pandas", "scipy", "sklearn", "optuna", "ray", "torch")


def test_importing_loads_nothing_heavy() -> None:
    """Neither API imports pandas, SciPy, Optuna, Ray or torch until a function is called."""
    code = (
        "import sys, vtrain.api, vtrain_search.api; "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert found.stdout.strip() == "[]"
