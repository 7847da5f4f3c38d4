"""Small tools: utilisation in every dialect, files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.api.arguments import named, one_of, optional_whole, positive, whole
from vtrain.api.setting import DEFAULT_CLUSTER, Model, make_setting, reference
from vtrain.cli_options import DEFAULT_STACK
from vtrain.errors import UserInputError
from vtrain.plan import RECOMPUTE

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.design import Design
    from vtrain.formats.imported import Imported
    from vtrain.hardware import Cluster

PRECISIONS = ("bf16", "fp16", "fp8")


def mfu(
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int,
    tokens_per_s: float | None = None,
    tokens_per_s_per_gpu: float | None = None,
    step_time_s: float | None = None,
    global_batch_size: int | None = None,
    seq_length: int | None = None,
    precision: str = "bf16",
    peak_flops_per_s: float | None = None,
    recompute: str = "none",
    tp: int = 1,
) -> DataFrame:
    """Return one throughput in every dialect of MFU, with its formula, as `vtrain mfu` does.

    Args:
        model: as `simulate`.
        cluster: its GPU gives the peak.
        gpus: GPUs that share the throughput.
        tokens_per_s: tokens a second of all GPUs together.
        tokens_per_s_per_gpu: or of one GPU.
        step_time_s: or seconds of a step, with `global_batch_size`.
        global_batch_size: sequences of one step.
        seq_length: tokens of a sequence; the model's own when None, else 4096.
        precision: whose dense peak counts: bf16, fp16, fp8.
        peak_flops_per_s: dense peak of one GPU; the cluster's own when None.
        recompute: none, selective, full; counted by HFU only.
        tp: tensor-parallel degree (pads Megatron's vocabulary).

    Raises:
        UserInputError: not one throughput, a number that is not positive, or a precision the GPU
            lacks.
    """
    import pandas as pd

    found = _utilization(
        model, cluster, gpus, seq_length, precision, peak_flops_per_s, recompute, tp, None,
        tokens_per_s=tokens_per_s, tokens_per_s_per_gpu=tokens_per_s_per_gpu,
        step_time_s=step_time_s, global_batch_size=global_batch_size,
    )  # fmt: skip
    return pd.DataFrame(found["rows"]).rename(columns={"utilization": "mfu"}).set_index("dialect")


def explain_mfu(
    reported: float,
    model: Model,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    gpus: int,
    tokens_per_s: float | None = None,
    tokens_per_s_per_gpu: float | None = None,
    step_time_s: float | None = None,
    global_batch_size: int | None = None,
    seq_length: int | None = None,
    precision: str = "bf16",
    peak_flops_per_s: float | None = None,
    recompute: str = "none",
    tp: int = 1,
) -> list[str]:
    """Return which count and peak give a utilisation someone reported, nearest first.

    Args:
        reported: percentage, such as 38.
        model: as `mfu`; the other arguments too.
        cluster: as `mfu`.
        gpus: as `mfu`.
        tokens_per_s: as `mfu`.
        tokens_per_s_per_gpu: as `mfu`.
        step_time_s: as `mfu`.
        global_batch_size: as `mfu`.
        seq_length: as `mfu`.
        precision: as `mfu`.
        peak_flops_per_s: as `mfu`.
        recompute: as `mfu`.
        tp: as `mfu`.

    Returns:
        One line a match within 3 %; empty when nothing explains it. At 1 % and below the last
        line says that a percentage is meant.

    Raises:
        UserInputError: as `mfu`.
    """
    found = _utilization(
        model, cluster, gpus, seq_length, precision, peak_flops_per_s, recompute, tp, reported,
        tokens_per_s=tokens_per_s, tokens_per_s_per_gpu=tokens_per_s_per_gpu,
        step_time_s=step_time_s, global_batch_size=global_batch_size,
    )  # fmt: skip
    return [*found["explanations"], *([found["remark"]] if "remark" in found else [])]


def read_file(
    path: str | Path, *, gpus: int | None = None, vocab_size: int | None = None, row: int = 1
) -> Imported:
    """Return what a config or launch script of another tool holds, as `vtrain import` does.

    Args:
        path: the file.
        gpus: GPUs, for files that leave that to the launcher.
        vocab_size: vocabulary, for files that leave that to the tokenizer.
        row: which design of a file with several budgets, from 1.

    Raises:
        UserInputError: a file of no known format, or one that contradicts itself.
    """
    from vtrain.formats import read_any

    named("path", path)
    return read_any(
        path, gpus=optional_whole("gpus", gpus),
        vocab_size=optional_whole("vocab_size", vocab_size), row=whole("row", row),
    )  # fmt: skip


def export(
    design: Design | str | Path,
    format: str,
    *,
    cluster: str | None = None,
    stack: str | None = None,
    gpus: int | None = None,
    vocab_size: int | None = None,
    row: int = 1,
) -> str:
    """Return a design as the text of a megatron, torchtitan, deepspeed, hf or slurm file.

    Args:
        design: a Design, or a file that `vtrain import` reads a whole one from.
        format: what to write.
        cluster: where it runs, for files that do not say.
        stack: training software, for files that do not say.
        gpus: as `read_file`; the rest too.
        vocab_size: as `read_file`.
        row: as `read_file`.

    Raises:
        UserInputError: an unknown format, or a file that lacks part of a design.
    """
    from vtrain.design import Design
    from vtrain.formats import export as write

    named("design", design, Design)
    if isinstance(design, str | Path):
        found = read_file(design, gpus=gpus, vocab_size=vocab_size, row=row)
        design = found.design(cluster=cluster, stack=stack)
    return write(design, format)


def _utilization(
    model: Model,
    cluster: str | Path | Cluster,
    gpus: int,
    seq_length: int | None,
    precision: str,
    peak_flops_per_s: float | None,
    recompute: str,
    tp: int,
    reported: float | None,
    **throughput: Any,
) -> dict[str, Any]:
    """Return the document of `vtrain mfu --json`."""
    from vtrain.mfu import Work
    from vtrain.mfu_document import dense_peak, mfu_document

    setting = make_setting(model, cluster, DEFAULT_STACK, seq_length, None)
    gpus, tp = whole("gpus", gpus), whole("tp", tp)
    one_of("precision", precision, PRECISIONS)
    one_of("recompute", recompute, RECOMPUTE)
    own_peak = positive("peak_flops_per_s", peak_flops_per_s)
    work = Work(architecture=setting.architecture, seq_length=setting.seq_length, tp=tp,
                recompute=recompute)  # fmt: skip
    return mfu_document(
        work, model=str(model) if isinstance(model, str | Path) else "model",
        label=reference(cluster), gpus=gpus,
        tokens_per_s=_tokens_per_s(gpus, setting.seq_length, **throughput), precision=precision,
        peak_flops_per_s=own_peak or dense_peak(setting.cluster, precision),
        reported=positive("reported", reported),
    )  # fmt: skip


def _tokens_per_s(
    gpus: int, seq_length: int, *, tokens_per_s: float | None,
    tokens_per_s_per_gpu: float | None, step_time_s: float | None,
    global_batch_size: int | None,
) -> float:  # fmt: skip
    """Return tokens a second of all GPUs from the one throughput that is given.

    Raises:
        UserInputError: none or several are given, or a step that takes no time.
    """
    given = [value is not None for value in (tokens_per_s, tokens_per_s_per_gpu, step_time_s)]
    if sum(given) != 1 or (step_time_s is None) != (global_batch_size is None):
        raise UserInputError(
            "one throughput is needed",
            hint="tokens_per_s, tokens_per_s_per_gpu, or step_time_s with global_batch_size",
        )
    step_s = positive("step_time_s", step_time_s)
    if step_s is not None:
        return whole("global_batch_size", global_batch_size) * seq_length / step_s
    total = positive("tokens_per_s", tokens_per_s)
    each = positive("tokens_per_s_per_gpu", tokens_per_s_per_gpu)
    return total if total is not None else (each or 0.0) * gpus
