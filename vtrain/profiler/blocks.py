"""A real decoder in plain torch: the model whose steps a profile is checked against.

RMSNorm, rotary positions, causal attention by `scaled_dot_product_attention`, SwiGLU, untied
embedding and head, no biases: the block vtrain searches over. Products are merged as Megatron
merges them (query, key and value; gate and up). Gradients are kept in buffers that every
micro-batch adds to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vtrain.architecture import Architecture
    from vtrain.profiler.runtime import Runtime, Torch

Tensor = Any
EPSILON = 1e-5


def rotary_tables(runtime: Runtime, seq_length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of rotary positions, [seq, 1, head_dim] (arXiv 2104.09864)."""
    torch = runtime.torch
    half = torch.arange(0, head_dim, 2, device=runtime.device, dtype=torch.float32) / head_dim
    angles = torch.outer(
        torch.arange(seq_length, device=runtime.device, dtype=torch.float32), 10000.0**-half
    )
    both = torch.cat((angles, angles), dim=-1)[:, None, :]
    return both.cos().to(runtime.dtype), both.sin().to(runtime.dtype)


def rotate(torch: Torch, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys [batch, seq, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """How one rank's share of the model differs from the whole.

    Attributes:
        tp: tensor-parallel degree.
        enter: on the input of a column-split product (backward sums over the ranks).
        leave: on the output of a row-split product (forward sums over the ranks).
        layers: layers on this rank, all of them where None.
        embedding: this rank holds the embedding.
        head: this rank holds the head and the loss.
    """

    tp: int = 1
    enter: Callable[[Tensor], Tensor] = field(default=lambda x: x)
    leave: Callable[[Tensor], Tensor] = field(default=lambda x: x)
    layers: int | None = None
    embedding: bool = True
    head: bool = True


WHOLE = Split()


class Decoder:
    """The decoder, or one rank's share of it; parameters are plain tensors."""

    def __init__(
        self, runtime: Runtime, architecture: Architecture, seq_length: int, split: Split = WHOLE
    ) -> None:
        """Make the parameters and their gradient buffers.

        Raises:
            UserInputError: an architecture with parts this block does not have.
        """
        a = architecture
        if not (a.gated_mlp and a.position == "rotary" and a.norm == "rmsnorm"):
            raise UserInputError(
                "the reference decoder is a gated rotary RMSNorm block, got "
                f"gated_mlp={a.gated_mlp}, position={a.position}, norm={a.norm}"
            )
        if a.num_key_value_heads != a.num_attention_heads or a.tied_embeddings:
            raise UserInputError("the reference decoder has plain heads and an untied head")
        self.runtime, self.architecture, self.split = runtime, a, split
        self.heads = a.num_attention_heads // split.tp
        inner, ffn, h = a.query_size // split.tp, a.ffn_hidden_size // split.tp, a.hidden_size
        vocabulary = a.vocab_size // split.tp
        self.embedding = self._weight(vocabulary, h) if split.embedding else None
        count = a.num_layers if split.layers is None else split.layers
        self.layers = [
            {
                "norm_1": self._ones(h), "qkv": self._weight(3 * inner, h),
                "out": self._weight(h, inner), "norm_2": self._ones(h),
                "gate_up": self._weight(2 * ffn, h), "down": self._weight(h, ffn),
            }
            for _ in range(count)
        ]  # fmt: skip
        self.norm = self._ones(h) if split.head else None
        self.head = self._weight(vocabulary, h) if split.head else None
        self.tables = rotary_tables(runtime, seq_length, a.head_dim)

    def parameters(self) -> list[Tensor]:
        """Every parameter of this rank."""
        ends = [x for x in (self.embedding, self.norm, self.head) if x is not None]
        return [*ends, *(weight for layer in self.layers for weight in layer.values())]

    def embed(self, ids: Tensor) -> Tensor:
        """Look tokens up, [batch, seq] to [batch, seq, hidden]."""
        functional, table = self.runtime.torch.nn.functional, self.embedding
        if table is None or self.split.tp == 1:
            return functional.embedding(ids, table)
        # Each rank looks its own part of the vocabulary up and the parts are added. The ids of
        # a check lie anywhere; what matters is the work, so they are folded into the part.
        return self.split.leave(functional.embedding(ids % table.shape[0], table))

    def blocks(self, x: Tensor) -> Tensor:
        """Run this rank's layers."""
        for layer in self.layers:
            x = x + self._attention(x, layer)
            x = x + self._mlp(x, layer)
        return x

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Final norm, logits and mean cross-entropy."""
        functional = self.runtime.torch.nn.functional
        x = self.split.enter(self._norm(x, self.norm))
        logits = functional.linear(x, self.head)
        rows = logits.shape[-1]
        return functional.cross_entropy(logits.view(-1, rows), (targets % rows).view(-1))

    def _attention(self, x: Tensor, layer: dict[str, Tensor]) -> Tensor:
        torch, head_dim = self.runtime.torch, self.architecture.head_dim
        functional = torch.nn.functional
        batch, seq, _ = x.shape
        entered = self.split.enter(self._norm(x, layer["norm_1"]))
        merged = functional.linear(entered, layer["qkv"]).view(batch, seq, 3, self.heads, head_dim)
        query, key, value = merged.unbind(2)
        query, key = (rotate(torch, part, *self.tables) for part in (query, key))
        # A copy, so that the merged product does not live on for the sake of the values.
        value = value.contiguous()
        out = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        out = out.transpose(1, 2).reshape(batch, seq, self.heads * head_dim)
        return self.split.leave(functional.linear(out, layer["out"]))

    def _mlp(self, x: Tensor, layer: dict[str, Tensor]) -> Tensor:
        functional = self.runtime.torch.nn.functional
        entered = self.split.enter(self._norm(x, layer["norm_2"]))
        gate, up = functional.linear(entered, layer["gate_up"]).chunk(2, dim=-1)
        return self.split.leave(functional.linear(functional.silu(gate) * up, layer["down"]))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        functional = self.runtime.torch.nn.functional
        return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)

    def _weight(self, rows: int, columns: int) -> Tensor:
        torch = self.runtime.torch
        made = torch.randn(rows, columns, device=self.runtime.device, dtype=self.runtime.dtype)
        return self._ready(made.mul_(0.02))

    def _ones(self, size: int) -> Tensor:
        torch = self.runtime.torch
        made = torch.ones(size, device=self.runtime.device, dtype=self.runtime.dtype)
        return self._ready(made)

    def _ready(self, weight: Tensor) -> Tensor:
        weight.requires_grad_()
        weight.grad = self.runtime.torch.zeros_like(weight)
        return weight
