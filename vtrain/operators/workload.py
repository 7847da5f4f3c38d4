"""The sizes one rank works on, for a set of distinct (tp, cp, micro-batch) shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy.typing as npt

if TYPE_CHECKING:
    import numpy as np

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster, GemmConstants
    from vtrain.plan import Structure
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What the operator costs depend on: scalars of the group, arrays over its shapes.

    Attributes:
        architecture: what is trained.
        cluster: where.
        stack: with what.
        site: factors of the real machine.
        structure: what the group of plans has in common.
        seq_length: tokens of a sequence.
        tp: tensor-parallel degree of each shape, float64 [n].
        cp: context-parallel degree, [n].
        micro_batch_size: sequences, [n].
    """

    architecture: Architecture
    cluster: Cluster
    stack: Stack
    site: SiteFactors
    structure: Structure
    seq_length: int
    tp: Array
    cp: Array
    micro_batch_size: Array

    @property
    def tokens(self) -> Array:
        """Tokens of one micro-batch that this rank's tensor-parallel group works on, [n]."""
        return self.micro_batch_size * (self.seq_length / self.cp)

    @property
    def tokens_between_blocks(self) -> Array:
        """Tokens of one micro-batch on this rank outside tensor-parallel blocks, [n]."""
        return self.tokens / self.tp if self.structure.sequence_parallel else self.tokens

    @property
    def precision(self) -> str:
        """Precision of the matrix multiplications that the device has.

        A device without bf16 (V100) runs fp16, as its users did.
        """
        return device_precision(self.cluster, self.stack)

    @property
    def gemm(self) -> GemmConstants:
        """Constants of matrix multiplication in that precision, inside a training step."""
        return self.gemm_in(self.precision)

    @property
    def gemm_half(self) -> GemmConstants:
        """The same in half precision."""
        return self.gemm_in(self.half_precision)

    def gemm_in(self, precision: str) -> GemmConstants:
        """Return constants with the part of the power limit that a training step feels.

        A step runs memory-bound kernels and waits in between, so its products may draw more
        power than products back to back before the board's limit is reached.
        """
        constants = self.cluster.device.gemm[precision]
        relieved = constants.sustained * self.stack.power_relief
        return replace(constants, sustained=min(max(1.0, constants.sustained), relieved))

    @property
    def gemm_peak_flops(self) -> float:
        """Dense FLOP/s in that precision."""
        return self.cluster.device.peak_flops[self.precision]

    @property
    def half_precision(self) -> str:
        """Precision of everything that is not quantised to fp8."""
        return "bf16" if "bf16" in self.cluster.device.gemm else "fp16"


def device_precision(cluster: Cluster, stack: Stack) -> str:
    """Return the precision the device runs where the stack asks for one it may lack."""
    gemm = cluster.device.gemm
    quantised = {"mxfp8": ("fp8",), "fp4": ("mxfp8", "fp8")}.get(stack.precision, ())
    for name in (stack.precision, *quantised, "bf16", "fp16"):
        if name in gemm:
            return name
    return next(iter(gemm))
