"""Imports point one way, and the commands start without heavy packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import vtrain_search

import vtrain

VTRAIN = Path(vtrain.__file__).parent
SEARCH = Path(vtrain_search.__file__).parent

# Lower layers first; a module may import from its own layer and from those above it in this list.
LAYERS = (
    ("units", "errors", "files"),
    ("architecture",),
    ("plan",),
    ("stack", "hardware", "site"),
    ("presets", "prices", "goodput", "models", "design"),
    ("latency",),
    ("validity", "enumeration"),
    ("schedule",),
    ("operators", "memory", "data_parallel"),
    ("estimate",),
    ("simulate", "simulation"),
    ("training_run",),
)


def imports_of(path: Path) -> set[str]:
    """Every module imported at run time anywhere in a file; type-checking imports do not count."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped |= {id(inner) for inner in ast.walk(node)}
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_simulator_never_imports_the_search() -> None:
    """vtrain is usable alone: no file of it imports vtrain_search."""
    guilty = [
        str(path.relative_to(VTRAIN))
        for path in VTRAIN.rglob("*.py")
        if any(name.split(".")[0] == "vtrain_search" for name in imports_of(path))
    ]
    assert not guilty


def test_imports_point_downward() -> None:
    """A module of a lower layer imports nothing from a higher one."""
    rank = {name: level for level, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path in VTRAIN.rglob("*.py"):
        part = path.relative_to(VTRAIN).parts[0].removesuffix(".py")
        if part not in rank or path.name.endswith("_cli.py") or "fit" in path.parts:
            continue
        for name in imports_of(path):
            pieces = name.split(".")
            inner = pieces[1] if pieces[0] == "vtrain" and len(pieces) > 1 else ""
            if rank.get(inner, 0) > rank[part]:
                wrong.append(f"{path.relative_to(VTRAIN)} imports {name}")
    assert not wrong


@pytest.mark.parametrize("module", ["vtrain.cli", "vtrain_search.cli"])
def test_help_starts_without_heavy_packages(module: str) -> None:
    """--help imports none of NumPy, pandas, SciPy, scikit-learn, Optuna, Ray, torch."""
    code = (
        "import sys, importlib\n"
        f"sys.argv = ['x', '--help']\n"
        f"main = importlib.import_module({module!r}).main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'sklearn', 'optuna', 'ray', 'torch'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
