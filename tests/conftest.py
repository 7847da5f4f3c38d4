"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured data that is not part of the project (VTRAIN_DATA)."""
    value = os.environ.get("VTRAIN_DATA")
    if not value:
        pytest.skip("VTRAIN_DATA is not set: the measured runs are not part of the project")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"VTRAIN_DATA={value} is not a folder")
    return path
