"""Megatron-LM: launch scripts and argument files, in and out."""

from __future__ import annotations

from vtrain.formats.megatron.read import read_megatron_script, read_megatron_yaml
from vtrain.formats.megatron.write import megatron_arguments, megatron_script

__all__ = [
    "megatron_arguments",
    "megatron_script",
    "read_megatron_script",
    "read_megatron_yaml",
]
