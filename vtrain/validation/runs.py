"""Measured training runs: reading both published schemas into one row type."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from vtrain.errors import UserInputError

_NUMBERS = (
    "gpu_memory_gib", "gpus", "gpus_per_node", "inter_link_gbps_per_gpu", "layers", "hidden",
    "heads", "kv_heads", "ffn_hidden", "gated_mlp", "vocab", "seq_len", "experts",
    "global_batch_seqs", "micro_batch", "tp", "pp", "dp", "cp", "vpp", "sequence_parallel",
    "flash_attention", "iteration_s", "peak_memory_gib", "mfu",
)  # fmt: skip
_TEXTS = (
    "run_id", "gpu", "framework", "dtype", "model_name", "zero_stage_or_fsdp", "recompute",
    "notes",
)  # fmt: skip
_NEEDED = ("run_id", "gpus", "layers", "hidden", "heads", "micro_batch", "tp", "pp", "dp")

# Columns that vTrain's multi-node file leaves out, from its repository (configs and Docker
# recipe): A100, 8 a node, 800 Gb/s a node; fp16, checkpointing on, no ZeRO, no interleaving, no
# sequence parallelism, no flash attention; vocabulary 50257, feed-forward 4 x hidden. The 80 GB
# follow from the plans (3.6B parameters without ZeRO need about 60).
_VTRAIN_DEFAULTS = {
    "gpu": "A100-SXM", "gpu_memory_gib": 80.0, "gpus_per_node": 8.0,
    "inter_link_gbps_per_gpu": 100.0, "framework": "Megatron-DeepSpeed (vTrain)", "dtype": "fp16",
    "gated_mlp": 0.0, "vocab": 50257.0, "cp": 1.0, "vpp": 1.0, "zero_stage_or_fsdp": "none",
    "sequence_parallel": 0.0, "recompute": "full", "flash_attention": 0.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """One row; a number that the file leaves blank is None, a text is empty.

    Attributes follow the columns of the published schema: sizes are counts, `iteration_s`
    seconds of a step, `peak_memory_gib` GiB a GPU, `inter_link_gbps_per_gpu` Gb/s one way.
    `source` is the prefix of run_id, `origin` the column that says where a row was published.
    """

    run_id: str
    source: str
    gpu: str
    framework: str
    dtype: str
    model_name: str
    zero_stage_or_fsdp: str
    recompute: str
    notes: str
    origin: str
    gpu_memory_gib: float | None
    gpus: float | None
    gpus_per_node: float | None
    inter_link_gbps_per_gpu: float | None
    layers: float | None
    hidden: float | None
    heads: float | None
    kv_heads: float | None
    ffn_hidden: float | None
    gated_mlp: float | None
    vocab: float | None
    seq_len: float | None
    experts: float | None
    global_batch_seqs: float | None
    micro_batch: float | None
    tp: float | None
    pp: float | None
    dp: float | None
    cp: float | None
    vpp: float | None
    sequence_parallel: float | None
    flash_attention: float | None
    iteration_s: float | None
    peak_memory_gib: float | None
    mfu: float | None

    @property
    def group(self) -> tuple[str, str, str]:
        """What is judged together: (source, GPU, framework)."""
        return self.source, self.gpu, self.framework


def read_runs(path: Path) -> list[MeasuredRun]:
    """Read one file of measured runs in either schema.

    Args:
        path: CSV with the columns of published_runs.csv, or of vtrain_multi.csv.

    Raises:
        UserInputError: unreadable file, missing columns, or a number that is none.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or []
            missing = [name for name in _NEEDED if name not in columns]
            if missing or not ({"iteration_s", "iteration_ms"} & set(columns)):
                raise UserInputError(
                    f"{path.name} is no file of measured runs: it lacks "
                    f"{', '.join(missing) or 'iteration_s'}",
                    hint="expected the columns of published_runs.csv or vtrain_multi.csv",
                )
            return [_row(path, number, row) for number, row in enumerate(reader, start=2)]
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserInputError(f"cannot read {path}: {error}") from None


def _row(path: Path, line: int, row: dict[str, str]) -> MeasuredRun:
    values: dict[str, object] = {name: (row.get(name) or "").strip() for name in _TEXTS}
    for name in _NUMBERS:
        values[name] = _number(path, line, name, row.get(name))
    if "iteration_ms" in row:
        milliseconds = _number(path, line, "iteration_ms", row["iteration_ms"])
        values |= _VTRAIN_DEFAULTS
        values["iteration_s"] = None if milliseconds is None else milliseconds * 1e-3
        values["kv_heads"] = values["heads"]
        hidden = values["hidden"]
        values["ffn_hidden"] = 4.0 * hidden if isinstance(hidden, float) else None
        values["model_name"] = f"gpt-{row.get('params_b', '')}b"
    values["origin"] = (row.get("source") or "").strip()
    prefix = re.match(r"[A-Za-z][A-Za-z0-9]*?(?=-|\d+$)", str(values["run_id"]))
    source = prefix.group(0) if prefix else str(values["run_id"])
    values["source"] = "vtrain_multi" if source == "vtm" else source
    return MeasuredRun(**values)  # type: ignore[arg-type]


def _number(path: Path, line: int, name: str, text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        return float(text)
    except ValueError as error:
        raise UserInputError(f"{path.name} line {line}: {name}={text!r} is not a number") from error
