"""Devices, clusters and rank placement: what the physics functions know of the hardware.

Values only; they are read from TOML by `vtrain.presets`. Constants of the latency models sit
here too, because they are properties of a device; the formulas that use them are in
`vtrain.latency`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def _require(condition: bool, rule: str, value: object) -> None:
    if not condition:
        raise UserInputError(f"{rule}, but got {value!r}")


def _positive(owner: object, *, may_be_zero: tuple[str, ...] = ()) -> None:
    """Refuse a numeric field that is not finite and positive (zero only where named)."""
    for item in fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, item.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low = value >= 0 if item.name in may_be_zero else value > 0
        name = f"{type(owner).__name__}.{item.name}"
        _require(bool(low and np.isfinite(value)), f"{name} must be finite and positive", value)


@dataclass(frozen=True, kw_only=True, slots=True)
class TileConstants:
    """Constants of the tile / wave matrix-multiply model (`latency.gemm_tiles`)."""

    efficiency: float
    """Share of the dense peak that a large tile reaches with every SM busy."""
    half_edge: float
    """Harmonic tile edge at which a tile runs at half of that."""
    depth_overhead: float
    """Prologue and epilogue of one tile, as extra steps of k."""
    hbm_fraction: float
    """Share of the HBM bandwidth a memory-bound kernel reaches."""
    floor_s: float
    """Seconds of an empty kernel."""
    blend: float
    """p of the p-norm that joins compute time and memory time."""
    quantised: float
    """1: the last wave costs a whole wave; 0: waves are fractional."""
    split_s: float = 1.5e-6
    """Extra seconds of the reduction when k is split."""

    def __post_init__(self) -> None:
        """Refuse values no kernel can have."""
        _positive(self, may_be_zero=("depth_overhead", "quantised", "half_edge", "split_s"))
        _require(self.efficiency <= 1.2, "TileConstants.efficiency must be <= 1.2", self.efficiency)
        _require(self.quantised <= 1, "TileConstants.quantised must be <= 1", self.quantised)


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmConstants:
    """Constants of matrix multiplication in one precision (`latency.gemm`)."""

    efficiency: float
    """Share of the dense peak approached by large m, n and k in a short kernel."""
    half_m: float
    """m at which half of it is reached (likewise n and k)."""
    half_n: float
    half_k: float
    hbm_fraction: float
    """Share of the HBM bandwidth a memory-bound kernel reaches."""
    floor_s: float
    """Seconds of an empty kernel, replayed from a graph (host launch cost is the stack's)."""
    sustained: float = 1.0
    """Compute rate inside a long training step over the rate of isolated kernels: power limits
    push it below 1; a table measured on a slow software stack pushes it above."""
    quantise_n: float = 0.0
    """Quantising the input costs as much as this many more output columns (8 bits and below)."""
    weight_gradient: float = 1.05
    """Time of the weight gradient (fp32 accumulation into the output) over the forward's."""
    tile: TileConstants | None = None
    """Constants of the finer model, where the tables allow a fit."""

    def __post_init__(self) -> None:
        """Refuse values no kernel can have."""
        _positive(self, may_be_zero=("half_m", "half_n", "half_k", "quantise_n"))
        _require(self.efficiency <= 1.2, "GemmConstants.efficiency must be <= 1.2", self.efficiency)
        _require(
            self.hbm_fraction <= 1, "GemmConstants.hbm_fraction must be <= 1", self.hbm_fraction
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionConstants:
    """Constants of one generation of fused attention kernels (`latency.attention`)."""

    forward_efficiency: float
    """Share of the dense peak approached by long sequences, causal work counted at half."""
    forward_half_seq: float
    """Sequence length at which half of it is reached."""
    backward_efficiency: float
    """The same for backward, its work counted as 2.5 forwards."""
    backward_half_seq: float
    head_dim_64_factor: float = 0.85
    """Rate at head dimension 64 over the rate at 128."""
    tail_waves: float = 1.0
    """Waves lost at the end of a kernel: work spread over S SMs takes work/S plus this many
    blocks (Graham's bound has one)."""
    block_rows: float = 128.0
    """Query rows of one thread block."""
    sm_count: float
    """Blocks that run at a time."""
    floor_s: float = 5e-6
    """Seconds of an empty kernel."""

    def __post_init__(self) -> None:
        """Refuse values no kernel can have."""
        _positive(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBoundConstants:
    """Share of HBM bandwidth reached by each class of memory-bound kernel, on minimum traffic.

    "fused" is one hand-written or generated kernel, "eager" the stock framework operators.
    """

    floor_s: float
    """Seconds of an empty kernel."""
    norm_forward_fused: float
    norm_backward_fused: float
    norm_forward_eager: float
    norm_backward_eager: float
    activation_fused: float
    activation_eager: float
    rotary: float
    bias_dropout_residual: float
    softmax: float
    optimizer: float
    embedding: float
    cross_entropy: float
    cast: float
    """Plain copies, casts, gradient accumulation."""

    def __post_init__(self) -> None:
        """Refuse shares outside (0, 1]."""
        _positive(self)
        for item in fields(self):
            if item.name != "floor_s":
                value = getattr(self, item.name)
                _require(value <= 1, f"MemoryBoundConstants.{item.name} must be <= 1", value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator: datasheet values and the constants fitted for it."""

    name: str
    arch: str
    memory_bytes: float
    """Memory a framework sees as the card's total."""
    hbm_bytes_per_s: float
    l2_bytes: float
    sm_count: int
    tdp_w: float
    peak_flops: Mapping[str, float]
    """Dense FLOP/s by precision: bf16, fp16, fp8, fp4 where the device has them."""
    gemm: Mapping[str, GemmConstants]
    attention: Mapping[str, AttentionConstants]
    """By generation: flash1, flash2, flash3 (= newest, cuDNN class)."""
    memory_bound: MemoryBoundConstants
    best_measured_mfu: float = 1.0
    """Highest utilisation published for a training run on it (16-bit, attention at full s^2); 1
    where none is known. A prediction above it is beyond experience."""
    sources: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Where each value comes from, by dotted field name."""

    def __post_init__(self) -> None:
        """Refuse a device whose parts contradict each other."""
        _positive(self)
        for precision, peak in self.peak_flops.items():
            _require(peak > 0, f"{self.name}: peak_flops.{precision} must be positive", peak)
        for precision in self.gemm:
            _require(
                precision in self.peak_flops,
                f"{self.name}: gemm.{precision} needs a peak_flops of that precision",
                sorted(self.peak_flops),
            )
        for generation in self.attention:
            _require(
                generation in ("flash1", "flash2", "flash3"),
                f"{self.name}: attention generation must be flash1, flash2 or flash3",
                generation,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveTerms:
    """T = a0 + a1 (n - 1) + w / B + c sqrt(w) of one operation on n ranks of one NVLink domain.

    w is the bus traffic: message bytes times 2 (n - 1) / n for all-reduce, (n - 1) / n for
    gather, scatter and all-to-all, 1 for send/receive.
    """

    a0_s: float
    a1_s: float
    bandwidth_bytes_per_s: float
    sqrt_s_per_sqrt_byte: float
    bandwidth_by_ranks: tuple[float, ...] = ()
    """B of 2, 3, 4, ... ranks where the algorithm or the wiring depends on the count; larger
    groups take the last."""

    def __post_init__(self) -> None:
        """Refuse negative terms."""
        _positive(self, may_be_zero=("a0_s", "a1_s", "sqrt_s_per_sqrt_byte"))
        _require(
            all(value > 0 for value in self.bandwidth_by_ranks),
            "CollectiveTerms.bandwidth_by_ranks must be positive",
            self.bandwidth_by_ranks,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveFit:
    """Terms of every operation inside one NVLink domain."""

    terms: Mapping[str, CollectiveTerms]

    def __post_init__(self) -> None:
        """Refuse a fit that lacks an operation."""
        missing = sorted(set(COLLECTIVES) - set(self.terms))
        _require(not missing, "CollectiveFit must have every operation; missing", missing)


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkFit:
    """T = L log2(N) + w / B + (s0 + s1 log2(N)) sqrt(w / B) of an all-reduce over N domains.

    B = min(nvlink, nic_efficiency x NIC x ranks in a domain): a ring enters and leaves each domain
    once for every NIC that its ranks own.
    """

    hop_s: float
    """Latency of one doubling of the domain count (all-reduce; gather and scatter take half)."""
    sqrt_s: float
    """s0 in sqrt(seconds)."""
    sqrt_hop_s: float
    """s1 in sqrt(seconds)."""
    nic_efficiency: float
    """Share of the NIC line rate that a collective reaches."""
    nvlink_bytes_per_s: float
    """Bus bandwidth of the intra-domain part of a multi-domain ring."""
    send_floor_s: float
    """Latency of a send/receive through the NIC."""
    send_efficiency: float
    """Share of the NIC line rate that one send/receive reaches."""
    all_to_all_efficiency: float
    """Share of the NIC line rate that all-to-all reaches."""

    def __post_init__(self) -> None:
        """Refuse negative terms."""
        _positive(self, may_be_zero=("sqrt_s", "sqrt_hop_s"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Devices of one kind, the links between them, and how many there are."""

    name: str
    device: Device
    gpus_per_node: int
    nvlink_domain: int
    """GPUs that share NVLink: a node on HGX boards, a rack on NVL72."""
    nics_per_node: int
    nic_bytes_per_s: float
    """Network bandwidth one way, the share of one GPU."""
    max_gpus: int
    intra: CollectiveFit
    inter: NetworkFit
    sources: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Where each value comes from, by dotted field name."""

    def __post_init__(self) -> None:
        """Refuse counts that contradict each other."""
        _positive(self)
        _require(
            self.max_gpus >= self.gpus_per_node,
            f"{self.name}: max_gpus must be at least gpus_per_node={self.gpus_per_node}",
            self.max_gpus,
        )


def group_span(
    cluster: Cluster, size: ArrayLike, stride: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How a communication group lies across NVLink domains.

    Ranks are laid out tensor, context, (expert), data, pipeline, the innermost first; a group is
    `size` ranks at distance `stride` (tp: 1; cp: tp; dp: tp cp; pp: tp cp dp).

    A domain of one node is always full: where groups do not tile it, the answer is that of the
    group that straddles most nodes, since every rank waits for it. A domain of many nodes (a
    rack) need not be: schedulers take from each rack as many nodes as whole groups need, 64 of
    72 GPUs for powers of two (Slurm's topology/block plugin and its `--segment`).

    Args:
        cluster: gives the domain size.
        size: ranks in a group, any shape.
        stride: distance between neighbours, broadcast against `size`.

    Returns:
        Ranks that share a domain (at least 1; the mean over the domains where uneven), and the
        number of domains spanned, both float64 of the broadcast shape.
    """
    domain = cluster.nvlink_domain
    size_f = np.asarray(size, dtype=np.float64)
    stride_f = np.asarray(stride, dtype=np.float64)
    if domain > cluster.gpus_per_node:
        domains = np.ceil(size_f / np.maximum(np.floor(domain / stride_f), 1.0))
        return size_f / domains, domains
    block = size_f * stride_f
    # Blocks start at the multiples of gcd(block, domain) inside a domain, and a block's groups at
    # its first `stride` ranks; the last start straddles most. The gcd depends on block mod domain
    # only, so a small table serves.
    steps = np.gcd(np.arange(domain), domain).astype(np.float64)
    step = steps[(block - np.floor(block / domain) * domain).astype(np.intp)]
    domains = np.floor((block - 1.0 - np.maximum(step, stride_f)) / domain) + 2.0
    domains = np.where(stride_f >= domain, size_f, domains)
    return size_f / domains, domains


def nic_sharers(cluster: Cluster, ranks_in_domain: ArrayLike) -> NDArray[np.float64]:
    """How many sibling groups use a node's NICs at the same time (at least 1).

    Args:
        cluster: gives the node size.
        ranks_in_domain: first result of `group_span`.
    """
    ranks = np.asarray(ranks_in_domain, dtype=np.float64)
    return np.maximum(cluster.gpus_per_node / ranks, 1.0)
