"""Random training configurations that a profile has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtrain.architecture import Architecture
from vtrain.profiler.steps import Config

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranges:
    """What configurations are drawn from.

    Attributes:
        hidden: fewest and most hidden units.
        hidden_unit: hidden sizes are multiples of it.
        head_dims: sizes of a head.
        layers: fewest and most layers.
        sequences: sequence lengths.
        batches: micro-batch sizes.
        vocabularies: vocabulary sizes.
        flops: most model FLOPs of a step.
        parameters: fewest and most parameters.
    """

    hidden: tuple[int, int]
    hidden_unit: int
    head_dims: tuple[int, ...]
    layers: tuple[int, int]
    sequences: tuple[int, ...]
    batches: tuple[int, ...]
    vocabularies: tuple[int, ...]
    flops: float
    parameters: tuple[float, float]


RANGES = {
    "cpu": Ranges(
        hidden=(128, 1024), hidden_unit=64, head_dims=(32, 64), layers=(2, 8),
        sequences=(64, 128, 256, 384, 512, 1024), batches=(1, 2, 3, 4, 6, 8),
        vocabularies=(1024, 2048, 5000, 8192), flops=1.5e11, parameters=(1e5, 1e8),
    ),
    "cuda": Ranges(
        hidden=(1024, 8192), hidden_unit=256, head_dims=(64, 128), layers=(2, 24),
        sequences=(1024, 2048, 4096, 8192), batches=(1, 2, 4, 8),
        vocabularies=(32000, 50304, 128256), flops=3e14, parameters=(1e8, 8e9),
    ),
}  # fmt: skip


def random_configs(kind: str, count: int, seed: int) -> list[Config]:
    """Return `count` distinct configurations, from small to large.

    Hidden sizes are spread over the whole range, one to an equal part of its logarithm; what
    exceeds the limits is drawn again with the same width, so wide models meet short batches.
    """
    ranges = RANGES[kind]
    random = np.random.default_rng(seed)
    out: dict[str, Config] = {}
    while len(out) < count:
        config = _draw(random, ranges, len(out) / count, 1.0 / count)
        low, high = ranges.parameters
        if config.flops <= ranges.flops and low <= config.architecture.parameters <= high:
            out.setdefault(config.label, config)
    return sorted(out.values(), key=lambda config: config.flops)


def _draw(random: Generator, ranges: Ranges, place: float, width: float) -> Config:
    low, high = np.log(ranges.hidden[0]), np.log(ranges.hidden[1])
    unit = ranges.hidden_unit
    drawn = np.exp(low + (high - low) * (place + width * random.uniform()))
    hidden = max(1, round(float(drawn) / unit)) * unit
    hidden = max(hidden, ranges.hidden[0])
    head_dim = int(random.choice(ranges.head_dims))
    ffn = round(random.uniform(2.0, 4.0) * hidden / unit) * unit
    heads = hidden // head_dim
    return Config(
        architecture=Architecture(
            num_layers=int(random.integers(ranges.layers[0], ranges.layers[1] + 1)),
            hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=heads,
            head_dim=head_dim, ffn_hidden_size=ffn, gated_mlp=True,
            vocab_size=int(random.choice(ranges.vocabularies)),
        ),
        seq_length=int(random.choice(ranges.sequences)),
        micro_batch_size=int(random.choice(ranges.batches)),
    )  # fmt: skip
