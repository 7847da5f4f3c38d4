"""`vtrain mfu`: one throughput in the dialects people compare."""

from __future__ import annotations

from typing import Any

import rich_click as click


@click.command("mfu")
@click.option(
    "--model",
    required=True,
    metavar="NAME|FILE",
    help="A shipped model, or any file with a model that `vtrain import` reads.",
)
@click.option(
    "--cluster",
    default="h100-sxm-80g",
    show_default=True,
    metavar="NAME|FILE",
    help="Its GPU gives the peak.",
)
@click.option(
    "--gpus",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="GPUs that share the throughput.",
)
@click.option(
    "--seq",
    "seq_length",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Sequence length; the model file's own.",
)
@click.option("--tokens-per-second", type=float, metavar="X", help="Of all GPUs together.")
@click.option("--tokens-per-second-per-gpu", type=float, metavar="X", help="Of one GPU.")
@click.option("--step-time", type=float, metavar="SECONDS", help="With --global-batch.")
@click.option(
    "--global-batch", type=click.IntRange(min=1), metavar="SEQUENCES", help="Sequences of one step."
)
@click.option(
    "--precision",
    type=click.Choice(["bf16", "fp16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Whose dense peak counts.",
)
@click.option(
    "--peak",
    "peak_flops_per_s",
    type=float,
    metavar="FLOP/S",
    help="Dense peak of one GPU; the cluster's own.",
)
@click.option(
    "--recompute",
    type=click.Choice(["none", "selective", "full"]),
    default="none",
    show_default=True,
    help="Counted by HFU only.",
)
@click.option(
    "--tp",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Tensor-parallel degree (pads Megatron's vocabulary).",
)
@click.option(
    "--reported",
    type=float,
    metavar="PERCENT",
    help="A utilisation someone reported: says which count and peak give it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def mfu_command(as_json: bool, reported: float | None, **options: Any) -> None:  # fmt: skip
    """Utilisation of one throughput in every dialect, with its formula.

    Values above 100 % are flagged with the arithmetic: a sparse or foreign peak, a wrong GPU
    count, or tokens of one GPU taken for those of all.
    """
    import json

    document = _document(reported, options)
    click.echo(json.dumps(document, indent=2) if as_json else _text(document))


def _document(reported: float | None, options: dict[str, Any]) -> dict[str, Any]:
    from vtrain.errors import UserInputError
    from vtrain.formats.reading import load_architecture
    from vtrain.mfu import Work
    from vtrain.mfu_document import dense_peak, mfu_document
    from vtrain.presets import load_cluster

    architecture, own_length = load_architecture(options["model"])
    seq_length = options["seq_length"] or own_length
    if seq_length is None:
        raise UserInputError(f"{options['model']} does not say its sequence length",
                             hint="pass --seq TOKENS")  # fmt: skip
    work = Work(architecture=architecture, seq_length=seq_length, tp=options["tp"],
                recompute=options["recompute"])  # fmt: skip
    cluster = load_cluster(options["cluster"])
    peak = options["peak_flops_per_s"]
    if peak is None:
        peak = dense_peak(cluster, options["precision"])
    return mfu_document(
        work, model=options["model"], label=options["cluster"], gpus=options["gpus"],
        tokens_per_s=_tokens_per_s(options, seq_length), precision=options["precision"],
        peak_flops_per_s=peak, reported=reported,
    )  # fmt: skip


def _tokens_per_s(options: dict[str, Any], seq_length: int) -> float:
    from vtrain.errors import UserInputError

    total, each = options["tokens_per_second"], options["tokens_per_second_per_gpu"]
    step, batch = options["step_time"], options["global_batch"]
    given = [total is not None, each is not None, step is not None]
    if sum(given) != 1 or (step is None) != (batch is None):
        raise UserInputError(
            "one throughput is needed",
            hint="--tokens-per-second, --tokens-per-second-per-gpu, or --step-time with "
            "--global-batch",
        )
    if step is not None and not step > 0:
        raise UserInputError(f"--step-time must be positive, got {step}")
    if step is not None:
        return float(batch * seq_length / step)
    return float(total if total is not None else each * options["gpus"])


def _text(document: dict[str, Any]) -> str:
    """Return the table for people."""
    lines = [
        f"{document['model']}: {document['parameters']:,} parameters, sequence "
        f"{document['seq_length']}, {document['tokens_per_s']:.6g} tokens/s on "
        f"{document['gpus']} GPUs of {document['peak_flops_per_s']:.4g} dense "
        f"{document['precision']} FLOP/s",
        "",
        f"{'dialect':<14} {'MFU':>7} {'FLOPs/token':>12}  formula",
    ]
    lines += [
        f"{row['dialect']:<14} {row['utilization']:>7.1%} {row['flops_per_token']:>12.5g}  "
        f"{row['formula']}"
        for row in document["rows"]
    ]
    lines += [
        "",
        "L layers, h width, q query width, k key width, f feed-forward width, g MLP matrices,",
        "V vocabulary (V' padded), s sequence, N parameters; forward and backward of one token.",
    ]
    lines += [
        f"warning: {row['dialect']}: {row['warning']}" for row in document["rows"] if row["warning"]
    ]
    if "reported" in document:
        reasons = document["explanations"] or ["no known count and peak give it within 3 %"]
        value = document["reported"]
        shown = f"{value:.1%}" if value > 0.01 else f"{value:.2%}"
        lines += ["", f"reported {shown}:", *(f"  {r}" for r in reasons)]
        if "remark" in document:
            lines.append(f"  {document['remark']}")
    return "\n".join(lines)
