"""From a measured row to what the simulator takes, or the reason why it cannot be judged."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.plan import Plan
from vtrain.presets import load_cluster
from vtrain.validation.stacks import StackKey, stack_key

if TYPE_CHECKING:
    from vtrain.hardware import Cluster
    from vtrain.validation.runs import MeasuredRun


class ClusterKey(NamedTuple):
    """A shipped cluster with what the row says about its network."""

    name: str
    gpus_per_node: int
    nic_bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One judged row as the simulator sees it; rows with equal keys are estimated together."""

    architecture: Architecture
    cluster: ClusterKey
    stack: StackKey
    seq_length: int
    plan: Plan


# (pattern of gpu, source and notes, least memory in GiB, shipped cluster); the first match counts.
# The SimuMax laboratory published the operator table of its own machine.
_CLUSTERS = (
    (r"^B200-SXM simumax ", 0.0, "b200-sxm-180g-simumax"),
    (r"^H100-SXM .*EFA", 0.0, "h100-sxm-80g-efa"),
    (r"^A100-PCI", 0.0, "a100-pcie-80g"),
    (r"^A100", 41.0, "a100-sxm-80g"),
    (r"^A100", 0.0, "a100-sxm-40g"),
    (r"^A800", 0.0, "a100-sxm-80g"),
    (r"^V100", 17.0, "v100-sxm-32g"),
    (r"^V100", 0.0, "v100-sxm-16g"),
    (r"^H100\S*500W", 0.0, "h100-sxm-96g-500w"),
    (r"^H100", 0.0, "h100-sxm-80g"),
    (r"^H200", 0.0, "h200-sxm-141g"),
    (r"^GB200", 0.0, "gb200"),
    (r"^GB300", 0.0, "gb300"),
    (r"^B200", 0.0, "b200-sxm-180g"),
    (r"^B300", 0.0, "b300-sxm-288g"),
)
_SHARDING = {
    "": "none", "none": "none", "zero0": "none", "zero1": "zero1", "zero2": "zero2",
    "fsdp_shard_grad_op": "zero2", "zero3": "zero3", "fsdp": "zero3", "fsdp2": "zero3",
    "fsdp_full_shard": "zero3", "hsdp": "zero3", "fsdp(zero2-like)": "zero2",
}  # fmt: skip
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_mlp", "vocab", "seq_len")
_PLAN = ("global_batch_seqs", "micro_batch", "tp", "pp", "dp")


def setup_or_reason(run: MeasuredRun) -> Setup | str:
    """Return the row as a simulator input, or in a few words why it is not judged."""
    reason = _not_judged(run)
    if reason:
        return reason
    cluster = _cluster_key(run)
    if cluster is None:
        return f"no shipped device for {run.gpu}"
    try:
        architecture = _architecture(run)
        plan = _plan(run)
    except UserInputError as error:
        return f"contradicts itself: {error.message.split(',')[0][:60]}"
    if run.gpus and plan.gpus != run.gpus:
        return "tp x cp x pp x dp is not the GPU count"
    if plan.pp * plan.virtual_stages > architecture.num_layers + 2:
        return "more stages than layers"
    return Setup(
        architecture=architecture,
        cluster=cluster,
        stack=stack_key(run, architecture, plan),
        seq_length=int(run.seq_len or 0),
        plan=plan,
    )


@cache
def _shipped(name: str) -> Cluster:
    return load_cluster(name)


@cache
def cluster_of(key: ClusterKey) -> Cluster:
    """Return the shipped cluster with the network the row states."""
    cluster = _shipped(key.name)
    nic = key.nic_bytes_per_s or cluster.nic_bytes_per_s
    return replace(cluster, gpus_per_node=key.gpus_per_node, nic_bytes_per_s=nic, max_gpus=1 << 20)


def _not_judged(run: MeasuredRun) -> str:
    if run.iteration_s is None or run.iteration_s <= 0.0:
        return "no iteration time"
    if re.search(r"CHECK|INCONSISTENT", run.notes):
        return "flagged by the data as contradictory"
    if run.experts:
        return "mixture of experts"
    if re.search(r"-(lora|sft)\b|LoRA|fine-tuning", f"{run.model_name} {run.notes}"):
        return "fine-tuning"
    missing = [name for name in _SHAPE if getattr(run, name) is None]
    if missing:
        return "architecture not given"
    missing = [name for name in _PLAN if getattr(run, name) is None]
    if missing:
        return "plan not given"
    return ""


def _cluster_key(run: MeasuredRun) -> ClusterKey | None:
    told = f"{run.gpu} {run.source} {run.notes}"
    gib = run.gpu_memory_gib or 80.0
    for pattern, least_gib, name in _CLUSTERS:
        if gib >= least_gib and re.search(pattern, told):
            shipped = _shipped(name)
            gbps = run.inter_link_gbps_per_gpu
            return ClusterKey(
                name,
                int(run.gpus_per_node or shipped.gpus_per_node),
                gbps * 1e9 / 8.0 if gbps else None,
            )
    return None


def _architecture(run: MeasuredRun) -> Architecture:
    hidden, heads = int(run.hidden or 0), int(run.heads or 1)
    gated = bool(run.gated_mlp)
    bloom = "bigscience" in run.notes or run.vocab == 250880.0
    learned = not gated and not bloom
    # What the schema does not say: public GPT-like rows have learned positions and biases, the
    # gated ones are Llama-like; both matter for memory and for small kernels only.
    return Architecture(
        num_layers=int(run.layers or 0),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=int(run.kv_heads or heads),
        head_dim=_head_dim(run, hidden, heads),
        ffn_hidden_size=int(run.ffn_hidden or 0),
        gated_mlp=gated,
        vocab_size=int(run.vocab or 0),
        tied_embeddings=_tied(run, gated),
        position="learned" if learned else ("alibi" if bloom else "rotary"),
        max_positions=int(run.seq_len or 0) if learned else 0,
        norm="rmsnorm" if gated else "layernorm",
        attention_qkv_bias=not gated,
        attention_output_bias=not gated,
        mlp_bias=not gated,
        embedding_norm=bloom,
    )


def _head_dim(run: MeasuredRun, hidden: int, heads: int) -> int:
    if hidden % heads == 0:
        return hidden // heads
    return max(1, round(hidden / heads))


def _tied(run: MeasuredRun, gated: bool) -> bool:
    """Llama-like and vTrain's models do not tie; other GPT-like ones do."""
    return not gated and "vTrain" not in run.framework


def _plan(run: MeasuredRun) -> Plan:
    tp, cp = int(run.tp or 1), int(run.cp or 1)
    sharding = _SHARDING.get(run.zero_stage_or_fsdp.lower())
    if sharding is None:
        sharding = "zero3" if "fsdp" in run.zero_stage_or_fsdp.lower() else "zero1"
    stated = run.sequence_parallel
    recompute = run.recompute if run.recompute in ("none", "selective", "full") else ""
    return Plan(
        tp=tp,
        cp=cp,
        pp=int(run.pp or 1),
        dp=int(run.dp or 1),
        virtual_stages=int(run.vpp or 1),
        micro_batch_size=int(run.micro_batch or 1),
        global_batch_size=int(run.global_batch_seqs or 1),
        recompute=recompute or _default_recompute(run),
        sharding=sharding,
        sequence_parallel=tp > 1 and (bool(stated) if stated is not None else True),
    )


def _default_recompute(run: MeasuredRun) -> str:
    """Where the table is silent: Paxml's GPT recipes checkpoint every layer, the rest do not."""
    return "full" if re.search("paxml|maxtext", run.framework.lower()) else "none"
