"""The readers of the tools themselves accept what we write.

Each test needs a package that the base test run does not install, and skips without it:
`pip install torch transformers deepspeed` and `pip install --no-deps torchtitan==0.2.2 tyro`.
Megatron-LM cannot be asked: the published megatron-core holds no argument parser; its checks are
restated in test_megatron.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vtrain.architecture import Architecture
from vtrain.design import Design
from vtrain.formats import export
from vtrain.formats.huggingface import FAMILIES, read_config, write_config

pytestmark = pytest.mark.filterwarnings("ignore")

MODELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "public_configs.json").read_text()
)
SMALL: dict[str, Any] = {
    "num_layers": 3, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 64, "ffn_hidden_size": 1024, "vocab_size": 1003,
}  # fmt: skip
BIASES = {"attention_qkv_bias": True, "attention_output_bias": True}
GPT = {"gated_mlp": False, "norm": "layernorm"}
LEARNED = {"position": "learned", "max_positions": 130}
GROUPED = {"gated_mlp": True, "num_key_value_heads": 2, "head_dim": 48}
# Every family with each of its own switches both ways.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", GROUPED),
    ("llama", {**GROUPED, **BIASES, "mlp_bias": True, "tied_embeddings": True}),
    ("mistral", GROUPED),
    ("qwen2", {**GROUPED, "attention_qkv_bias": True, "tied_embeddings": True}),
    ("qwen3", {**GROUPED, "qk_norm": "head"}),
    ("qwen3", {**GROUPED, "qk_norm": "head", **BIASES}),
    ("olmo", {**GROUPED, "norm": "layernorm-plain"}),
    ("olmo", {**GROUPED, "norm": "layernorm-plain", **BIASES, "tied_embeddings": True}),
    ("olmo2", {**GROUPED, "qk_norm": "full"}),
    ("olmo2", {**GROUPED, "qk_norm": "full", **BIASES}),
    ("gpt2", {**GPT, **LEARNED, **BIASES, "mlp_bias": True, "tied_embeddings": True}),
    ("gpt2", {**GPT, **LEARNED, **BIASES, "mlp_bias": True}),
    ("gpt_neox", {**GPT, "mlp_bias": True}),
    ("gpt_neox", {**GPT, "mlp_bias": True, **BIASES, "tied_embeddings": True}),
    ("opt", {**GPT, **LEARNED, **BIASES, "mlp_bias": True, "tied_embeddings": True}),
    ("opt", {**GPT, **LEARNED, "norm": "layernorm-plain"}),
    (
        "bloom",
        {**GPT, **BIASES, "mlp_bias": True, "position": "alibi", "embedding_norm": True,
         "tied_embeddings": True},
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def count() -> Callable[[dict[str, Any], Path], int]:
    """Return a function that counts the parameters of the model transformers builds."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    def counted(config: dict[str, Any], folder: Path) -> int:
        (folder / "config.json").write_text(json.dumps(config))
        loaded = transformers.AutoConfig.from_pretrained(folder)
        # The meta device holds shapes only, so a 405B model fits.
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(loaded)
        return sum(parameter.numel() for parameter in model.parameters())

    return counted


@pytest.mark.parametrize(("family", "features"), VARIANTS)
def test_transformers_builds_our_count(
    family: str, features: dict[str, Any], count: Callable[..., int], tmp_path: Path
) -> None:
    """AutoConfig loads the exported config and the model has exactly our parameters."""
    architecture = Architecture(**{**SMALL, **features})
    config = write_config(architecture, seq_length=128, model_type=family)
    assert count(config, tmp_path) == architecture.parameters


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_transformers_agrees_on_public_models(
    model: dict[str, Any], count: Callable[..., int], tmp_path: Path
) -> None:
    """The publishers' counts, transformers and our re-written config all agree."""
    assert count(model["config"], tmp_path) == model["parameters"]
    architecture = read_config(model["config"], "x").architecture
    assert architecture is not None
    again = write_config(architecture, seq_length=2048, model_type=model["config"]["model_type"])
    assert count(again, tmp_path) == model["parameters"]


def test_every_family_is_built() -> None:
    """No family is left out of the check above."""
    assert {family for family, _ in VARIANTS} == set(FAMILIES)


@pytest.fixture(scope="module")
def titan() -> Iterator[types.ModuleType]:
    """torchtitan's config manager, without the training code (and triton) around it."""
    pytest.importorskip("tyro", reason="tyro is not installed")
    found = importlib.machinery.PathFinder.find_spec("torchtitan")
    if found is None or not found.submodule_search_locations:
        pytest.skip("torchtitan is not installed")
    root = Path(next(iter(found.submodule_search_locations)))
    if not (root / "config" / "job_config.py").exists():
        pytest.skip("this torchtitan is not configured by TOML (0.2.2 is the last that is)")
    package = types.ModuleType("torchtitan")
    package.__path__ = [str(root)]
    before = sys.modules.get("torchtitan")
    sys.modules["torchtitan"] = package
    try:
        yield importlib.import_module("torchtitan.config.manager")
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "torchtitan"]:
            del sys.modules[name]
        if before is not None:
            sys.modules["torchtitan"] = before


def test_torchtitan_parses_ours(
    titan: types.ModuleType, random_designs: Callable[[str, int], list[Design]], tmp_path: Path
) -> None:
    """torchtitan's own ConfigManager reads every field of 50 random designs as we meant it."""
    file = tmp_path / "job.toml"
    for design in random_designs("torchtitan", 50):
        file.write_text(export(design, "torchtitan"))
        config = titan.ConfigManager().parse_args([f"--job.config_file={file}"])
        plan = design.plan
        parallel = config.parallelism
        assert parallel.tensor_parallel_degree == plan.tp
        assert parallel.pipeline_parallel_degree == plan.pp
        assert parallel.context_parallel_degree == plan.cp
        dp = parallel.data_parallel_shard_degree * parallel.data_parallel_replicate_degree
        assert dp == plan.dp
        assert config.training.global_batch_size == plan.global_batch_size
        assert config.training.seq_len == design.seq_length
        assert config.training.steps == design.steps
        assert config.activation_checkpoint.mode == plan.recompute


def test_deepspeed_parses_ours(
    random_designs: Callable[[str, int], list[Design]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeedConfig accepts 50 random designs: its batch identity and ZeRO stage hold."""
    pytest.importorskip("torch", reason="torch is not installed")
    config_module = pytest.importorskip(
        "deepspeed.runtime.config", reason="deepspeed is not installed"
    )
    for design in random_designs("deepspeed", 50):
        data = json.loads(export(design, "deepspeed"))
        plan = design.plan
        # What a launched run would find: the replicas it counts batches over.
        monkeypatch.setattr(config_module.dist, "get_rank", lambda: 0)
        monkeypatch.setattr(config_module.dist, "get_world_size", lambda n=plan.dp: n)
        parsed = config_module.DeepSpeedConfig(data)
        assert parsed.train_batch_size == plan.global_batch_size
        assert parsed.train_micro_batch_size_per_gpu == plan.micro_batch_size
        assert parsed.gradient_accumulation_steps == plan.num_micro_batches
        assert parsed.zero_optimization_stage == ("none", "zero1", "zero2", "zero3").index(
            plan.sharding
        )
        assert parsed.bfloat16_config.enabled
        tp = parsed.tensor_parallel_config.autotp_size
        assert (tp or 1) == plan.tp
