"""The software that ran: plain torch, as `vtrain.profiler.blocks` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.profiler.pointwise import ADAM_BYTES, CLIP_ELEMENTS, ZERO_ELEMENTS
from vtrain.profiler.runtime import PLANNED_ELEMENT_BYTES

if TYPE_CHECKING:
    from vtrain.profiler.fit.launch import Launch
    from vtrain.profiler.meta import Meta


def stack_toml(meta: Meta, launch: Launch) -> dict[str, Any]:
    """Return the stack file of a profile: eager torch, nothing overlapped, nothing sharded.

    Bytes are planned bytes, two an element. Weights, gradients and both moments are of the dtype
    measured; there are no master weights.
    """
    element = PLANNED_ELEMENT_BYTES
    step = (ADAM_BYTES + CLIP_ELEMENTS + ZERO_ELEMENTS) * element
    return {
        "name": f"{meta.name}-torch",
        "title": f"plain torch {meta.torch}, eager, {meta.dtype}",
        "time": {
            "precision": "bf16",
            "attention": "flash2",
            "fused_norm": True,
            "fused_activation": False,
            "fused_rope": True,
            "dropout": False,
            "power_relief": 1.0,
            "loss_traffic_bytes_per_logit": 8.0 * element,
            "accumulation_traffic_bytes_per_parameter": 3.0 * element,
            "optimizer_traffic_bytes_per_parameter": step,
            "gradient_reduce_bytes": element,
            "parameter_gather_bytes": element,
            "bucket_bytes": 0.0,
            "splits_boundary": False,
            "layer_split": "even",
            "vocab_multiple": 1,
            "default_sharding": "none",
            "default_sequence_parallel": False,
            "default_recompute": "none",
            "supports_interleaving": False,
            "overlap": {"tp": 0.0, "dp_reduce": 0.0, "dp_gather": 0.0, "send_recv": 0.0},
            "host": {
                # A CPU starts and runs its kernels one after another: its floors are the kernels'.
                "floor_s": launch.layer_s if meta.kind == "cuda" else 0.0,
                "floor_tp_s": launch.layer_s if meta.kind == "cuda" else 0.0,
                "step_s": launch.step_s,
            },
        },
        "memory": {
            "loss_memory_bytes_per_logit": 3.0 * element,
            "reserved_over_allocated": 1.0,
            "context_bytes": 0.0,
            "buffer_bytes": 0.0,
            "state": {
                "weights": element, "gradients": element, "optimizer": 2.0 * element,
                "weight_gradient_buffers": 0.5 * element,
            },
        },
        "sources": {
            "time": "vtrain/profiler/blocks.py: eager operators one after another",
            "time.loss_traffic_bytes_per_logit": "vtrain/profiler/pointwise.py counts 3 elements "
            "a logit forward and 5 backward",
            "time.accumulation_traffic_bytes_per_parameter": "read and write the buffer, read the "
            "new gradient",
            "time.optimizer_traffic_bytes_per_parameter": "AdamW 7 elements, norm and clip 3, "
            "zeroing 1",
            "time.host": "launch rows of elementwise.csv: an empty layer, an empty optimizer step",
            "memory.state.weight_gradient_buffers": "one new gradient at a time beside the "
            "buffers; the largest, gate and up, is about half of a layer's matrices",
            "memory": "weights, gradients and two moments in the dtype measured; log-softmax, its "
            "gradient and the gradient of the logits alive at once",
        },
    }  # fmt: skip
