"""Small logs in the documented form of each trainer, six steps of 512 sequences each."""

from __future__ import annotations

STEPS = (9.0, 4.1, 4.0, 4.05, 4.0, 3.95)
BATCH = 512
SEQ = 4096
GPUS = 64
TOKENS = BATCH * SEQ


def megatron(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f" [2024-04-06 02:59:{36 + i}] iteration {first + i:8d}/     100 | consumed samples: "
        f"{(first + i) * BATCH:12d} | elapsed time per iteration (ms): {1000 * t:.1f} | throughput "
        f"per GPU (TFLOP/s/GPU): {390.0 * 4.0 / t:.1f} | learning rate: 8.600000E-06 | global "
        f"batch size: {BATCH:5d} | lm loss: 1.825991E+00 | loss scale: 1.0 | grad norm: 1.426 | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for i, t in enumerate(steps)
    )


def deepspeed(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f" [default7]: iteration {first + i:8d}/  115311 | consumed samples: "
        f"{(first + i) * BATCH:12d} | consumed tokens: {(first + i) * TOKENS:12d} | elapsed time "
        f"per iteration (s): {t:.2f} | learning rate: 5.969E-05 | global batch size: {BATCH:5d} | "
        f"lm loss: 2.463556E+00 | grad norm: 0.174 | num zeros: 0.0 | number of skipped "
        f"iterations:   0 | number of nan iterations:   0 | samples per second: {BATCH / t:.3f} | "
        f"TFLOPs: 149.02 |\n"
        for i, t in enumerate(steps)
    )


def nemo(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f"Training epoch 0, iteration {first + i}/149 | lr: 3e-05 | consumed_samples: "
        f"{(first + i) * BATCH} | global_batch_size: {BATCH} | global_step: {first + i} | "
        f"reduced_train_loss: 1.233 | train_step_timing in s: {t:.4g}\n"
        for i, t in enumerate(steps)
    )


def torchtitan(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f"[rank0]:[titan] 2025-06-16 22:30:{10 + i},322 - root - INFO - \x1b[31mstep: "
        f"{first + i:2d}  \x1b[32mloss:  6.1384  \x1b[33mmemory: 49.66GiB(52.28%)  \x1b[34mtps: "
        f"{TOKENS / t / GPUS:,.0f}  \x1b[36mtflops: {390 * 4.0 / t:.2f}  \x1b[35mmfu: "
        f"{39.0 * 4.0 / t:.2f}%\x1b[39m\n"
        for i, t in enumerate(steps)
    )


def short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def nanotron(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f"10/17/2025 16:31:{10 + i} [INFO|DP=0|PP=0|TP=0]: iteration: {first + i} / 378950 | "
        f"consumed_tokens: {short((first + i) * TOKENS)} | elapsed_time_per_iteration_ms: "
        f"{short(1000 * t)} | tokens_per_sec: {short(TOKENS / t)} | tokens_per_sec_per_gpu: "
        f"{short(TOKENS / t / GPUS)} | global_batch_size: {BATCH} | lm_loss: 2.38 | lr: 1e-05 | "
        f"model_tflops_per_gpu: 380 | hardware_tflops_per_gpu: 380 | grad_norm: 1.25\n"
        for i, t in enumerate(steps)
    )


def llmfoundry(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f"[batch={first + i}/4800]:\n"
        f"\t Train time/batch: {first + i - 1}\n"
        f"\t Train memory/peak_allocated_mem: 44.6420\n"
        f"\t Train loss/train/total: 9.5237\n"
        f"\t Train throughput/batches_per_sec: {1 / t:.6f}\n"
        f"\t Train throughput/samples_per_sec: {BATCH / t:.4f}\n"
        f"\t Train throughput/tokens_per_sec: {TOKENS / t:.4f}\n"
        f"\t Train throughput/device/tokens_per_sec: {TOKENS / t / GPUS:.4f}\n"
        f"\t Train throughput/device/mfu: {0.39 * 4.0 / t:.4f}\n"
        for i, t in enumerate(steps)
    )


def nanogpt(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    return "".join(
        f"iter {first + i}: loss 4.0863, time {1000 * t:.2f}ms, mfu {'-100.00' if i < 1 else 39}%\n"
        for i, t in enumerate(steps)
    )


def table(first: int = 1, steps: tuple[float, ...] = STEPS) -> str:
    head = "iteration,step_time_s,global_batch_size\n"
    return head + "".join(f"{first + i},{t},{BATCH}\n" for i, t in enumerate(steps))


LOGS = {
    "megatron-lm": megatron,
    "megatron-deepspeed": deepspeed,
    "nemo": nemo,
    "torchtitan": torchtitan,
    "nanotron": nanotron,
    "llm-foundry": llmfoundry,
    "nanogpt": nanogpt,
    "csv": table,
}
NOISE = (
    "WARNING: Setting OMP_NUM_THREADS environment variable for each process to be 1\n",
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 2345.0 | max allocated: 5678.0\n",
    "saving checkpoint at iteration      10 to /ckpt\n",
    "(min, max) time across ranks (ms):\n    forward-backward ........: (3812.21, 3813.02)\n",
    "NCCL version 2.21.5+cuda12.4\n",
)
