"""Data-, tensor- and pipeline-parallel steps in plain torch.distributed, against predictions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.architecture import Architecture
from vtrain.profiler.blocks import Decoder, Split
from vtrain.profiler.group import Group, open_group
from vtrain.profiler.prediction import NINETY, SD_OF_MEAN_ERROR, Prediction, Profile
from vtrain.profiler.report import verdict_text
from vtrain.profiler.steps import CLIP
from vtrain.profiler.timing import Stopwatch
from vtrain.profiler.verify import Check, Verdict

if TYPE_CHECKING:
    from vtrain.profiler.run import VerifyOptions

MODES = ("dp", "tp", "pp")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelConfig:
    """One parallel step over all ranks.

    Attributes:
        mode: one of MODES.
        architecture: the decoder.
        seq_length: tokens of a sequence.
        micro_batch_size: sequences of a micro-batch.
        micro_batches: micro-batches on each replica.
    """

    mode: str
    architecture: Architecture
    seq_length: int
    micro_batch_size: int
    micro_batches: int

    @property
    def label(self) -> str:
        """Short text for a table."""
        a = self.architecture
        return (
            f"{self.mode} h{a.hidden_size} L{a.num_layers} f{a.ffn_hidden_size} V{a.vocab_size} "
            f"{self.micro_batches}x{self.micro_batch_size}x{self.seq_length}"
        )


def parallel_configs(kind: str, ranks: int) -> list[ParallelConfig]:
    """Return three models in each mode."""
    scale, heads = (8, 64) if kind == "cuda" else (1, 32)
    out = []
    for mode in MODES:
        for hidden, layers, batch, seq in ((256, 4, 2, 256), (384, 4, 4, 128), (512, 4, 2, 256)):
            width = hidden * scale
            count = -(-layers // ranks) * ranks
            out.append(
                ParallelConfig(
                    mode=mode,
                    architecture=Architecture(
                        num_layers=count, hidden_size=width, num_attention_heads=width // heads,
                        num_key_value_heads=width // heads, head_dim=heads,
                        ffn_hidden_size=width * 3, gated_mlp=True,
                        vocab_size=2048 * scale,
                    ),
                    seq_length=seq * (8 if kind == "cuda" else 1), micro_batch_size=batch,
                    micro_batches=2 * ranks if mode == "pp" else 1,
                )
            )  # fmt: skip
    return out


def verify_parallel(profile: Profile, options: VerifyOptions) -> Iterator[str]:
    """Run the parallel steps on every rank; the first one yields the comparison."""
    kind = profile.meta.kind
    with open_group(kind, profile.meta.units if kind == "cpu" else 1) as group:
        watch = _WallWatch(group, profile.meta.anchor_s)
        checks = []
        for config in parallel_configs(kind, group.size):
            time_s, raw_s, spread = _measure(group, watch, config, options.repeats)
            checks.append(
                Check(
                    label=config.label, measured_s=time_s, raw_s=raw_s, spread=spread,
                    predicted=predict_parallel(profile, config, group.size),
                )
            )  # fmt: skip
        verdict = Verdict(
            checks=tuple(checks), skipped=(), anchor_s=float(np.median(watch.anchors)),
            unrest=watch.unrest(),
        )  # fmt: skip
        if group.rank == 0:
            yield verdict_text(profile, verdict, as_json=options.as_json)
            if not options.as_json:
                for mode in MODES:
                    errors = [abs(c.time_error) for c in checks if c.label.startswith(mode)]
                    yield f"{mode}: MAPE {100 * float(np.mean(errors)):.1f} %"


def predict_parallel(profile: Profile, config: ParallelConfig, ranks: int) -> Prediction:
    """Predict one parallel step from the profile's cluster and stack."""
    from vtrain.estimate import step_seconds
    from vtrain.plan import Plan, PlanTable
    from vtrain.site import SiteFactors

    dp, tp, pp = (ranks if name == config.mode else 1 for name in MODES)
    plan = Plan(
        dp=dp, tp=tp, pp=pp, micro_batch_size=config.micro_batch_size,
        global_batch_size=config.micro_batch_size * config.micro_batches * dp,
        sharding="none",
    )  # fmt: skip
    seconds = step_seconds(
        config.architecture, profile.cluster, profile.stack, PlanTable.from_plans([plan]),
        seq_length=config.seq_length,
        site=SiteFactors(matrix=profile.meta.shared_matrix, memory=profile.meta.shared_memory),
    )  # fmt: skip
    step = float(seconds[0])
    sd = SD_OF_MEAN_ERROR * profile.product_error
    return Prediction(
        step_time_s=step, analytic_s=step, low_s=step * float(np.exp(-NINETY * sd)),
        high_s=step * float(np.exp(NINETY * sd)), mem_peak_bytes=0.0, missed=(),
    )  # fmt: skip


class _WallWatch(Stopwatch):
    """Anchors in wall time on all ranks at once: ranks wait for one another, so waiting counts."""

    def __init__(self, group: Group, anchor_s: float) -> None:
        super().__init__(group.runtime, anchor_s)
        self.group = group
        self.anchors = []

    def wall_anchor(self, count: int) -> float:
        self.group.barrier()
        seconds = self.group.slowest(self.wall_seconds(self._anchor, count))
        self.anchors.append(seconds)
        return seconds


def _measure(
    group: Group, watch: _WallWatch, config: ParallelConfig, repeats: int
) -> tuple[float, float, float]:
    """Time whole steps in wall time; median of (step / anchor), plain median, spread."""
    step = _STEPS[config.mode](group, config)
    step()
    group.barrier()
    start = time.perf_counter()
    step()
    # Ranks leave together, so all count alike: anchors as long as a fifth of a step.
    seconds = group.slowest(time.perf_counter() - start)
    count = int(np.clip(0.2 * seconds / watch.anchor_s, 3, 200))
    times, anchors = np.empty(repeats), np.empty(repeats)
    for index in range(repeats):
        before = watch.wall_anchor(count)
        group.barrier()
        start = time.perf_counter()
        step()
        group.runtime.synchronize()
        times[index] = group.slowest(time.perf_counter() - start)
        anchors[index] = 0.5 * (before + watch.wall_anchor(count))
    ratios = times / anchors
    low, middle, high = np.percentile(ratios, (25.0, 50.0, 75.0))
    return (
        float(middle * watch.anchor_s), float(np.median(times)),
        float(0.5 * (high - low) / middle),
    )  # fmt: skip


def _data(group: Group, config: ParallelConfig) -> tuple[Any, Any]:
    torch = group.runtime.torch
    shape = (config.micro_batches, config.micro_batch_size, config.seq_length)
    ids, targets = (
        torch.randint(0, config.architecture.vocab_size, shape, device=group.runtime.device)
        for _ in range(2)
    )
    return ids, targets


def _optimizer(group: Group, model: Decoder) -> Any:
    torch = group.runtime.torch
    parameters = model.parameters()
    made = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        made.step()
        for weight in parameters:
            weight.grad.zero_()

    return update


def _data_parallel(group: Group, config: ParallelConfig) -> Any:
    """Whole replicas; one flat all-reduce of the gradients after the backward pass."""
    torch, dist = group.runtime.torch, group.dist
    model = Decoder(group.runtime, config.architecture, config.seq_length)
    parameters = model.parameters()
    flat = torch.zeros(
        sum(w.numel() for w in parameters), device=group.runtime.device, dtype=group.runtime.dtype
    )
    at = 0
    for weight in parameters:
        # Gradients are views of one buffer, which then travels as one message.
        weight.grad = flat[at : at + weight.numel()].view_as(weight)
        at += weight.numel()
    update = _optimizer(group, model)
    ids, targets = _data(group, config)

    def step() -> None:
        for x, y in zip(ids, targets, strict=True):
            model.loss(model.blocks(model.embed(x)), y).backward()
        dist.all_reduce(flat)
        update()

    return step


def _tensor_parallel(group: Group, config: ParallelConfig) -> Any:
    """Heads, feed-forward and vocabulary split; each block's output is summed (Megatron-LM)."""
    torch, dist = group.runtime.torch, group.dist

    class Enter(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
            return gradient

    class Leave(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = x.contiguous()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    split = Split(tp=group.size, enter=Enter.apply, leave=Leave.apply)
    model = Decoder(group.runtime, config.architecture, config.seq_length, split)
    update = _optimizer(group, model)
    ids, targets = _data(group, config)

    def step() -> None:
        for x, y in zip(ids, targets, strict=True):
            model.loss(model.blocks(model.embed(x)), y).backward()
        update()

    return step


def _pipeline_parallel(group: Group, config: ParallelConfig) -> Any:
    """Layers split; 1F1B. Sends run on by themselves: two ranks that send at once would wait."""
    torch, dist, rank, last = group.runtime.torch, group.dist, group.rank, group.size - 1
    split = Split(
        layers=config.architecture.num_layers // group.size, embedding=rank == 0, head=rank == last
    )
    model = Decoder(group.runtime, config.architecture, config.seq_length, split)
    update = _optimizer(group, model)
    ids, targets = _data(group, config)
    shape = (config.micro_batch_size, config.seq_length, config.architecture.hidden_size)
    kind = {"device": group.runtime.device, "dtype": group.runtime.dtype}

    # A message must live until it has arrived.
    flying: list[tuple[Any, Any]] = []

    def send(message: Any, to: int) -> None:
        flying.append((dist.isend(message, to), message))

    def forward(index: int) -> tuple[Any, Any]:
        if rank == 0:
            entered, x = None, model.embed(ids[index])
        else:
            entered = torch.empty(shape, **kind)
            dist.recv(entered, rank - 1)
            x = entered.requires_grad_()
        out = model.blocks(x)
        if rank == last:
            return entered, model.loss(out, targets[index])
        send(out.detach(), rank + 1)
        return entered, out

    def backward(entered: Any, out: Any) -> None:
        gradient = None
        if rank != last:
            gradient = torch.empty(shape, **kind)
            dist.recv(gradient, rank + 1)
        out.backward(gradient)
        if rank != 0:
            send(entered.grad, rank - 1)

    def step() -> None:
        held: list[tuple[Any, Any]] = []
        ahead = min(last - rank, config.micro_batches)
        for index in range(ahead):
            held.append(forward(index))
        for index in range(ahead, config.micro_batches):
            held.append(forward(index))
            backward(*held.pop(0))
        for entered, out in held:
            backward(entered, out)
        for handle, _ in flying:
            handle.wait()
        flying.clear()
        update()

    return step


_STEPS = {"dp": _data_parallel, "tp": _tensor_parallel, "pp": _pipeline_parallel}
