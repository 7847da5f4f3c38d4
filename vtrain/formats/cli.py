"""`vtrain import` and `vtrain export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from vtrain.formats.writing import FORMATS

if TYPE_CHECKING:
    from vtrain.formats.imported import Imported


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="GPUs, for files that leave that to the launcher.",
)
@click.option(
    "--vocab",
    "vocab_size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Vocabulary, for files that leave that to the tokenizer.",
)
@click.option(
    "--row",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Which design of a file with several budgets.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def import_command(
    file: str, gpus: int | None, vocab_size: int | None, row: int, as_json: bool
) -> None:  # fmt: skip
    """Say what a config or launch script of another tool holds.

    Reads a Hugging Face config.json, Megatron-LM arguments (shell or YAML), a torchtitan TOML, a
    DeepSpeed JSON, and vtrain's own models and designs. Fields it does not know are listed.
    """
    import json

    from vtrain.formats.reading import read_any

    found = read_any(file, gpus=gpus, vocab_size=vocab_size, row=row)
    click.echo(json.dumps(found.document(), indent=2) if as_json else _text(found))


@click.command("export")
@click.argument("design", metavar="DESIGN")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), required=True, help="What to write."
)
@click.option("--out", metavar="FILE", help="Write here instead of stdout.")
@click.option(
    "--cluster", metavar="NAME|FILE", help="Where it runs; the design's own, where it says so."
)
@click.option("--stack", metavar="NAME|FILE", help="Training software; the design's own.")
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="GPUs, for files that leave that to the launcher.",
)
@click.option(
    "--vocab",
    "vocab_size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Vocabulary, for files that leave that to the tokenizer.",
)
@click.option(
    "--row",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Which design of a file with several budgets.",
)
def export_command(
    design: str, format_: str, out: str | None, cluster: str | None, stack: str | None,
    gpus: int | None, vocab_size: int | None, row: int,
) -> None:  # fmt: skip
    """Write a design as a launch script or config.

    DESIGN is a best.toml, a row of `vtrain-search --json`, or any file that `vtrain import` reads
    a whole design from. For --format hf, which carries no plan, a model by name or file will do.
    """
    from vtrain.files import write_text
    from vtrain.formats.context import other_software
    from vtrain.formats.reading import read_any
    from vtrain.formats.writing import export

    if format_ == "hf":
        text, losses = _model_text(design, stack, gpus=gpus, vocab_size=vocab_size, row=row)
    else:
        found = read_any(design, gpus=gpus, vocab_size=vocab_size, row=row)
        whole = found.design(cluster=cluster, stack=stack)
        text, losses = export(whole, format_), _losses(found, whole.stack)
        if (software := other_software(whole.stack, format_)) is not None:
            losses.append(software)
    for line in losses:
        click.echo(f"note: {line}", err=True)
    if out is None:
        click.echo(text, nl=False)
        return
    write_text(out, text)
    click.echo(f"wrote {out}", err=True)


def _model_text(
    name: str, stack: str | None, *, gpus: int | None, vocab_size: int | None, row: int
) -> tuple[str, list[str]]:
    """Return the config.json of a model and what it does not take over."""
    from vtrain.cli_options import DEFAULT_SEQ_LENGTH, DEFAULT_STACK
    from vtrain.formats.reading import load_model_file
    from vtrain.formats.writing import export_model
    from vtrain.presets import load_stack

    found = load_model_file(name, gpus=gpus, vocab_size=vocab_size, row=row)
    assert found.architecture is not None
    written = stack or found.stack.name or DEFAULT_STACK
    length = found.longest_sequence or found.seq_length
    losses = _losses(found, written)
    if length is None:
        length = DEFAULT_SEQ_LENGTH
        losses.append(f"the file names no sequence length: {length} is written")
    precision = load_stack(written).precision
    return export_model(found.architecture, seq_length=length, precision=precision), losses


def _losses(found: Imported, stack: str) -> list[str]:
    """Return what an export does not take over from the file it is made from."""
    from vtrain.presets import load_stack

    lines = list(found.notes)
    stated, written = found.stack.precision, load_stack(stack).precision
    if stated is not None and stated != written:
        lines.append(f"the file trains in {stated}, the export in {written}, as stack {stack} does")
    if found.unknown_fields:
        lines.append(f"not taken over: {', '.join(found.unknown_fields)}")
    return lines


def _text(found: Imported) -> str:
    """Return the import as lines for people."""
    lines = [f"{found.path}: {found.source}"]
    if (a := found.architecture) is not None:
        lines += [
            f"  model     {a.parameters:,} parameters ({a.parameters_non_embedding:,} without "
            "embeddings)",
            f"            {a.num_layers} layers, hidden {a.hidden_size}, {a.num_attention_heads} "
            f"heads of {a.head_dim} ({a.num_key_value_heads} key-value), ffn {a.ffn_hidden_size}"
            f"{' gated' if a.gated_mlp else ''}, vocabulary {a.vocab_size}"
            f"{' tied' if a.tied_embeddings else ''}",
            f"            {a.position} positions, {a.norm}",
        ]
    if (p := found.plan) is not None:
        lines += [
            f"  plan      {p.gpus} GPUs: tp {p.tp}, cp {p.cp}, pp {p.pp}, dp {p.dp}, "
            f"{p.virtual_stages} virtual stages, micro-batch {p.micro_batch_size}, global batch "
            f"{p.global_batch_size}",
            f"            recompute {p.recompute}, sharding {p.sharding}, sequence parallel "
            f"{'on' if p.sequence_parallel else 'off'}, schedule {p.schedule}",
        ]
    if found.seq_length is not None:
        tokens = "" if found.tokens is None else f", {found.tokens:,} training tokens"
        lines.append(f"  sequence  {found.seq_length} tokens{tokens}")
    hints = {"stack": found.stack.name, "precision": found.stack.precision, **found.stack.settings}
    stated = ", ".join(f"{key} {value}" for key, value in hints.items() if value is not None)
    if stated:
        lines.append(f"  software  {stated}")
    lines += [f"  note      {note}" for note in found.notes]
    lines.append(f"  ignored   {', '.join(found.ignored_fields) or 'nothing'} (no effect here)")
    lines.append(f"  unknown   {', '.join(found.unknown_fields) or 'nothing'}")
    return "\n".join(lines)
