"""Model FLOPs utilisation in the dialects people compare, with the formula behind each.

Symbols: L layers, h width, q = heads x head size, k = key-value heads x head size, f feed-forward
width, g matrices of the MLP (2, gated 3), V vocabulary, V' padded vocabulary, s sequence length,
N parameters. All formulas give FLOPs of forward and backward for one token; a multiply-add is 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain.architecture import padded_vocab_size
from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from vtrain.architecture import Architecture

A100_PEAK_FLOPS_PER_S = 312e12
"""Dense bf16 peak of an A100 (NVIDIA A100 datasheet), which nanoGPT divides by on every GPU."""
SPARSE_OVER_DENSE = 2.0
"""Peak with 2:4 sparsity over dense peak (NVIDIA A100 and H100 datasheets)."""
MATCH = 0.03
"""Relative gap within which a reported value counts as explained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is counted: a model, its sequences, and how it is run.

    Attributes:
        architecture: the model.
        seq_length: tokens of one sequence.
        tp: tensor-parallel degree; it widens Megatron's padded vocabulary.
        recompute: none, selective (the attention core) or full (every layer).
    """

    architecture: Architecture
    seq_length: int
    tp: int = 1
    recompute: str = "none"

    @property
    def attention_flops(self) -> float:
        """4 s q L: scores and values of the forward pass, per token, mask not exploited."""
        a = self.architecture
        return 4.0 * self.seq_length * a.query_size * a.num_layers


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One way of counting.

    Attributes:
        name: short name.
        count: FLOPs of one token, forward and backward.
        formula: the same in symbols.
        source: where it is from.
        fixed_peak_flops_per_s: peak the tool divides by whatever the GPU; 0 for the real one.
    """

    name: str
    count: Callable[[Work], float]
    formula: str
    source: str
    fixed_peak_flops_per_s: float = 0.0


def _vtrain(causal: bool) -> Callable[[Work], float]:
    return lambda w: w.architecture.training_flops_per_token(w.seq_length, causal=causal)


def _megatron(attention: float) -> Callable[[Work], float]:
    def count(w: Work) -> float:
        a = w.architecture
        matrices = a.matmul_parameters_per_layer * a.num_layers
        head = padded_vocab_size(a.vocab_size, w.tp) * a.hidden_size
        return 6.0 * (matrices + head) + 3.0 * attention * w.attention_flops

    return count


def _by_parameters(
    parameters: Callable[[Architecture], int], attention: float
) -> Callable[[Work], float]:
    return lambda w: 6.0 * parameters(w.architecture) + 3.0 * attention * w.attention_flops


def _all_parameters(a: Architecture) -> int:
    return a.parameters


def _without_positions(a: Architecture) -> int:
    return a.parameters - a.max_positions * a.hidden_size


def _without_token_table(a: Architecture) -> int:
    # torchtitan sums the children that are nn.Embedding and takes them off; tied weights are one
    # tensor, so the head goes with them.
    return a.parameters - a.vocab_size * a.hidden_size


def _hardware(w: Work) -> float:
    """Count the recomputed forward work on top; the attention kernel's own is left out."""
    a = w.architecture
    again = {
        "none": 0.0,
        "selective": w.attention_flops,
        "full": 2.0 * a.matmul_parameters_per_layer * a.num_layers + w.attention_flops,
    }
    if w.recompute not in again:
        raise UserInputError(
            f"recompute={w.recompute!r} is not known", hint="none, selective or full"
        )
    return a.training_flops_per_token(w.seq_length) + again[w.recompute]


_MEGATRON_FILE = "NVIDIA/Megatron-LM megatron/training/training.py num_floating_point_operations"
DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="vtrain",
        count=_vtrain(causal=False),
        formula="3 x (2 (L (h (2q + 2k) + g h f) + V h) + 4 s q L)",
        source="Narayanan et al. 2021, arXiv 2104.04473, appendix; grouped heads and gated MLPs",
    ),
    Dialect(
        name="vtrain-causal",
        count=_vtrain(causal=True),
        formula="the same with 2 s q L: the half of the scores that the mask keeps",
        source="as vtrain",
    ),
    Dialect(
        name="megatron-full",
        count=_megatron(1.0),
        formula="6 (L (h (2q + 2k) + g h f) + V' h) + 12 s q L",
        source=f"{_MEGATRON_FILE}, releases before 2025",
    ),
    Dialect(
        name="megatron",
        count=_megatron(0.5),
        formula="6 (L (h (2q + 2k) + g h f) + V' h) + 6 s q L",
        source=f"{_MEGATRON_FILE}, since it counts the causal half",
    ),
    Dialect(
        name="palm",
        count=_by_parameters(_all_parameters, 1.0),
        formula="6 N + 12 L q s",
        source="Chowdhery et al. 2022, arXiv 2204.02311, appendix B",
    ),
    Dialect(
        name="palm-causal",
        count=_by_parameters(_all_parameters, 0.5),
        formula="6 N + 6 L q s",
        source="as palm, attention at the causal half",
    ),
    Dialect(
        name="nanogpt",
        count=_by_parameters(_without_positions, 1.0),
        formula="6 (N - position table) + 12 L q s, over 312e12 whatever the GPU",
        source="karpathy/nanoGPT model.py estimate_mfu (issue 464: 104 % on an H100)",
        fixed_peak_flops_per_s=A100_PEAK_FLOPS_PER_S,
    ),
    Dialect(
        name="torchtitan",
        count=_by_parameters(_without_token_table, 1.0),
        formula="6 (N - token table) + 12 L q s",
        source="pytorch/torchtitan models/utils.py get_dense_model_nparams_and_flops",
    ),
    Dialect(
        name="hfu",
        count=_hardware,
        formula="vtrain + recomputed forward: full 2 L (h (2q + 2k) + g h f) + 4 s q L, "
        "selective 4 s q L",
        source="Korthikanti et al. 2022, arXiv 2205.05198, appendix A",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Utilization:
    """One dialect's verdict on a measured or predicted throughput.

    Attributes:
        dialect: how it is counted.
        flops_per_token: FLOPs of forward and backward for one token.
        value: share of the dense peak; above 1 is impossible.
        warning: why the value cannot be, with the arithmetic; empty when it can.
    """

    dialect: Dialect
    flops_per_token: float
    value: float
    warning: str


def utilizations(
    work: Work, *, tokens_per_s: float, gpus: int, peak_flops_per_s: float
) -> list[Utilization]:
    """Return the utilisation in every dialect.

    Args:
        work: model, sequence length, recomputation.
        tokens_per_s: tokens of all GPUs together in one second.
        gpus: how many they are.
        peak_flops_per_s: dense peak of one GPU in the precision of the matrix multiplications.

    Raises:
        UserInputError: when a number is not positive.
    """
    for name, value in (
        ("tokens_per_s", tokens_per_s),
        ("gpus", gpus),
        ("peak_flops_per_s", peak_flops_per_s),
    ):
        if not 0 < value < float("inf"):
            raise UserInputError(f"{name} must be finite and positive, got {value}")
    rows = []
    for dialect in DIALECTS:
        flops = dialect.count(work)
        peak = dialect.fixed_peak_flops_per_s or peak_flops_per_s
        value = tokens_per_s * flops / (gpus * peak)
        warning = ""
        if value > 1:
            warning = (
                f"{value:.1%} is impossible: {tokens_per_s:.4g} tokens/s x {flops:.4g} FLOPs/token "
                f"/ ({gpus} GPUs x {peak:.4g} FLOP/s) = {value:.3f}"
            )
            if dialect.fixed_peak_flops_per_s:
                warning += f"; over this GPU's own peak {value * peak / peak_flops_per_s:.1%}"
            else:
                warning += "; check the peak, the GPU count, and whose tokens are counted"
        rows.append(
            Utilization(dialect=dialect, flops_per_token=flops, value=value, warning=warning)
        )
    return rows


def explanations(
    reported: float,
    work: Work,
    *,
    tokens_per_s: float,
    gpus: int,
    peaks_flops_per_s: dict[str, float],
) -> list[str]:
    """Say which count and which peak give a utilisation that someone reported.

    Args:
        reported: share, for example 0.38.
        work: model, sequence length, recomputation.
        tokens_per_s: tokens of all GPUs together in one second.
        gpus: how many they are.
        peaks_flops_per_s: dense peaks by name; the sparse peak of each is tried too.

    Returns:
        One line a match within 3 %, the nearest first; empty when nothing explains it.
    """
    found: list[tuple[float, str]] = []
    for label, dense in peaks_flops_per_s.items():
        for kind, peak in (("dense", dense), ("sparse", SPARSE_OVER_DENSE * dense)):
            for dialect in DIALECTS:
                value = tokens_per_s * dialect.count(work) / (gpus * peak)
                gap = abs(value / reported - 1)
                if gap <= MATCH:
                    line = f"{dialect.name} over the {kind} peak of {label} ({peak:.4g}): "
                    found.append((gap, line + f"{value:.1%}"))
    return [line for _, line in sorted(found)]
