"""Memory-bound operators: norms, activations, rotary, residual, embedding, loss, optimizer.

Traffic is the least any implementation must move, as the operator formulas of vtrain count it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vtrain.profiler.operators import Operator, buffer_count, kept

if TYPE_CHECKING:
    from vtrain.profiler.runtime import Runtime
    from vtrain.profiler.shapes import Space
    from vtrain.profiler.timing import Call

Make = Callable[["Runtime", int, int], tuple[list[Any], Callable[..., Any]]]
"""From runtime, tokens and width: one set of inputs and the function of them."""

VOCABULARY = {"cuda": 32768, "cpu": 4096}

ADAM_BYTES = 7.0
"""Elements an AdamW step moves a parameter: weight, two moments read and written, gradient read."""

CLIP_ELEMENTS = 3.0
"""Norm (read) and scaling (read, write) of the gradients."""

ZERO_ELEMENTS = 1.0


def pointwise_operators(
    space: Space, shapes: list[tuple[int, int]], element_bytes: float
) -> list[Operator]:
    """Return every memory-bound operator at every shape (tokens, width)."""
    out: list[Operator] = []
    for tokens, width in shapes:
        for name, make, forward, backward in _TABLE:
            for direction, elements in (("fwd", forward), ("bwd", backward)):
                if not elements:
                    continue
                out.append(
                    Operator(
                        table="elementwise",
                        columns={"op": name, "pass": direction, "shape": f"{tokens}x{width}"},
                        build=_builder(make, tokens, width, direction, elements),
                        traffic_bytes=element_bytes * elements * tokens * width,
                    )
                )
    for count in space.parameters:
        for name, build, elements in (
            ("adamw[torch fused]", _adamw, ADAM_BYTES),
            ("gradient_clip[torch]", _clip, CLIP_ELEMENTS),
            ("gradient_zero[torch]", _zero, ZERO_ELEMENTS),
            ("accumulate[torch]", _accumulate, 3.0),
            ("copy[torch]", _copy, 2.0),
        ):
            out.append(
                Operator(
                    table="elementwise",
                    columns={"op": name, "pass": "fwd", "shape": f"{count}"},
                    build=_counted(build, count, elements),
                    traffic_bytes=element_bytes * elements * count,
                )
            )
    return out


def _builder(
    make: Make, tokens: int, width: int, direction: str, elements: float
) -> Callable[[Runtime], Call]:
    def build(runtime: Runtime) -> Call:
        torch = runtime.torch
        size = runtime.facts.element_bytes * elements * tokens * width
        copies = buffer_count(runtime, size)
        sets = [make(runtime, tokens, width) for _ in range(copies)]
        if direction == "fwd":
            return kept(copies, lambda place: sets[place][1](*sets[place][0]))
        outputs = [function(*inputs) for inputs, function in sets]
        wanted = [[x for x in inputs if x.requires_grad] for inputs, _ in sets]
        gradients = [torch.ones_like(output) for output in outputs]

        def backward(index: int) -> Any:
            place = index % copies
            return torch.autograd.grad(
                outputs[place], wanted[place], gradients[place], retain_graph=True
            )

        return backward

    return build


def _counted(
    make: Callable[[Runtime, int], Callable[[], Any]], count: int, elements: float
) -> Callable[[Runtime], Call]:
    def build(runtime: Runtime) -> Call:
        copies = buffer_count(runtime, runtime.facts.element_bytes * elements * count)
        runs = [make(runtime, count) for _ in range(copies)]
        return lambda index: runs[index % copies]()

    return build


def _tensor(runtime: Runtime, *shape: int, grad: bool = True) -> Any:
    made = runtime.torch.randn(*shape, device=runtime.device, dtype=runtime.dtype)
    return made.requires_grad_() if grad else made


def _rms_norm(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    norm = runtime.torch.nn.functional.rms_norm
    inputs = [_tensor(runtime, tokens, width), _tensor(runtime, width)]
    return inputs, lambda x, w: norm(x, (width,), w, 1e-5)


def _rms_norm_eager(
    runtime: Runtime, tokens: int, width: int
) -> tuple[list[Any], Callable[..., Any]]:
    inputs = [_tensor(runtime, tokens, width), _tensor(runtime, width)]

    def norm(x: Any, w: Any) -> Any:
        wide = x.float()
        scaled = wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
        return scaled.to(x.dtype) * w

    return inputs, norm


def _layer_norm(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    norm = runtime.torch.nn.functional.layer_norm
    inputs = [
        _tensor(runtime, tokens, width), _tensor(runtime, width), _tensor(runtime, width),
    ]  # fmt: skip
    return inputs, lambda x, w, b: norm(x, (width,), w, b)


def _swiglu(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    silu = runtime.torch.nn.functional.silu
    inputs = [_tensor(runtime, tokens, 2 * width)]

    def gated(both: Any) -> Any:
        gate, up = both.chunk(2, dim=-1)
        return silu(gate) * up

    return inputs, gated


def _gelu(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    return [_tensor(runtime, tokens, width)], runtime.torch.nn.functional.gelu


def _rope(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    from vtrain.profiler.blocks import rotary_tables, rotate

    head_dim = 64
    heads = max(1, width // head_dim)
    cos, sin = rotary_tables(runtime, tokens, head_dim)
    inputs = [_tensor(runtime, 1, tokens, heads, head_dim)]
    return inputs, lambda x: rotate(runtime.torch, x, cos, sin)


def _residual(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    inputs = [_tensor(runtime, tokens, width, grad=False) for _ in range(2)]
    return inputs, lambda a, b: a + b


def _softmax(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    softmax = runtime.torch.nn.functional.softmax
    return [_tensor(runtime, tokens, width)], lambda x: softmax(x, dim=-1)


def _embedding(runtime: Runtime, tokens: int, width: int) -> tuple[list[Any], Callable[..., Any]]:
    vocabulary = VOCABULARY[runtime.facts.kind]
    ids = runtime.torch.randint(0, vocabulary, (tokens,), device=runtime.device)
    look_up = runtime.torch.nn.functional.embedding
    return [_tensor(runtime, vocabulary, width)], lambda table: look_up(ids, table)


def _cross_entropy(
    runtime: Runtime, tokens: int, width: int
) -> tuple[list[Any], Callable[..., Any]]:
    rows = max(1, tokens * width // VOCABULARY[runtime.facts.kind])
    vocabulary = VOCABULARY[runtime.facts.kind]
    target = runtime.torch.randint(0, vocabulary, (rows,), device=runtime.device)
    loss = runtime.torch.nn.functional.cross_entropy
    return [_tensor(runtime, rows, vocabulary)], lambda logits: loss(logits, target)


# Name, maker, elements moved forward and backward for each element of tokens x width.
_TABLE: tuple[tuple[str, Make, float, float], ...] = (
    ("rms_norm[torch]", _rms_norm, 2.0, 3.0),
    ("rms_norm[eager]", _rms_norm_eager, 2.0, 3.0),
    ("layer_norm[torch]", _layer_norm, 2.0, 3.0),
    ("swiglu_act[torch]", _swiglu, 5.0, 8.0),
    ("gelu[torch]", _gelu, 2.0, 3.0),
    ("rope[torch]", _rope, 2.0, 2.0),
    ("residual_add", _residual, 3.0, 0.0),
    ("softmax[torch]", _softmax, 2.0, 3.0),
    ("embedding[torch]", _embedding, 2.0, 4.0),
    ("cross_entropy[torch]", _cross_entropy, 3.0, 5.0),
)


def _adamw(runtime: Runtime, count: int) -> Callable[[], Any]:
    torch = runtime.torch
    weights = [_tensor(runtime, count // 4) for _ in range(4)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    return lambda: optimizer.step()


def _clip(runtime: Runtime, count: int) -> Callable[[], Any]:
    torch = runtime.torch
    weights = [_tensor(runtime, count // 4) for _ in range(4)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return lambda: torch.nn.utils.clip_grad_norm_(weights, 1.0)


def _zero(runtime: Runtime, count: int) -> Callable[[], Any]:
    gradient = _tensor(runtime, count, grad=False)
    return lambda: gradient.zero_()


def _accumulate(runtime: Runtime, count: int) -> Callable[[], Any]:
    held, new = (_tensor(runtime, count, grad=False) for _ in range(2))
    return lambda: held.add_(new)


def _copy(runtime: Runtime, count: int) -> Callable[[], Any]:
    source, target = (_tensor(runtime, count, grad=False) for _ in range(2))
    return lambda: target.copy_(source)
