"""torchtitan job configs in TOML, in and out."""

from __future__ import annotations

from vtrain.formats.torchtitan.flavors import FLAVORS
from vtrain.formats.torchtitan.read import read_torchtitan
from vtrain.formats.torchtitan.write import torchtitan_toml

__all__ = ["FLAVORS", "read_torchtitan", "torchtitan_toml"]
