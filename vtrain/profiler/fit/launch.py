"""What starting work costs, from the launch rows of a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vtrain.profiler.launch import ENGINE, LAYER, LAYERS, STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain.profiler.fit.attention import AttentionFit
    from vtrain.profiler.fit.memory import MemoryFit
    from vtrain.profiler.fit.products import ProductFit
    from vtrain.profiler.rows import Row

PRODUCTS = 12
"""Products of a layer, forward and backward, as the operator formulas count them."""

KERNELS = 12
"""Memory-bound kernels: two norms, activation, rotary, two residuals, each way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Seconds of starting work; 0 where it was not measured.

    Attributes:
        layer_s: one layer with next to nothing in it, forward and backward.
        step_s: clipping, optimizer and zeroing of next to nothing.
        engine_s: entering autograd once.
    """

    layer_s: float = 0.0
    step_s: float = 0.0
    engine_s: float = 0.0


def launch_of(rows: Sequence[Row]) -> Launch:
    """Return the launch costs that a profile measured."""

    def seconds(key: tuple[str, str]) -> float:
        times = [float(row["time_us"]) * 1e-6 for row in rows if (row["op"], row["pass"]) == key]
        return min(times, default=0.0)

    engine = seconds(ENGINE)
    # The layers are entered once, all together.
    layer = max(seconds(LAYER) - engine, 0.0) / LAYERS
    return Launch(layer_s=layer, step_s=seconds(STEP), engine_s=engine)


def spread_launch(
    launch: Launch, products: ProductFit, attention: AttentionFit | None, memory: MemoryFit | None
) -> tuple[ProductFit, float | None]:
    """Make the kernels of a layer, empty, add up to what an empty layer takes on a CPU.

    There, starting a kernel and running it follow one another; the floors of rows measured one
    by one leave out what lies between them (views, saving for backward, accumulation). What is
    missing goes to the products and memory-bound kernels alike.

    Returns:
        The products with a new floor, and the floor of memory-bound kernels (None: no rows).
    """
    if memory is None:
        return products, None
    own = float(np.median(list(memory.floors_s.values())))
    if not launch.layer_s:
        return products, own
    core = 2.0 * attention.constants.floor_s if attention is not None else 0.0
    floor = max(launch.layer_s - core, 0.1 * launch.layer_s) / (PRODUCTS + KERNELS)
    constants = replace(products.constants, floor_s=floor)
    return replace(products, constants=constants), floor
