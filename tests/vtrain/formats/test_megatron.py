"""Megatron-LM scripts and YAML files as people write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vtrain.architecture import default_architecture
from vtrain.design import Design
from vtrain.errors import UserInputError
from vtrain.formats import export, load_architecture, read_any
from vtrain.formats.context import prepare
from vtrain.formats.megatron import megatron_arguments
from vtrain.formats.megatron.shell import read_script
from vtrain.plan import Plan

# The GPT-3 175B example of NVIDIA/Megatron-LM (examples/gpt3/train_gpt3_175b_distributed.sh) in
# its values; it ships with NUM_NODES=1 as a placeholder.
GPT3 = """
#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
VOCAB_FILE=$1 #<path to gpt2-vocab.json>
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # or flash/fused/unfused
)
TRAINING=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --fp16
    --lr 6.0e-5
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    ${MODEL[@]} ${TRAINING[@]} --tensor-model-parallel-size 8 \\
    --pipeline-model-parallel-size 16 --vocab-file $VOCAB_FILE
"""


def write(tmp_path: Path, text: str, name: str = "run.sh") -> Path:
    """Write a file and return its path."""
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_gpt3_example_imports(tmp_path: Path) -> None:
    """The 175B example has 174.6B parameters and needs the GPU count from outside."""
    found = read_any(write(tmp_path, GPT3), gpus=1024, vocab_size=50257)
    assert found.architecture is not None
    assert found.architecture.parameters == 174_604_259_328
    assert found.plan == Plan(tp=8, pp=16, dp=8, global_batch_size=1536, sharding="none")
    assert found.stack.precision == "fp16"
    assert found.tokens == 500_000 * 1536 * 2048
    assert any("8 GPUs; 1024 are taken" in note for note in found.notes)
    assert any("rampup" in note for note in found.notes)


def test_gpus_that_do_not_multiply_out_are_refused(tmp_path: Path) -> None:
    """The placeholder of one node cannot hold tp 8 x pp 16."""
    with pytest.raises(UserInputError, match=r"8 GPUs are not a multiple.*8 x 16 x 1 = 128.*128"):
        read_any(write(tmp_path, GPT3), vocab_size=50257)


def test_a_vocabulary_is_never_guessed(tmp_path: Path) -> None:
    """Without a size in the file the vocabulary must be given."""
    with pytest.raises(UserInputError, match="--vocab N"):
        read_any(write(tmp_path, GPT3), gpus=1024)


def test_a_batch_that_replicas_do_not_divide_is_refused(tmp_path: Path) -> None:
    """PC-76: 13B on 1,472 GPUs at tp 8, pp 8, batch 32: 32 is no multiple of dp 23."""
    text = (
        "--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096 "
        "--max-position-embeddings 4096 --vocab-size 50257 --micro-batch-size 1 "
        "--global-batch-size 32 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8"
    )
    with pytest.raises(UserInputError, match=r"global_batch_size=32.*23.*nearest valid"):
        read_any(write(tmp_path, text, "args.txt"), gpus=1472)


def test_a_yaml_in_sections_imports(tmp_path: Path) -> None:
    """Sections group only; null is absent; activation and GQA are read as Megatron does."""
    text = """
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: 4
  ffn_hidden_size: null
  add_bias_linear: False
  gated_linear_unit: False
  normalization: RMSNorm
model_parallel:
  tensor_model_parallel_size: 2
  sequence_parallel: True
  bf16: True
micro_batch_size: 2
global_batch_size: 128
untie_embeddings_and_output_weights: True
position_embedding_type: rope
swiglu: True
seq_length: 4096
vocab_size: 32000
made_up_option: 3
"""
    found = read_any(write(tmp_path, text, "config.yaml"), gpus=16)
    a = found.architecture
    assert a is not None
    assert (a.num_key_value_heads, a.gated_mlp, a.mlp_bias) == (4, True, False)
    # Megatron: int(4 x 1024 x 2 / 3 / 64) x 64.
    assert a.ffn_hidden_size == 2688
    assert found.plan == Plan(
        tp=2, dp=8, micro_batch_size=2, global_batch_size=128, sharding="none",
        sequence_parallel=True,
    )  # fmt: skip
    assert found.unknown_fields == ("made_up_option",)


def test_a_test_recipe_yaml_imports(tmp_path: Path) -> None:
    """Argument names with dashes under MODEL_ARGS are the same arguments."""
    text = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --micro-batch-size: 4
  --global-batch-size: 32
  --vocab-size: 1000
  --bf16: true
"""
    found = read_any(write(tmp_path, text, "model_config.yaml"), gpus=8)
    assert found.plan is not None
    assert found.plan.dp == 8
    assert found.unknown_fields == ()


# BLOOM's script in its values (bigscience-workshop/bigscience, train/tr11-176B-ml): argument
# strings within strings, a here-document, a command line built for bash -c.
BLOOM = """
#SBATCH --nodes=48
#SBATCH --gres=gpu:8   # number of gpus
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
TRAIN_SAMPLES=220_000_000  # 450B tokens
GPT_ARGS=" \\
    --pp-partition-method 'type:transformer|embedding' \\
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112 \\
    --seq-length 2048 --max-position-embeddings 2048 \\
    --micro-batch-size 2 --global-batch-size 2048 --train-samples $TRAIN_SAMPLES \\
    --embed-layernorm --bf16 --position-embedding-type alibi --checkpoint-activations \\
    --pad-vocab-size-to 250880 \\
    "
ZERO_STAGE=0
cat <<EOT > $config
{ "zero_optimization": { "stage": $ZERO_STAGE } }
EOT
LAUNCHER="python -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
CMD="`pwd`/pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 \\
    $GPT_ARGS --deepspeed --zero-stage ${ZERO_STAGE} "
srun --wait=60 bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee -a log.txt
"""


def test_the_bloom_script_imports(tmp_path: Path) -> None:
    """176,247,271,424 parameters on 384 GPUs at tp 4, pp 12, as BLOOM's model card has it."""
    found = read_any(write(tmp_path, BLOOM, "bloom.slurm"))
    assert found.architecture is not None
    assert found.architecture.parameters == 176_247_271_424
    assert found.plan == Plan(
        tp=4, pp=12, dp=8, micro_batch_size=2, global_batch_size=2048, recompute="full",
        sharding="zero1",
    )  # fmt: skip
    assert found.stack.name == "megatron-deepspeed-2022-bf16"
    assert found.unknown_fields == ()


def test_a_model_is_taken_from_a_script_with_an_impossible_plan(tmp_path: Path) -> None:
    """Where only the model is wanted, a placeholder node count does not matter."""
    file = write(
        tmp_path, GPT3.replace("--micro-batch-size", "--vocab-size 50257\n --micro-batch-size")
    )
    architecture, seq_length = load_architecture(str(file))
    assert (architecture.num_layers, seq_length) == (96, 2048)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("--num-experts 8", "mixture-of-experts"),
        ("--multi-latent-attention", "multi-latent attention"),
        ("--hidden-size 4096x", "hidden_size must be a whole number"),
        ("--hidden-size ${WIDTH}", r"got '\$\{WIDTH\}'"),
        ("--num-attention-heads 7", "num_attention_heads=7 must divide hidden_size=512"),
        ("--normalization BatchNorm", "LayerNorm or RMSNorm"),
        ("--position-embedding-type sine", "position_embedding_type=sine"),
        ("--group-query-attention --num-query-groups 3", "num_key_value_heads=3 must divide"),
        ("--recompute-granularity half", "selective or full"),
        ("--expert-model-parallel-size 2", "without experts"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4", "divide"),
        ("--micro-batch-size 3", "global_batch_size=32 must be a multiple"),
        ("--tensor-model-parallel-size 3", "not a multiple of tp x pp x cp"),
    ],
)
def test_bad_arguments_get_one_line(arguments: str, what: str, tmp_path: Path) -> None:
    """Every mistake is named in one line that begins with the file."""
    base = (
        "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--max-position-embeddings 1024 --vocab-size 1000 --micro-batch-size 4 "
        "--global-batch-size 32 --nnodes 1 --nproc-per-node 8 "
    )
    file = write(tmp_path, base + arguments, "args.txt")
    with pytest.raises(UserInputError, match=what) as caught:
        read_any(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_branches_are_reported_not_decided() -> None:
    """A variable or option set twice differently is named; the last value is taken."""
    script = read_script(
        "SIZE=7\nif [ $1 = big ]; then\n  SIZE=70\nfi\n"
        "python pretrain_gpt.py --num-layers $SIZE --num-layers $((SIZE / 2))"
    )
    assert script.options["num_layers"] == ("35",)
    assert len(script.ambiguous) == 2
    assert any("SIZE is set to 7 and 70" in line for line in script.ambiguous)


def test_shell_forms_are_understood() -> None:
    """Defaults, quotes, commands, appended arrays and comments read as a shell reads them."""
    script = read_script(
        'export A=${A:-4}\nB="$(dirname "$A")"\nC=( --x "$A" # gone\n \'--y z\' )\n'
        "C+=( --w=${A} )\nrun --num-layers 1 \"${C[@]}\" --path $B --lit '$A' \\\n --last 9"
    )
    assert script.options["x"] == ("4",)
    assert script.options["y"] == ("z",)
    assert script.options["w"] == ("4",)
    assert script.options["path"] == ("${?}",)
    assert script.options["last"] == ("9",)
    assert not script.ambiguous


def test_exported_arguments_pass_megatrons_own_checks(
    random_designs: Callable[[str, int], list[Design]],
) -> None:
    """The asserts of megatron/training/arguments.py hold for 200 random designs.

    Megatron-LM itself does not install from the package index (megatron-core holds no argument
    parser), so its checks are restated here, on the arguments as written.
    """
    for design in random_designs("megatron", 200):
        groups = megatron_arguments(prepare(design))
        given = {name: value for group in groups.values() for name, value in group}
        tp, pp, cp = (
            int(str(given[f"{name}-parallel-size"]))
            for name in ("tensor-model", "pipeline-model", "context")
        )
        world = design.plan.gpus
        assert world % (tp * pp * cp) == 0
        dp = world // (tp * pp * cp)
        batch, micro = int(str(given["global-batch-size"])), int(str(given["micro-batch-size"]))
        assert batch % (micro * dp) == 0
        virtual = int(str(given.get("num-virtual-stages-per-pipeline-rank", 1)))
        layers = int(str(given["num-layers"]))
        assert layers % (pp * virtual) == 0
        if virtual > 1:
            assert pp > 1
            assert batch // (micro * dp) % pp == 0
        heads = int(str(given["num-attention-heads"]))
        groups_ = int(str(given.get("num-query-groups", heads)))
        assert heads % tp == 0
        assert heads % groups_ == 0
        assert groups_ % tp == 0
        assert int(str(given["ffn-hidden-size"])) % tp == 0
        seq_length = int(str(given["seq-length"]))
        assert int(str(given["max-position-embeddings"])) >= seq_length
        if cp > 1:
            assert seq_length % (2 * cp) == 0
        if "sequence-parallel" in given:
            assert tp > 1
            assert seq_length % (tp * cp) == 0
        if "tp-comm-overlap" in given:
            assert "sequence-parallel" in given
        if "overlap-param-gather" in given:
            assert "overlap-grad-reduce" in given
            assert "use-distributed-optimizer" in given
        if given.get("recompute-granularity") == "full":
            assert given["recompute-method"] == "uniform"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"position": "alibi"}, "position=alibi"),
        ({"qk_norm": "full"}, "qk_norm=full"),
        ({"norm": "layernorm-plain"}, "norm=layernorm-plain"),
        ({"embedding_norm": True}, "embedding_norm"),
        ({"mlp_bias": True}, "biases on some projections only"),
    ],
)
def test_what_megatron_has_no_argument_for_is_refused(change: dict[str, object], what: str) -> None:
    """A model that pretrain_gpt.py cannot build is not written as one that it can."""
    from dataclasses import replace

    design = Design(
        architecture=replace(default_architecture(hidden_size=1024, num_layers=4), **change),
        plan=Plan(global_batch_size=8), cluster="H100", stack="megatron-core-2025",
        seq_length=1024,
    )  # fmt: skip
    with pytest.raises(UserInputError, match=what):
        export(design, "megatron")


def test_scripts_state_nodes_allocator_and_suggestion(
    random_designs: Callable[[str, int], list[Design]],
) -> None:
    """Node count, allocator setting and a learning rate marked as suggestion are in the file."""
    for design in random_designs("megatron", 20):
        nodes = -(-design.plan.gpus // 8)
        slurm, script = export(design, "slurm"), export(design, "megatron")
        assert f"#SBATCH --nodes={nodes}\n" in slurm
        assert f"--nnodes {nodes}\n" in script
        for text in (slurm, script):
            assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
            assert "suggestion, tune it: Step Law, arXiv 2503.04715" in text


def test_a_script_is_valid_bash(tmp_path: Path) -> None:
    """Bash parses the scripts and hands Megatron the arguments they list."""
    import shutil
    import subprocess

    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    design = Design(
        architecture=default_architecture(hidden_size=1024, num_layers=4),
        plan=Plan(tp=2, dp=4, global_batch_size=8, sequence_parallel=True), cluster="H100",
        stack="megatron-core-2025", seq_length=1024, tokens=8 * 1024 * 500,
    )  # fmt: skip
    fake = write(tmp_path, '#!/bin/bash\nprintf "%s\\n" "$@"\n', "torchrun")
    fake.chmod(0o755)
    for format_ in ("megatron", "slurm"):
        script = write(tmp_path, export(design, format_), f"{format_}.sh")
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    done = subprocess.run(
        ["bash", str(tmp_path / "megatron.sh")], check=True, capture_output=True, text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    words = done.stdout.split()
    assert words[words.index("--tensor-model-parallel-size") + 1] == "2"
    assert words[words.index("--train-iters") + 1] == "500"
    assert "./pretrain_gpt.py" in words
