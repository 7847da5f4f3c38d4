"""`python -m vtrain.validation.refit RUNS.csv...`: stack constants that only runs can tell.

Each is one number, fitted by a heavy-tailed fit to the logarithm of step time over the sources
named in `CONSTANTS`, once on all of them and once without each. The answers go by hand into the
`[fitted]` tables of the stack files; `vtrain validate` uses the value without the source it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from vtrain.validation.predict import batches, predicted_seconds
from vtrain.validation.runs import MeasuredRun, read_runs
from vtrain.validation.setup import Setup, setup_or_reason
from vtrain.validation.stacks import StackKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A stack field and the rows that may tell it.

    Attributes:
        field: name of the field.
        start: value the search starts from.
        sources: run sources, "prefix" or "prefix/GPU".
        stacks: names of the stacks whose rows count.
        least_seq_length: rows with shorter sequences do not count.
    """

    field: str
    start: float
    sources: tuple[str, ...]
    stacks: tuple[str, ...]
    least_seq_length: int = 0


_CORE = ("megatron-core-2025",)
_UNFUSED = ("megatron-lm-2022", "megatron-deepspeed-2022")
CONSTANTS = (
    Constant(
        field="power_relief", start=1.05, sources=("dgxc", "nemo", "mbridge", "mlperf"),
        stacks=_CORE,
    ),
    Constant(
        field="score_traffic", start=1.6,
        sources=("vtrain_multi", "seqsel22"), stacks=_UNFUSED,
    ),
    Constant(
        field="attention_rate", start=1.0, sources=("mpt/A100-SXM",), stacks=("fsdp-2023",),
        # Attention is most of a step only where sequences are long.
        least_seq_length=16_384,
    ),
    Constant(
        field="checkpoint_bytes_per_s", start=7e9, sources=("paper",),
        stacks=("deepspeed-pipeline-2022",),
    ),
)  # fmt: skip

RESIDUAL_LOG_SD = 0.05
"""Scale of the t distribution: repeats of one plan differ by 2 to 6 % on the published sets."""

_STEPS = 15
_DELTA = 1e-3
_FREEDOM = 2.0
# MT-NLG's section 2.4 does not print the micro-batch; at 2 its three steps agree on one rate.
_MT_NLG_MICRO_BATCH = 2.0


def fit_constant(constant: Constant, rows: Sequence[tuple[MeasuredRun, Setup]]) -> float:
    """Return the value of a stack field under which the rows are predicted best.

    Args:
        constant: the field and where the search starts.
        rows: measured rows and their setups; at least one.
    """
    target = np.log([run.iteration_s or np.nan for run, _ in rows])

    def predicted(value: float) -> Array:
        setups = [_with_value(setup, constant.field, value) for _, setup in rows]
        return np.log(predicted_seconds(batches(setups), len(setups)))

    value = constant.start
    for _ in range(_STEPS):
        now = predicted(value)
        slope = (predicted(value * (1.0 + _DELTA)) - now) / _DELTA
        scaled = (target - now) / RESIDUAL_LOG_SD
        weight = (_FREEDOM + 1.0) / (_FREEDOM + scaled**2)
        curvature = float(weight @ slope**2)
        if curvature <= 0.0:
            break
        step = float(np.clip((weight * slope) @ (target - now) / curvature, -0.2, 0.2))
        value *= np.exp(step)
        if abs(step) < 1e-4:
            break
    return float(value)


def usable_rows(runs: Sequence[MeasuredRun]) -> list[tuple[MeasuredRun, Setup]]:
    """Return the rows that have a setup; MT-NLG's with the micro-batch they lack."""
    out = []
    for run in runs:
        stated = run
        if run.source == "paper" and run.model_name == "mt-nlg-530b":
            stated = replace(run, micro_batch=_MT_NLG_MICRO_BATCH, vpp=1.0, cp=1.0)
        answer = setup_or_reason(stated)
        if isinstance(answer, Setup):
            out.append((stated, answer))
    return out


def rows_of(
    constant: Constant, rows: Sequence[tuple[MeasuredRun, Setup]], *, without: str = ""
) -> list[tuple[MeasuredRun, Setup]]:
    """Return the rows that may tell a constant, without one source."""
    sources = set(constant.sources) - {without}
    return [
        (run, setup)
        for run, setup in rows
        if setup.stack.name in constant.stacks
        and {run.source, f"{run.source}/{run.gpu}"} & sources
        and setup.seq_length >= constant.least_seq_length
    ]


def _with_value(setup: Setup, field: str, value: float) -> Setup:
    overrides: dict[str, Any] = dict(setup.stack.overrides)
    overrides[field] = value
    return replace(setup, stack=StackKey(setup.stack.name, tuple(sorted(overrides.items()))))


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def refit(files: tuple[Path, ...]) -> None:
    """Print every run-fitted constant, on all its sources and without each."""
    rows = usable_rows([run for path in files for run in read_runs(path)])
    for constant in CONSTANTS:
        for left_out in ("", *(constant.sources if len(constant.sources) > 1 else ())):
            chosen = rows_of(constant, rows, without=left_out)
            if chosen:
                value = fit_constant(constant, chosen)
                label = f"without {left_out}" if left_out else "all"
                click.echo(f"{constant.field:24} {label:26} {value:.4g}  ({len(chosen)} rows)")


if __name__ == "__main__":
    refit()
