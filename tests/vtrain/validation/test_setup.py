from __future__ import annotations

import pytest

from tests.vtrain.validation.conftest import line
from vtrain.validation.runs import read_runs
from vtrain.validation.setup import Setup, cluster_of, setup_or_reason
from vtrain.validation.stacks import StackKey, stack_of, without_source


def setup(write_runs, **changes: object) -> Setup | str:
    return setup_or_reason(read_runs(write_runs(line(**changes)))[0])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iteration_s": ""}, "no iteration time"),
        ({"notes": "CHECK: plan"}, "flagged by the data as contradictory"),
        ({"experts": 8}, "mixture of experts"),
        ({"model_name": "llama2-70b-lora"}, "fine-tuning"),
        ({"ffn_hidden": ""}, "architecture not given"),
        ({"micro_batch": ""}, "plan not given"),
        ({"gpu": "MI300X"}, "no shipped device for MI300X"),
        ({"dp": 4}, "tp x cp x pp x dp is not the GPU count"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(write_runs, changes, reason):
    """Every skipped row has its reason."""
    assert setup(write_runs, **changes) == reason


def test_a_batch_the_plan_cannot_run_contradicts_itself(write_runs):
    """Rows whose batch is no multiple of dp x micro-batch are told apart."""
    answer = setup(write_runs, global_batch_seqs=65)
    assert isinstance(answer, str)
    assert answer.startswith("contradicts itself")


def test_the_nvlink_domain_comes_from_the_cluster_not_from_gpus_per_node(write_runs):
    """GB200 rows say 4 GPUs a node, but 72 share NVLink."""
    answer = setup(write_runs, gpu="GB200", gpus_per_node=4, gpu_memory_gib=186)
    assert isinstance(answer, Setup)
    cluster = cluster_of(answer.cluster)
    assert (cluster.gpus_per_node, cluster.nvlink_domain) == (4, 72)


@pytest.mark.parametrize(
    ("gpu", "gib", "notes", "name"),
    [
        ("A100-SXM", 40, "", "a100-sxm-40g"),
        ("A100-SXM", 80, "", "a100-sxm-80g"),
        ("H100-SXM-96GB-HBM2e(500W)", 96, "", "h100-sxm-96g-500w"),
        ("H100-SXM", 80, "inter-node 400 Gb/s EFA", "h100-sxm-80g-efa"),
        ("B200-SXM", 180, "", "b200-sxm-180g"),
        ("GB300", 279, "", "gb300"),
    ],
)
def test_the_cluster_follows_the_gpu_column(write_runs, gpu, gib, notes, name):
    """Board, memory and network pick the shipped cluster."""
    answer = setup(write_runs, gpu=gpu, gpu_memory_gib=gib, notes=notes)
    assert isinstance(answer, Setup)
    assert answer.cluster.name == name


def test_the_row_overrides_the_network_of_the_shipped_cluster(write_runs):
    """A stated link speed counts, in bits a second."""
    answer = setup(write_runs, inter_link_gbps_per_gpu=100)
    assert isinstance(answer, Setup)
    assert cluster_of(answer.cluster).nic_bytes_per_s == 12.5e9


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("nanotron", "nanotron-2024"),
        ("torchtitan", "torchtitan-2024"),
        ("llm-foundry FSDP", "fsdp-2023"),
        ("fms-fsdp", "fsdp-2024"),
        ("InternEvo", "internevo-2023"),
        ("Megatron-DeepSpeed (vTrain)", "megatron-deepspeed-2022"),
        ("Megatron-DeepSpeed", "deepspeed-pipeline-2022"),
        ("Megatron-LM (2022)", "megatron-lm-2022"),
        ("Megatron-Bridge", "megatron-core-2025"),
        ("something new", "megatron-core-2025"),
    ],
)
def test_the_stack_follows_the_framework_column(write_runs, framework, stack):
    """Every framework of the corpus has its stack; an unknown one the default of its kind."""
    answer = setup(write_runs, framework=framework)
    assert isinstance(answer, Setup)
    assert answer.stack.name == stack


def test_nemo_on_a100_is_the_software_of_its_time(write_runs):
    """Rows of 2022 and 2023 ran without overlap; those on newer boards with it."""
    old = setup(write_runs, gpu="A100-SXM", framework="NeMo-Megatron", flash_attention=0)
    assert isinstance(old, Setup)
    assert old.stack.name == "megatron-lm-2022"


def test_what_a_row_states_overrides_its_stack(write_runs):
    """Precision, eager mode and asynchronous tensor parallelism come from the row."""
    eager = setup(write_runs, framework="torchtitan", notes="eager")
    hidden = setup(write_runs, framework="torchtitan", notes="2D + AsyncTP", dtype="fp8")
    assert isinstance(eager, Setup)
    assert isinstance(hidden, Setup)
    assert not stack_of(eager.stack).fused_activation
    assert stack_of(hidden.stack).precision == "fp8"
    assert stack_of(hidden.stack).overlap.tp == 0.5


def test_no_source_is_judged_by_a_constant_fitted_on_it():
    """The value refitted without the source replaces the shipped one, and is told."""
    key, told = without_source(StackKey("megatron-core-2025"), "dgxc", "H100-SXM")
    shipped = stack_of(StackKey("megatron-core-2025"))
    assert stack_of(key).power_relief == shipped.fitted["power_relief"].without["dgxc"]
    assert "power_relief = 1.052 for dgxc, fitted on nemo, mbridge, mlperf" in told[0]
    same, silent = without_source(StackKey("megatron-core-2025"), "other", "H100-SXM")
    assert stack_of(same).power_relief == shipped.power_relief
    assert silent == ()


def test_a_constant_read_off_its_own_rows_is_admitted():
    """nanotron's host table has no other source; the report says so."""
    _, told = without_source(StackKey("nanotron-2024"), "nano", "H100-SXM")
    assert any("was read off the rows of nano" in line for line in told)
