"""A handful of invented runs in both published schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

HEADER = (
    "run_id,source,gpu,gpu_memory_gib,gpus,gpus_per_node,intra_link,inter_link_gbps_per_gpu,"
    "framework,dtype,model_name,params_b,layers,hidden,heads,kv_heads,ffn_hidden,gated_mlp,vocab,"
    "seq_len,experts,experts_top_k,global_batch_seqs,micro_batch,tp,pp,dp,cp,ep,vpp,"
    "zero_stage_or_fsdp,sequence_parallel,recompute,flash_attention,iteration_s,"
    "tokens_per_s_per_gpu,tflops_per_gpu_model,mfu,peak_memory_gib,notes"
)


def line(**changes: object) -> str:
    """One row of the published schema: Llama-like 1B on 8 H100 under NeMo, unless changed."""
    values: dict[str, object] = {
        "run_id": "lab-0001", "source": "invented", "gpu": "H100-SXM", "gpu_memory_gib": 80,
        "gpus": 8, "gpus_per_node": 8, "intra_link": "NVLink4", "inter_link_gbps_per_gpu": 400,
        "framework": "NeMo/Megatron-Core", "dtype": "bf16", "model_name": "llama-1B",
        "params_b": 1.3, "layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 16,
        "ffn_hidden": 5632, "gated_mlp": 1, "vocab": 32000, "seq_len": 2048, "experts": "",
        "experts_top_k": "", "global_batch_seqs": 64, "micro_batch": 1, "tp": 1, "pp": 1, "dp": 8,
        "cp": 1, "ep": 1, "vpp": 1, "zero_stage_or_fsdp": "zero1", "sequence_parallel": 0,
        "recompute": "none", "flash_attention": 1, "iteration_s": 0.4,
        "tokens_per_s_per_gpu": "", "tflops_per_gpu_model": "", "mfu": 0.4,
        "peak_memory_gib": "", "notes": "",
    }  # fmt: skip
    values.update(changes)
    return ",".join(str(values[name]) for name in HEADER.split(","))


@pytest.fixture
def write_runs(tmp_path: Path):
    """Write rows of the published schema and return the file."""

    def write(*rows: str) -> Path:
        path = tmp_path / "runs.csv"
        path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
        return path

    return write
