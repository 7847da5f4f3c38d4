"""What ships with vtrain, as frames: models, clusters, training software, prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


def models() -> DataFrame:
    """Return the shipped models, one row each: shape, parameters, sequence length, source."""
    import pandas as pd

    from vtrain.models import load_model, model_names

    rows = []
    for name in model_names():
        model = load_model(name)
        a = model.architecture
        rows.append({
            "model": name, "parameters": a.parameters, "layers": a.num_layers,
            "hidden_size": a.hidden_size, "ffn_hidden_size": a.ffn_hidden_size,
            "num_attention_heads": a.num_attention_heads,
            "num_key_value_heads": a.num_key_value_heads, "vocab_size": a.vocab_size,
            "seq_length": model.seq_length,
            "source": model.sources.get("architecture", {}).get("source", ""),
        })  # fmt: skip
    return pd.DataFrame(rows).set_index("model")


def clusters() -> DataFrame:
    """Return the shipped clusters, one row each: GPUs, memory, peak, links, assumed price."""
    import pandas as pd

    from vtrain.presets import cluster_names, load_cluster

    rows = []
    for name in cluster_names():
        c = load_cluster(name)
        rows.append({
            "cluster": name, "gpus_per_node": c.gpus_per_node, "max_gpus": c.max_gpus,
            "memory_gb": c.device.memory_bytes / 1e9,
            "peak_bf16_tflops": c.device.peak_flops.get("bf16", float("nan")) / 1e12,
            "nics_per_node": c.nics_per_node, "nic_gbits_per_s": c.nic_bytes_per_s * 8.0 / 1e9,
            "price_usd_per_gpu_hour": _price_or_nan(name),
        })  # fmt: skip
    return pd.DataFrame(rows).set_index("cluster")


def stacks() -> DataFrame:
    """Return the shipped training software, one row each."""
    import pandas as pd

    from vtrain.presets import load_stack, stack_names

    loaded = {name: load_stack(name) for name in stack_names()}
    rows = [
        {"stack": name, "title": s.title, "precision": s.precision,
         "default_sharding": s.default_sharding, "default_recompute": s.default_recompute}
        for name, s in loaded.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("stack")


def prices(cluster: str) -> DataFrame:
    """Return every listed price of a cluster with its seller, date and source."""
    import pandas as pd

    from vtrain.presets import load_cluster
    from vtrain.prices import prices_for

    columns = ("usd_per_gpu_hour", "provider", "tier", "commitment", "region", "date", "source")
    listed = prices_for(load_cluster(cluster).name)
    rows = [{c: getattr(p, c) for c in columns} for p in listed]
    return pd.DataFrame(rows, columns=list(columns))


def _price_or_nan(cluster: str) -> float:
    from vtrain.prices import prices_for

    listed = prices_for(cluster)
    return listed[0].usd_per_gpu_hour if listed else float("nan")
