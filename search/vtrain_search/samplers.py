"""Optuna samplers, one fresh sampler a batch, so that a batch depends on its number only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import unknown_name

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler

    from vtrain_search.space import Axis

SAMPLERS = ("tpe", "cmaes", "nsga2", "random")
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


def distributions(axes: tuple[Axis, ...]) -> dict[str, optuna.distributions.BaseDistribution]:
    """Return one integer distribution an axis: the position of its value."""
    from optuna.distributions import IntDistribution

    return {axis.name: IntDistribution(0, len(axis.values) - 1) for axis in axes}
