"""Write a design in the formats that trainers read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vtrain.errors import unknown_name
from vtrain.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from vtrain.architecture import Architecture
    from vtrain.design import Design

FORMATS = ("megatron", "torchtitan", "deepspeed", "hf", "slurm")
FILE_NAMES = {
    "megatron": "megatron.sh",
    "torchtitan": "torchtitan.toml",
    "deepspeed": "deepspeed.json",
    "hf": "config.json",
    "slurm": "job.sbatch",
}


def export(design: Design, format: str, cluster: str | None = None) -> str:
    """Return a design as the text of a file that a trainer reads.

    The plan is checked against every rule of its framework first; nothing is changed to fit.

    Args:
        design: what is trained and how.
        format: one of FORMATS. "hf" carries the model only.
        cluster: name or file, where it is not the design's own.

    Raises:
        UserInputError: an unknown format, a plan that its framework refuses, or a feature that
            the format cannot carry.
    """
    from vtrain.formats.context import prepare

    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    job = prepare(design, cluster)
    if format == "hf":
        return export_model(
            design.architecture, seq_length=design.seq_length, precision=job.stack.precision
        )
    if format == "megatron":
        from vtrain.formats.megatron import megatron_script

        return megatron_script(job)
    if format == "slurm":
        from vtrain.formats.slurm import slurm_script

        return slurm_script(job)
    if format == "torchtitan":
        from vtrain.formats.torchtitan import torchtitan_toml

        return torchtitan_toml(job)
    from vtrain.formats.deepspeed import deepspeed_json

    return deepspeed_json(job)


def export_model(architecture: Architecture, *, seq_length: int, precision: str) -> str:
    """Return a model as the text of a Hugging Face config.json, which carries no plan.

    Args:
        architecture: the model.
        seq_length: tokens of the longest sequence it may see.
        precision: of its training.

    Raises:
        UserInputError: when no Hugging Face family carries the model.
    """
    from vtrain.formats.huggingface import write_config

    config = write_config(architecture, seq_length=seq_length, precision=precision)
    return json.dumps(config, indent=2) + "\n"


def export_all(design: Design, folder: Path, cluster: str | None = None) -> dict[str, str]:
    """Write every format that carries the design into a folder.

    Args:
        design: what is trained and how.
        folder: an existing folder.
        cluster: name or file, where it is not the design's own.

    Returns:
        Format to the file's name, or to the reason why the format cannot carry the design.

    Raises:
        UserInputError: when the plan breaks a rule or the folder cannot be written.
    """
    from vtrain.errors import UserInputError
    from vtrain.formats.context import prepare

    prepare(design, cluster)
    outcome: dict[str, str] = {}
    for name in FORMATS:
        try:
            text = export(design, name, cluster)
        except UserInputError as error:
            outcome[name] = f"not written: {error}"
            continue
        write_text(folder / FILE_NAMES[name], text)
        outcome[name] = FILE_NAMES[name]
    return outcome
