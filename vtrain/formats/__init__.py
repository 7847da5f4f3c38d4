"""Files of other tools, in and out: Hugging Face, Megatron-LM, torchtitan, DeepSpeed, Slurm."""

from __future__ import annotations

from vtrain.formats.reading import load_architecture, read_any
from vtrain.formats.writing import FORMATS, export, export_all

__all__ = ["FORMATS", "export", "export_all", "load_architecture", "read_any"]
