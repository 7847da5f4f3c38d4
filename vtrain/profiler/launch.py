"""What it costs to start work: a layer, a step, a call of autograd, all but empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.profiler.operators import Operator

if TYPE_CHECKING:
    from vtrain.profiler.runtime import Runtime
    from vtrain.profiler.timing import Call

LAYER = ("layer_launch[torch]", "fwd+bwd")
STEP = ("step_launch[torch]", "fwd")
ENGINE = ("autograd_call[torch]", "bwd")
"""Entering and leaving autograd once; on a CPU a measured backward includes it, a layer inside a
step does not."""

LAYERS = 4
_TINY = Architecture(
    num_layers=LAYERS, hidden_size=64, num_attention_heads=1, num_key_value_heads=1, head_dim=64,
    ffn_hidden_size=64, gated_mlp=True, vocab_size=64,
)  # fmt: skip
_TOKENS = 8


def launch_operators() -> list[Operator]:
    """Return the three rows; a layer's row is of LAYERS layers."""
    builds = ((LAYER, _layers), (STEP, _step), (ENGINE, _engine))
    return [
        Operator(
            table="elementwise", columns={"op": op, "pass": direction, "shape": "1"}, build=build,
            traffic_bytes=1.0, host=True,
        )
        for (op, direction), build in builds
    ]  # fmt: skip


def _layers(runtime: Runtime) -> Call:
    from vtrain.profiler.blocks import Decoder, Split

    torch = runtime.torch
    model = Decoder(runtime, _TINY, _TOKENS, Split(embedding=False, head=False))
    kind = {"device": runtime.device, "dtype": runtime.dtype}
    x = torch.randn(1, _TOKENS, _TINY.hidden_size, **kind).requires_grad_()
    gradient = torch.randn(1, _TOKENS, _TINY.hidden_size, **kind)
    return lambda index: model.blocks(x).backward(gradient)


def _step(runtime: Runtime) -> Call:
    from vtrain.profiler.steps import Config, Trainer

    trainer = Trainer(runtime, Config(architecture=_TINY, seq_length=_TOKENS, micro_batch_size=1))
    return lambda index: trainer.update()


def _engine(runtime: Runtime) -> Call:
    torch = runtime.torch
    x = torch.randn(8, device=runtime.device, dtype=runtime.dtype).requires_grad_()
    # A view costs nothing forward or backward, so what is timed is the engine.
    out, gradient = x.view(8), torch.ones(8, device=runtime.device, dtype=runtime.dtype)

    def call(index: int) -> Any:
        return torch.autograd.grad(out, x, gradient, retain_graph=True)

    return call
