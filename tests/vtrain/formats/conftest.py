"""Random designs that a format can carry, the same for every run."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from vtrain.architecture import Architecture
from vtrain.design import Design
from vtrain.formats import context
from vtrain.plan import Plan

_cluster, _stack = cache(context.load_cluster), cache(context.load_stack)


@pytest.fixture(autouse=True)
def _presets_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse each preset once: hundreds of designs are exported."""
    monkeypatch.setattr(context, "load_cluster", _cluster)
    monkeypatch.setattr(context, "load_stack", _stack)


def _architecture(
    rng: random.Random, tp: int, layers: int, features: dict[str, Any]
) -> Architecture:
    kv = tp * rng.choice([1, 2, 4])
    heads = kv * rng.choice([1, 2, 3, 8])
    head_dim = rng.choice([64, 96, 128])
    hidden = heads * head_dim
    if rng.random() < 0.3:
        hidden = tp * 64 * rng.randint(1, 60)
    return Architecture(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=head_dim,
        ffn_hidden_size=tp * 64 * rng.randint(1, 200),
        vocab_size=rng.randint(1000, 250_000),
        **{"gated_mlp": rng.random() < 0.5, "tied_embeddings": rng.random() < 0.5, **features},
    )


def _plan(rng: random.Random, kind: str) -> tuple[Plan, int]:
    """Return a plan and a number of layers that fits it."""
    tp, pp, cp, dp = (rng.choice(c) for c in ([1, 2, 4, 8], [1, 2, 3, 4], [1, 2], [1, 2, 8, 16]))
    if kind == "deepspeed":
        pp = cp = 1
    if tp * pp * cp * dp > 8:
        dp = 8 * dp if tp * pp * cp * dp % 8 else dp
    virtual = rng.choice([1, 2, 3]) if pp > 1 else 1
    micro = rng.choice([1, 2, 4])
    accumulate = pp * rng.randint(1, 6)
    recompute = rng.choice(["none", "selective", "full"])
    sharding = rng.choice(["none", "zero1", "zero2", "zero3"])
    sequence_parallel = tp > 1 and rng.random() < 0.5
    schedule = "1f1b"
    if kind == "torchtitan":
        sequence_parallel = tp > 1
        sharding = rng.choice(["zero2", "zero3"]) if dp * cp > 1 else "none"
        if tp * pp * cp == 1 and rng.random() < 0.5:
            sharding = "none"
        if pp > 1 and virtual == 1 and rng.random() < 0.3:
            schedule = "gpipe"
    if kind == "deepspeed":
        sequence_parallel = False
        recompute = rng.choice(["none", "full"])
        sharding = "zero2" if tp > 1 and sharding == "zero3" else sharding
    plan = Plan(
        tp=tp, pp=pp, cp=cp, dp=dp, virtual_stages=virtual, micro_batch_size=micro,
        global_batch_size=dp * micro * accumulate, recompute=recompute, sharding=sharding,
        sequence_parallel=sequence_parallel, schedule=schedule,
    )  # fmt: skip
    return plan, pp * virtual * rng.randint(1, 12)


def _features(rng: random.Random, kind: str, seq_length: int, pp: int) -> dict[str, Any]:
    if kind == "torchtitan":
        tied = {"tied_embeddings": False} if pp > 1 else {}
        return {"gated_mlp": True, "qk_norm": rng.choice(["none", "head"]), **tied}
    bias = rng.choice([(False, False), (True, False), (True, True)])
    position = rng.choice(["learned", "rotary", "none"])
    norm = rng.choice(["layernorm", "rmsnorm"])
    return {
        "attention_qkv_bias": bias[0],
        "attention_output_bias": bias[1],
        "mlp_bias": bias[1],
        "position": position,
        "max_positions": seq_length * rng.choice([1, 2]) if position == "learned" else 0,
        "norm": norm,
        "qk_norm": rng.choice(["none", "head"]) if norm == "rmsnorm" else "none",
    }


@pytest.fixture(scope="session")
def random_designs() -> Callable[[str, int], list[Design]]:
    """Return a function of (megatron | torchtitan | deepspeed, count) that makes designs."""

    def make(kind: str, count: int) -> list[Design]:
        rng = random.Random(f"{kind} designs")
        designs: list[Design] = []
        while len(designs) < count:
            plan, layers = _plan(rng, kind)
            if plan.gpus > 8 and plan.gpus % 8:
                continue
            seq_length = 2 * plan.cp * plan.tp * rng.choice([64, 128, 384])
            stack = {"torchtitan": "torchtitan-2024"}.get(kind, "megatron-core-2025")
            features = _features(rng, kind, seq_length, plan.pp)
            designs.append(
                Design(
                    architecture=_architecture(rng, plan.tp, layers, features),
                    plan=plan,
                    cluster="h100-sxm-80g",
                    stack=stack,
                    seq_length=seq_length,
                    tokens=plan.global_batch_size * seq_length * rng.randint(1, 100_000),
                )
            )
        return designs

    return make
