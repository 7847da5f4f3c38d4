"""Find out what a file is, and read it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.formats.imported import Imported

KNOWN = (
    "a Hugging Face config.json, Megatron-LM arguments (shell or YAML), a torchtitan TOML, a "
    "DeepSpeed JSON, a vtrain model, best.toml or --json row"
)
LARGEST_BYTES = 20_000_000


def read_any(
    path: str | Path,
    *,
    gpus: int | None = None,
    vocab_size: int | None = None,
    model_only: bool = False,
    row: int = 1,
) -> Imported:
    """Read a file of any known format.

    Args:
        path: the file, or a folder with a config.json.
        gpus: GPUs it runs on, for formats that leave that to the launcher.
        vocab_size: tokens of the vocabulary, for formats that leave that to the tokenizer.
        model_only: leave the plan of a launch script (and mistakes in it) alone.
        row: which design of a file with several, counted from 1.

    Returns:
        What the file holds; its unknown fields are listed, none is guessed in silence.

    Raises:
        UserInputError: unreadable, of no known format, or wrong in itself.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    text = _text(file)
    label = str(file)
    suffix = file.suffix.lower()
    if suffix == ".json" or (suffix not in (".toml", ".yaml", ".yml") and _looks_json(text)):
        return _json(text, label, gpus, row)
    if suffix == ".toml":
        return _toml(text, label, gpus, model_only, row)
    from vtrain.formats.megatron import read_megatron_script, read_megatron_yaml

    options: dict[str, Any] = {"gpus": gpus, "vocab_size": vocab_size, "model_only": model_only}
    if suffix in (".yaml", ".yml"):
        return read_megatron_yaml(_yaml(text, label), label, **options)
    if "--num-layers" in text or "--num_layers" in text:
        return read_megatron_script(text, label, **options)
    raise _unknown(label)


def load_architecture(name_or_path: str) -> tuple[Architecture, int | None]:
    """Return a model by name or from a file of any known format, with its sequence length.

    Args:
        name_or_path: a shipped model's name or alias, or a file. A name wins over a file of the
            same name in the current folder; write ./NAME for the file.

    Returns:
        Architecture, and tokens of one training sequence (None where the file does not say).

    Raises:
        UserInputError: unknown name, or a file that holds no model.
    """
    found = load_model_file(name_or_path)
    assert found.architecture is not None
    return found.architecture, found.seq_length


def load_model_file(
    name_or_path: str, *, gpus: int | None = None, vocab_size: int | None = None, row: int = 1
) -> Imported:
    """Return everything that is known of a model by name or from a file of any known format.

    Args:
        name_or_path: as in `load_architecture`.
        gpus: as in `read_any`.
        vocab_size: likewise.
        row: likewise.

    Returns:
        A find that holds an architecture.

    Raises:
        UserInputError: unknown name, or a file that holds no model.
    """
    from vtrain.formats.imported import Imported
    from vtrain.models import load_model

    file = Path(name_or_path)
    is_path = bool(file.suffix in _SUFFIXES or "/" in name_or_path or "\\" in name_or_path)
    if not is_path:
        try:
            model = load_model(name_or_path)
        except UserInputError:
            if not file.exists():
                raise
        else:
            return Imported(
                source="vtrain model", path=model.name, architecture=model.architecture,
                seq_length=model.seq_length, longest_sequence=model.seq_length,
            )  # fmt: skip
    found = read_any(file, gpus=gpus, vocab_size=vocab_size, model_only=True, row=row)
    if found.architecture is None:
        raise UserInputError(
            f"{name_or_path} ({found.source}) holds no model",
            hint="give a shipped model's name or a config.json",
        )
    return found


_SUFFIXES = (".json", ".toml", ".yaml", ".yml", ".sh", ".txt", ".args")


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise UserInputError(f"{file} is larger than {LARGEST_BYTES // 10**6} MB", hint=KNOWN)
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserInputError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserInputError(f"cannot read {file}: it is not UTF-8 text") from None


def _looks_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(text: str, label: str, gpus: int | None, row: int) -> Imported:
    from vtrain.formats.deepspeed import BATCH_KEYS, read_deepspeed
    from vtrain.formats.huggingface import read_config
    from vtrain.formats.own import holds_design, read_design_data

    try:
        data: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserInputError(f"{label} is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserInputError(f"{label} must hold one JSON object, got a {type(data).__name__}")
    if holds_design(data):
        return read_design_data(data, label, row=row)
    if "model_type" in data or "architectures" in data:
        return read_config(data, label)
    if "zero_optimization" in data or any(key in data for key in BATCH_KEYS):
        return read_deepspeed(data, label, gpus=gpus)
    raise _unknown(label)


def _toml(text: str, label: str, gpus: int | None, model_only: bool, row: int) -> Imported:
    from vtrain.formats.own import holds_design, read_design_data, read_model_file
    from vtrain.formats.torchtitan import read_torchtitan

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{label} is not valid TOML: {error}") from None
    if holds_design(data):
        return read_design_data(data, label, row=row)
    if isinstance(data.get("architecture"), dict):
        return read_model_file(label)
    model = data.get("model")
    if isinstance(model, dict) and ("flavor" in model or "name" in model):
        return read_torchtitan(data, label, gpus=gpus, model_only=model_only)
    raise _unknown(label)


def _yaml(text: str, label: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise UserInputError(f"{label} is not valid YAML: {line}") from None


def _unknown(label: str) -> UserInputError:
    return UserInputError(f"{label} is of no known format", hint=f"known: {KNOWN}")
