"""Optuna samplers, one fresh sampler a batch, so that a batch depends on its number only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import optuna
    from optuna.samplers import BaseSampler

    from vtrain_search.space import Axis

SAMPLERS = ("tpe", "cmaes", "nsga2", "random")
DEPTH_BASE = 4
STARTUP_TRIALS = 8
"""Fewest finished trials before TPE models them; the warm start has told more by then."""


def batch_seed(seed: int, batch: int) -> int:
    """Return the seed of one batch; resuming at that batch draws the same points."""
    return int(np.random.SeedSequence([seed, batch]).generate_state(1)[0])


def make_sampler(name: str, *, seed: int, batch: int) -> BaseSampler:
    """Return the sampler of one batch.

    Args:
        name: one of SAMPLERS.
        seed: seed of the run.
        batch: number of the batch.

    Raises:
        UserInputError: for an unknown name.
    """
    from optuna import samplers

    number = batch_seed(seed, batch)
    if name == "tpe":
        return samplers.TPESampler(seed=number, n_startup_trials=STARTUP_TRIALS)
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=number, with_margin=True)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=number, population_size=16)
    if name == "random":
        return samplers.RandomSampler(seed=number)
    raise unknown_name("sampler", name, SAMPLERS)


def quiet_optuna() -> None:
    """Keep Optuna's per-trial log lines off stderr."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)


class Encoding:
    """Turns axes into sampler parameters and back.

    Depth is split into a multiple of DEPTH_BASE and a rest: what divides evenly over pipeline
    stages is a matter of the rest, what size the model has of the multiple, and a sampler can only
    learn the two apart. Every depth stays reachable.
    """

    def __init__(self, axes: tuple[Axis, ...], *, categories: bool) -> None:
        """Lay out the parameters.

        Args:
            axes: free dimensions.
            categories: the rest of the depth is a category (a number for CMA-ES, which knows none).
        """
        from optuna.distributions import CategoricalDistribution, IntDistribution

        self._axes = axes
        self._split = {
            axis.name for axis in axes
            if axis.name == "layers" and len(axis.values) >= 2 * DEPTH_BASE
        }  # fmt: skip
        self.distributions: dict[str, optuna.distributions.BaseDistribution] = {}
        for axis in axes:
            if axis.name in self._split:
                low, high = int(axis.values[0]), int(axis.values[-1])
                self.distributions[_multiple(axis)] = IntDistribution(
                    low // DEPTH_BASE, high // DEPTH_BASE
                )
                self.distributions[_rest(axis)] = (
                    CategoricalDistribution(tuple(range(DEPTH_BASE)))
                    if categories
                    else IntDistribution(0, DEPTH_BASE - 1)
                )
            else:
                self.distributions[axis.name] = IntDistribution(0, len(axis.values) - 1)

    def decode(self, params: Mapping[str, Any]) -> dict[str, float]:
        """Return the axis values that parameters stand for."""
        found = {}
        for axis in self._axes:
            if axis.name in self._split:
                value = DEPTH_BASE * params[_multiple(axis)] + params[_rest(axis)]
                found[axis.name] = axis.values[axis.nearest(value)]
            else:
                found[axis.name] = axis.values[params[axis.name]]
        return found

    def encode(self, values: Mapping[str, float]) -> dict[str, int] | None:
        """Return the parameters of some axis values; None where one lies outside its axis."""
        found: dict[str, int] = {}
        for axis in self._axes:
            value = values[axis.name]
            if not axis.values[0] <= value <= axis.values[-1]:
                return None
            if axis.name in self._split:
                found[_multiple(axis)], found[_rest(axis)] = divmod(int(value), DEPTH_BASE)
            else:
                found[axis.name] = axis.nearest(value)
        return found


def _multiple(axis: Axis) -> str:
    return f"{axis.name}_by_{DEPTH_BASE}"


def _rest(axis: Axis) -> str:
    return f"{axis.name}_rest"
