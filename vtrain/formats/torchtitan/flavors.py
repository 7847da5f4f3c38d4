"""Model flavours torchtitan ships, and how it says any other size.

A torchtitan TOML names a flavour; the sizes live in `torchtitan/models/<name>/__init__.py`
(release 0.2.2, February 2026, the last one configured by TOML). A size that is not shipped is
registered by a small Python module which the TOML imports (`experimental.custom_import`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.formats.context import refuse

CUSTOM_FLAVOR = "vtrain"
CUSTOM_MODULE = "vtrain_flavor"
DESCRIPTION_KEY = "vtrain architecture "
"""Start of a job description that spells out the architecture behind the custom flavour."""


def _llama3(layers: int, hidden: int, heads: int, ffn: int) -> Architecture:
    return Architecture(
        num_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=8,
        head_dim=hidden // heads, ffn_hidden_size=ffn, gated_mlp=True, vocab_size=128_256,
    )  # fmt: skip


def _qwen3(layers: int, hidden: int, heads: int, ffn: int, tied: bool = False) -> Architecture:
    return Architecture(
        num_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=8,
        head_dim=128, ffn_hidden_size=ffn, gated_mlp=True, vocab_size=151_936,
        tied_embeddings=tied, qk_norm="head",
    )  # fmt: skip


FLAVORS: dict[tuple[str, str], Architecture] = {
    ("llama3", "8B"): _llama3(32, 4096, 32, 14_336),
    ("llama3", "70B"): _llama3(80, 8192, 64, 28_672),
    ("llama3", "405B"): _llama3(126, 16_384, 128, 53_248),
    ("qwen3", "0.6B"): _qwen3(28, 1024, 16, 3072, tied=True),
    ("qwen3", "1.7B"): _qwen3(28, 2048, 16, 6144, tied=True),
    ("qwen3", "4B"): _qwen3(36, 2560, 32, 9728, tied=True),
    ("qwen3", "8B"): _qwen3(36, 4096, 32, 12_288),
    ("qwen3", "14B"): _qwen3(40, 5120, 40, 17_408),
    ("qwen3", "32B"): _qwen3(64, 5120, 64, 25_600),
}
# The same sizes with another attention kernel.
_KERNELS = ("_flex", "_varlen", "_flex_attn", "_varlen_attn")


def flavor_architecture(name: str, flavor: str, description: str | None, path: str) -> Architecture:
    """Return the architecture that a flavour stands for.

    Args:
        name: `model.name` of the TOML.
        flavor: `model.flavor`.
        description: `job.description`, where our own files spell the sizes out.
        path: what errors call the file.

    Raises:
        UserInputError: when the flavour is not known, with those that are.
    """
    if flavor == CUSTOM_FLAVOR and description and description.startswith(DESCRIPTION_KEY):
        try:
            return Architecture(**json.loads(description.removeprefix(DESCRIPTION_KEY)))
        except (json.JSONDecodeError, TypeError) as error:
            raise UserInputError(
                f"{path}: job.description does not spell out an architecture: {error}"
            ) from None
    base = flavor
    for ending in _KERNELS:
        base = base.removesuffix(ending)
    if (name, base) not in FLAVORS:
        known = ", ".join(f"{model} {size}" for model, size in FLAVORS)
        raise UserInputError(
            f"{path}: torchtitan model {name!r} flavor {flavor!r} is not known; its sizes are in "
            "Python, not in the file",
            hint=f"known dense ones: {known}",
        )
    return FLAVORS[(name, base)]


def model_table(architecture: Architecture) -> tuple[dict[str, Any], str | None, str | None]:
    """Return the [model] table, the job description and the source of the flavour module.

    The last two are None for a flavour that torchtitan ships.

    Raises:
        UserInputError: when no torchtitan model has the features of the architecture.
    """
    for (name, flavor), known in FLAVORS.items():
        if _plain(architecture) == _plain(known):
            return {"name": name, "flavor": flavor}, None, None
    a = architecture
    features = {
        f"position={a.position}": a.position != "rotary",
        f"norm={a.norm}": a.norm != "rmsnorm",
        "an MLP without gate": not a.gated_mlp,
        "biases": a.attention_qkv_bias or a.attention_output_bias or a.mlp_bias,
        f"qk_norm={a.qk_norm}": a.qk_norm == "full",
        "embedding_norm": a.embedding_norm,
    }
    for feature, present in features.items():
        if present:
            raise refuse("torchtitan", feature, "use --format megatron or hf")
    text = DESCRIPTION_KEY + json.dumps(_plain(a))
    return {"name": "qwen3", "flavor": CUSTOM_FLAVOR}, text, _module(a)


def _plain(a: Architecture) -> dict[str, Any]:
    return {key: value for key, value in asdict(a).items() if key != "name"}


def _module(a: Architecture) -> str:
    return (
        "from torchtitan.models.qwen3 import Qwen3ModelArgs, qwen3_args\n"
        f'qwen3_args["{CUSTOM_FLAVOR}"] = Qwen3ModelArgs(\n'
        f"    dim={a.hidden_size}, n_layers={a.num_layers}, n_heads={a.num_attention_heads},\n"
        f"    n_kv_heads={a.num_key_value_heads}, head_dim={a.head_dim}, "
        f"hidden_dim={a.ffn_hidden_size},\n"
        f"    vocab_size={a.vocab_size}, qk_norm={a.qk_norm == 'head'}, "
        f"enable_weight_tying={a.tied_embeddings},\n"
        ")"
    )
