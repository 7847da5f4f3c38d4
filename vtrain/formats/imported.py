"""What a foreign file turned out to hold."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pandas import DataFrame

    from vtrain.architecture import Architecture
    from vtrain.design import Design
    from vtrain.plan import Plan

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StackHints:
    """What a file says of the training software.

    Attributes:
        name: the shipped stack nearest to it; None where the file says nothing.
        precision: dtype of the matrix multiplications; None where the file says nothing.
        settings: further facts by name, for example `{"overlap_grad_reduce": "true"}`.
    """

    name: str | None = None
    precision: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """Everything read from one file, and everything that was not.

    Attributes:
        source: the format, for example "megatron".
        path: the file.
        architecture: the model; None where the format does not carry one.
        plan: the plan; None where the file lacks part of one (a note says which).
        seq_length: tokens of one training sequence; None where the file does not say.
        longest_sequence: tokens of the longest sequence the model is made for; None where the
            file does not say.
        tokens: training tokens; None where the file does not say.
        gpus: GPUs the file says it runs on; None where it does not say.
        cluster: name of the cluster; None where the file does not say.
        stack: what it says of the training software.
        unknown_fields: fields this reader does not know; none of them was used.
        ignored_fields: fields known to change neither parameters nor time nor memory.
        notes: what was assumed, defaulted or only partly understood, one line each.
    """

    source: str
    path: str
    architecture: Architecture | None = None
    plan: Plan | None = None
    seq_length: int | None = None
    longest_sequence: int | None = None
    tokens: int | None = None
    gpus: int | None = None
    cluster: str | None = None
    stack: StackHints = field(default_factory=StackHints)
    unknown_fields: tuple[str, ...] = ()
    ignored_fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return what `vtrain import --json` prints."""
        architecture = self.architecture
        plan = self.plan
        return {
            "schema_version": SCHEMA_VERSION,
            "source": self.source,
            "path": self.path,
            "architecture": None
            if architecture is None
            else {
                **asdict(architecture),
                "parameters": architecture.parameters,
                "parameters_non_embedding": architecture.parameters_non_embedding,
            },
            "plan": None if plan is None else {**asdict(plan), "gpus": plan.gpus},
            "seq_length": self.seq_length,
            "tokens": self.tokens,
            "gpus": self.gpus,
            "cluster": self.cluster,
            "stack": {**asdict(self.stack), "settings": dict(self.stack.settings)},
            "unknown_fields": list(self.unknown_fields),
            "ignored_fields": list(self.ignored_fields),
            "notes": list(self.notes),
        }

    @property
    def table(self) -> DataFrame:
        """Every size and setting that the file holds, one row each, under its part."""
        import pandas as pd

        document = self.document()
        parts = {
            "architecture": document["architecture"],
            "plan": document["plan"],
            "file": {k: document[k] for k in ("source", "seq_length", "tokens", "gpus", "cluster")},
            "stack": document["stack"],
            "left": {k: ", ".join(document[k]) or "nothing"
                     for k in ("unknown_fields", "ignored_fields", "notes")},
        }  # fmt: skip
        rows = [
            (part, field, value)
            for part, values in parts.items() for field, value in (values or {}).items()
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["part", "field", "value"]).set_index(["part", "field"])

    def _repr_html_(self) -> str:
        return str(self.table.to_html())

    def design(self, *, cluster: str | None = None, stack: str | None = None) -> Design:
        """Return the design of a file that holds a whole one.

        Args:
            cluster: where it runs, for files that do not say.
            stack: training software; the file's own hint when None.

        Raises:
            UserInputError: naming what is missing.
        """
        from vtrain.design import Design

        where = cluster or self.cluster
        if self.architecture is None or self.plan is None or self.seq_length is None:
            parts = {
                "a model": self.architecture,
                "a whole plan": self.plan,
                "a sequence length": self.seq_length,
            }
            lacks = ", ".join(name for name, value in parts.items() if value is None)
            raise UserInputError(
                f"{self.path} ({self.source}) lacks {lacks}, which a design needs",
                hint=self.notes[-1] if self.notes else "use a best.toml or a launch script",
            )
        if where is None:
            raise UserInputError(
                f"{self.path} ({self.source}) does not say which cluster it runs on",
                hint="pass --cluster NAME",
            )
        return Design(
            architecture=self.architecture,
            plan=self.plan,
            cluster=where,
            stack=stack or self.stack.name or "megatron-core-2025",
            seq_length=self.seq_length,
            tokens=self.tokens,
        )


def replicas(*, gpus: int, tp: int, pp: int, cp: int, label: str) -> int:
    """Return the data-parallel degree that a GPU count leaves.

    Raises:
        UserInputError: when tp x pp x cp does not divide the GPU count.
    """
    shards = tp * pp * cp
    if gpus % shards:
        near = max(1, round(gpus / shards)) * shards
        raise UserInputError(
            f"{label}: {gpus} GPUs are not a multiple of tp x pp x cp = {tp} x {pp} x {cp} = "
            f"{shards}",
            hint=f"nearest valid: {near} GPUs",
        )
    return gpus // shards


@contextmanager
def labelled(path: str) -> Iterator[None]:
    """Begin every error that does not name the file yet with its path."""
    try:
        yield
    except UserInputError as error:
        if error.message.startswith(path):
            raise
        raise UserInputError(f"{path}: {error.message}", hint=error.hint) from None
