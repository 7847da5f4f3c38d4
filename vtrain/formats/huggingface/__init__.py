"""Hugging Face `config.json`: the architecture of a model, nothing of how it is trained."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError, unknown_name
from vtrain.formats.fields import Fields
from vtrain.formats.huggingface import gpt_like, llama_like
from vtrain.formats.huggingface.names import EXPERT_FAMILIES, EXPERT_FIELDS, WITHOUT_EFFECT
from vtrain.formats.imported import Imported, labelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain.architecture import Architecture
    from vtrain.formats.huggingface.family import Family

# Tried in this order when an architecture is written: the plainest family that carries it.
FAMILIES: dict[str, Family] = {
    family.model_type: family for family in (*llama_like.FAMILIES, *gpt_like.FAMILIES)
}

__all__ = ["FAMILIES", "family_of", "read_config", "write_config"]


def read_config(config: Mapping[str, Any], path: str) -> Imported:
    """Read the fields of a config.json.

    The config says how long a sequence may be, not how long the training sequences are: the
    sequence length stays open, except where a learned position table bounds it.

    Args:
        config: the parsed file.
        path: what errors call it.

    Raises:
        UserInputError: when the family is unknown or mixture-of-experts, a field has the wrong
            type, or sizes contradict each other.
    """
    family = _family(config, path)
    fields = Fields(config, path)
    notes: list[str] = []
    with labelled(path):
        architecture = family.read(fields, notes)
    longest = config.get(family.length_field)
    if architecture.position == "learned":
        seq_length: int | None = architecture.max_positions
        if family.model_type == "opt":
            seq_length = architecture.max_positions - gpt_like.OPT_POSITION_OFFSET
        notes.append(f"the position table is taken as the training sequence: {seq_length}")
    else:
        seq_length = None
        if longest is not None:
            notes.append(
                f"{family.length_field}={longest} is the longest sequence the model may see, not "
                "the training sequence: state that with --seq"
            )
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        fields.raw("layer_types")
        other = sorted({str(kind) for kind in kinds} - {"full_attention"})
        if other:
            notes.append(f"layer_types has {', '.join(other)}: attention is counted in full")
    name = config.get("_name_or_path")
    if isinstance(name, str):
        architecture = replace(architecture, name=name)
    fields.ignore(WITHOUT_EFFECT)
    return Imported(
        source="huggingface",
        path=path,
        architecture=architecture,
        seq_length=seq_length,
        longest_sequence=longest if seq_length is None and isinstance(longest, int) else seq_length,
        unknown_fields=fields.unknown,
        ignored_fields=fields.ignored,
        notes=tuple(notes),
    )


def _family(config: Mapping[str, Any], path: str) -> Family:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise UserInputError(
            f"{path}: model_type is missing, so the family is unknown",
            hint=f"one of {', '.join(FAMILIES)}",
        )
    experts = [key for key in EXPERT_FIELDS if isinstance(config.get(key), int) and config[key] > 1]
    if model_type in EXPERT_FAMILIES or experts:
        why = f" ({experts[0]}={config[experts[0]]})" if experts else ""
        raise UserInputError(
            f"{path}: model_type={model_type!r}{why} is mixture-of-experts, which is not "
            "supported yet",
            hint=f"dense families: {', '.join(FAMILIES)}",
        )
    if model_type not in FAMILIES:
        error = unknown_name("model family", model_type, FAMILIES)
        raise UserInputError(f"{path}: {error.message}", hint=f"known: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def family_of(architecture: Architecture) -> Family:
    """Return the plainest family that carries every feature of an architecture.

    Raises:
        UserInputError: when none does; names what the nearest one lacks.
    """
    lacking = {name: _lost(family, architecture) for name, family in FAMILIES.items()}
    for name, lost in lacking.items():
        if not lost:
            return FAMILIES[name]
    near = min(lacking, key=lambda name: (len(lacking[name]), list(lacking).index(name)))
    raise UserInputError(
        "no known Hugging Face family carries this architecture: the nearest, "
        f"{near}, cannot have {', '.join(lacking[near])}",
        hint="use --format megatron or torchtitan",
    )


def _lost(family: Family, architecture: Architecture) -> list[str]:
    """Return what a family would drop or change, as `field=value`."""
    try:
        again = family.read(Fields(family.write(architecture), family.model_type), [])
    except UserInputError as error:
        return [error.message]
    return [
        f"{item.name}={getattr(architecture, item.name)}"
        for item in dataclass_fields(architecture)
        if item.name != "name" and getattr(again, item.name) != getattr(architecture, item.name)
    ]


def write_config(
    architecture: Architecture,
    *,
    seq_length: int,
    precision: str = "bf16",
    model_type: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a config.json.

    Args:
        architecture: the model.
        seq_length: tokens of one training sequence.
        precision: bf16, fp16 or fp8 (whose weights are kept in bf16).
        model_type: a family of FAMILIES; the plainest that carries the model when None.

    Raises:
        UserInputError: when the family cannot carry the architecture.
    """
    family = family_of(architecture) if model_type is None else FAMILIES.get(model_type)
    if family is None:
        raise unknown_name("model family", str(model_type), FAMILIES)
    lost = _lost(family, architecture)
    if lost:
        raise UserInputError(
            f"Hugging Face family {family.model_type} cannot have {', '.join(lost)}",
            hint="leave the family open to have a fitting one chosen",
        )
    config = {
        "architectures": [family.model_class],
        "model_type": family.model_type,
        **family.write(architecture),
        "torch_dtype": "float16" if precision == "fp16" else "bfloat16",
        "use_cache": True,
    }
    config.setdefault(family.length_field, seq_length)
    if architecture.name:
        config["_name_or_path"] = architecture.name
    return config
