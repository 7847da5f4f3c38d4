"""The whole question as one frozen value: what every worker needs to evaluate an architecture."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from vtrain.memory_limit import SHARE_FITS
from vtrain.site import SHIPPED, SiteFactors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vtrain.hardware import Cluster
    from vtrain.stack import Stack
    from vtrain_search.laws import LossModel
    from vtrain_search.pins import Pins
    from vtrain_search.space import OuterSpace

Size = TypeVar("Size", float, "NDArray[np.float64]")

MIN_STEPS = 2_000
MIN_TOKENS_PER_PARAMETER = 1.0
OBJECTIVES = ("loss", "cost", "time")
"""What is minimised: the loss a budget buys, or the dollars or days that a loss takes."""
DEFAULT_DEADLINE_S = 30 * 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """GPUs that can be rented: a cluster at a price.

    Attributes:
        name: what the user called the cluster; goes into rows.
        cluster: the hardware.
        price_usd_per_gpu_hour: price of one GPU for one hour.
        price_source: where the price comes from, one line.
    """

    name: str
    cluster: Cluster
    price_usd_per_gpu_hour: float
    price_source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One row of the scaling table: a budget, its offers and its limits.

    Exactly one of usd, gpu_hours, flop is given, or none where tokens are fixed.

    Attributes:
        label: the budget as the user wrote it.
        offers: clusters to choose from.
        usd: dollars at most.
        gpu_hours: GPU-hours at most.
        flop: model FLOPs at most.
        deadline_s: wall time at most.
        max_gpus: GPUs at most; the cluster's own number still holds.
        tokens: fixed training tokens; None spends the budget.
        tokens_per_parameter: fixed training tokens for each parameter; None spends the budget.
        target_loss: loss to reach; tokens then follow from it, and the budget is only a limit.
        objective: one of OBJECTIVES; "cost" and "time" need a target loss.
    """

    label: str
    offers: tuple[Offer, ...]
    usd: float | None = None
    gpu_hours: float | None = None
    flop: float | None = None
    deadline_s: float = DEFAULT_DEADLINE_S
    max_gpus: int = 1 << 30
    tokens: float | None = None
    tokens_per_parameter: float | None = None
    target_loss: float | None = None
    objective: str = "loss"

    @property
    def searched(self) -> Case:
        """The case that a search looks at: the cheapest way to a loss is sought without a budget.

        Dollars and GPU-hours can only accept or refuse that way once it is found. A search that
        drops what costs more cannot see where the cheapest lies.
        """
        if self.objective != "cost":
            return self
        return replace(self, usd=None, gpu_hours=None)

    @property
    def pinned(self) -> bool:
        """Whether tokens are pinned: the budget then only limits what a run may cost."""
        return self.tokens is not None or self.tokens_per_parameter is not None

    def unspent_usd(self, cost_usd: float, offer: Offer) -> float:
        """Return what a run at this offer leaves of dollars or GPU-hours; negative above them.

        Args:
            cost_usd: what the run costs.
            offer: cluster and price.
        """
        hours = self.affordable_gpu_hours(offer)
        return hours * offer.price_usd_per_gpu_hour - cost_usd if np.isfinite(hours) else 0.0

    def affordable_gpu_hours(self, offer: Offer) -> float:
        """Return the GPU-hours the budget buys at this offer; inf where it names none."""
        if self.gpu_hours is not None:
            return self.gpu_hours
        if self.usd is not None:
            return self.usd / offer.price_usd_per_gpu_hour
        return float(np.inf)

    def fixed_tokens(self, parameters: Size) -> Size | float | None:
        """Return the tokens that are fixed for models of some sizes; None where none are.

        Args:
            parameters: of each model, any shape.
        """
        if self.tokens_per_parameter is not None:
            return self.tokens_per_parameter * parameters
        return self.tokens

    def times(self, factor: float) -> Case:
        """Return the case with a budget so many times as large."""
        more = {k: v * factor for k in ("usd", "gpu_hours", "flop") if (v := getattr(self, k))}
        return replace(self, **more)

    def gpu_limit(self, offer: Offer) -> int:
        """Return the largest number of GPUs at this offer."""
        return min(self.max_gpus, offer.cluster.max_gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Cases that share one software stack, one loss model and one space of architectures.

    Attributes:
        cases: rows of the scaling table, in the user's order.
        stack: training software.
        stack_name: what the user called it; goes into rows.
        seq_length: tokens of a sequence.
        space: architectures to choose from.
        pins: limits on single dimensions.
        loss: loss model.
        site: factors that adapt shipped constants to one real cluster.
        min_steps: fewest optimizer steps of a run.
        min_tokens_per_parameter: fewest tokens a parameter.
        longest_sequence: tokens of the longest sequence a fixed model is made for, where its file
            says.
        memory_limit_share: of what the context leaves, that the allocated peak may take.
    """

    cases: tuple[Case, ...]
    stack: Stack
    stack_name: str
    seq_length: int
    space: OuterSpace
    pins: Pins
    loss: LossModel = field(repr=False)
    site: SiteFactors = SHIPPED
    min_steps: int = MIN_STEPS
    min_tokens_per_parameter: float = MIN_TOKENS_PER_PARAMETER
    longest_sequence: int | None = None
    memory_limit_share: float = SHARE_FITS
