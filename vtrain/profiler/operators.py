"""The operators that are measured, and how each is built in torch.

An operator is a row of one of the profile's tables. Building it returns a call that takes an
index: inputs rotate over enough buffers that a cache does not hold them all, and so do outputs
of the forward pass, which a training step keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.profiler.shapes import (
    SPACES,
    Space,
    activation_shapes,
    attention_shapes,
    gemm_shapes,
)

if TYPE_CHECKING:
    from vtrain.profiler.runtime import Runtime
    from vtrain.profiler.timing import Call

LAYOUTS = ("TN", "NN", "NT")
"""Forward, input gradient, weight gradient."""

DEFAULT_KERNEL = "sdpa"
KERNELS = {
    "cuda": ("flash_attention", "efficient_attention", "cudnn_attention", "math"),
    "cpu": ("flash_attention", "math"),
}
"""Kernels behind torch's attention, as `torch.nn.attention.SDPBackend` names them."""

KERNEL_SHAPES = 3

BUFFERS_MOST = 32
MEMORY_SHARE = 0.25
"""Share of the free memory that the rotating buffers of one operator may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One row to measure.

    Attributes:
        table: gemm, attention or elementwise.
        columns: what identifies the row, in the columns of that table.
        build: makes the call.
        flops: FLOPs of a call, 0 for memory-bound operators.
        traffic_bytes: least memory traffic of a call.
        host: what counts is the host's time, not the device's.
    """

    table: str
    columns: dict[str, Any]
    build: Callable[[Runtime], Call]
    flops: float = 0.0
    traffic_bytes: float = 0.0
    host: bool = False

    @property
    def label(self) -> str:
        """What a progress line calls it."""
        return f"{self.table} {' '.join(str(value) for value in self.columns.values())}"


def plan_operators(kind: str, element_bytes: float, gemms: int) -> list[Operator]:
    """Return what a profile of a device measures, in the order it is measured.

    The tables are interleaved, so that a run cut short has something of each.

    Args:
        kind: "cuda" or "cpu".
        element_bytes: bytes of an element.
        gemms: products in each of LAYOUTS.
    """
    from vtrain.profiler.launch import launch_operators
    from vtrain.profiler.pointwise import pointwise_operators

    space = SPACES[kind]
    lists = [
        launch_operators(),
        _gemms(space, gemms, element_bytes),
        _attentions(space, kind),
        pointwise_operators(space, activation_shapes(space), element_bytes),
    ]
    placed = [
        ((index + 0.5) / len(part), order, operator)
        for order, part in enumerate(lists)
        for index, operator in enumerate(part)
    ]
    placed.sort(key=lambda item: item[:2])
    return [operator for _, _, operator in placed]


def buffer_count(runtime: Runtime, bytes_each: float) -> int:
    """Return how many copies of the inputs together exceed twice the last-level cache."""
    wanted = 2.0 * runtime.facts.cache_bytes / max(bytes_each, 1.0)
    allowed = MEMORY_SHARE * runtime.free_bytes() / max(bytes_each, 1.0)
    return int(max(1, min(wanted + 1, allowed, BUFFERS_MOST)))


def kept(copies: int, run: Callable[[int], Any]) -> Call:
    """Return a call whose results live until their buffer's turn comes again.

    An output that is freed at once is written to the same, still cached, memory every time.
    """
    results: list[Any] = [None] * copies

    def call(index: int) -> None:
        place = index % copies
        results[place] = None
        results[place] = run(place)

    return call


def _gemms(space: Space, count: int, element_bytes: float) -> list[Operator]:
    out = []
    for m, n, k in gemm_shapes(space, count):
        for layout in LAYOUTS:
            out.append(
                Operator(
                    table="gemm",
                    columns={"m": m, "n": n, "k": k, "layout": layout},
                    build=_gemm_builder(m, n, k, layout),
                    flops=2.0 * m * n * k,
                    traffic_bytes=element_bytes * (m * k + k * n + m * n),
                )
            )
    return out


def _gemm_builder(m: int, n: int, k: int, layout: str) -> Callable[[Runtime], Call]:
    def build(runtime: Runtime) -> Call:
        torch = runtime.torch
        copies = buffer_count(runtime, runtime.facts.element_bytes * (m * k + k * n + m * n))
        kind = {"device": runtime.device, "dtype": runtime.dtype}
        # How the operands lie in memory: weights are [out, in], activations [tokens, features].
        left_shape = (k, m) if layout == "NT" else (m, k)
        right_shape = (n, k) if layout == "TN" else (k, n)
        left = [torch.randn(*left_shape, **kind) for _ in range(copies)]
        right = [torch.randn(*right_shape, **kind) for _ in range(copies)]
        if layout == "NT":
            left = [x.t() for x in left]
        if layout == "TN":
            right = [x.t() for x in right]

        return kept(copies, lambda place: torch.mm(left[place], right[place]))

    return build


def _attentions(space: Space, kind: str) -> list[Operator]:
    """Return torch's own choice of kernel at every shape, each kernel by name at the first few."""
    shapes = attention_shapes(space)
    chosen = [(DEFAULT_KERNEL, shape) for shape in shapes]
    named = [(name, shape) for shape in shapes[:KERNEL_SHAPES] for name in KERNELS[kind]]
    return [
        Operator(
            table="attention",
            columns={
                "pass": direction, "causal": True, "batch": batch, "heads": heads,
                "kv_heads": heads, "seq_q": sequence, "seq_kv": sequence, "head_dim": head_dim,
                "kernel": kernel,
            },
            build=_attention_builder(batch, heads, sequence, head_dim, direction, kernel),
            flops=factor * 2.0 * batch * heads * sequence**2 * head_dim,
        )
        for kernel, (batch, heads, sequence, head_dim) in chosen + named
        for direction, factor in (("fwd", 1.0), ("bwd", 2.5))
    ]  # fmt: skip


def _attention_builder(
    batch: int, heads: int, sequence: int, head_dim: int, direction: str, kernel: str
) -> Callable[[Runtime], Call]:
    def build(runtime: Runtime) -> Call:
        torch = runtime.torch
        shape = (batch, sequence, heads, head_dim)
        size = runtime.facts.element_bytes * 4.0 * batch * sequence * heads * head_dim
        copies = buffer_count(runtime, size)
        kind = {"device": runtime.device, "dtype": runtime.dtype}

        def tensor() -> Any:
            # Heads are the second dimension of a view, as after a projection.
            return torch.randn(*shape, **kind).transpose(1, 2).requires_grad_()

        def attend(three: tuple[Any, Any, Any]) -> Any:
            function = torch.nn.functional.scaled_dot_product_attention
            if kernel == DEFAULT_KERNEL:
                return function(*three, is_causal=True)
            backends = torch.nn.attention.SDPBackend
            with torch.nn.attention.sdpa_kernel([getattr(backends, kernel.upper())]):
                return function(*three, is_causal=True)

        inputs = [(tensor(), tensor(), tensor()) for _ in range(copies)]
        if direction == "fwd":
            return kept(copies, lambda place: attend(inputs[place]))
        outputs = [attend(three) for three in inputs]
        gradient = torch.randn_like(outputs[0])

        def backward(index: int) -> Any:
            place = index % copies
            return torch.autograd.grad(outputs[place], inputs[place], gradient, retain_graph=True)

        return backward

    return build
