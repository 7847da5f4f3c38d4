from __future__ import annotations

import numpy as np
import pytest

from vtrain.architecture import default_architecture
from vtrain.calibrate import fit_factors, fit_site_factors, residual_log_sd
from vtrain.errors import UserInputError
from vtrain.estimate import step_seconds
from vtrain.interval import interval_multipliers
from vtrain.plan import Plan, PlanTable
from vtrain.presets import load_cluster, load_stack
from vtrain.site import SiteFactors

MODEL = default_architecture(hidden_size=4096, num_layers=32)
PLANS = PlanTable.from_plans([
    Plan(tp=tp, pp=pp, dp=64 // (tp * pp), micro_batch_size=1, global_batch_size=batch,
         sequence_parallel=tp > 1)
    for tp, pp, batch in (
        (1, 1, 64), (1, 1, 512), (2, 1, 128), (4, 1, 256), (8, 1, 64), (2, 4, 256), (4, 2, 128),
        (8, 2, 512),
    )
])  # fmt: skip


def seconds(site: SiteFactors) -> np.ndarray:
    return step_seconds(
        MODEL, load_cluster("h100"), load_stack("megatron-core-2025"), PLANS,
        seq_length=4096, site=site,
    )  # fmt: skip


def fit(measured):
    return fit_site_factors(
        MODEL, load_cluster("h100"), load_stack("megatron-core-2025"), PLANS, measured,
        seq_length=4096,
    )  # fmt: skip


def test_a_site_like_the_shipped_one_moves_nothing():
    """Measured as predicted: every factor stays 1, and the interval shrinks to its prior."""
    found = fit(seconds(SiteFactors()))
    for name in ("matrix", "memory", "communication", "host"):
        assert getattr(found.factors, name) == pytest.approx(1.0, abs=1e-6)
    low, high = found.interval
    assert 0.9 < low < 1.0 < high < 1.1


def test_a_slow_site_is_found():
    """All of 8 plans 20 % slow: predictions under the fit are within 3 %."""
    truth = seconds(SiteFactors(matrix=1.2, memory=1.2, communication=1.2, host=1.2))
    found = fit(truth)
    assert np.abs(seconds(found.factors) / truth - 1.0).max() < 0.03
    assert found.factors.matrix > 1.1


def test_one_wild_row_does_not_move_the_site():
    """A run that retried and took five times as long is not the site's speed."""
    truth = seconds(SiteFactors())
    truth[3] *= 5.0
    found = fit(truth)
    others = np.delete(seconds(found.factors) / truth, 3)
    assert np.abs(others - 1.0).max() < 0.02


def test_what_the_rows_do_not_speak_of_keeps_its_prior():
    """With one GPU and no traffic, communication stays where it was, as uncertain as before."""
    found = fit_factors(lambda site: np.full(8, 2.0 * site.matrix), np.full(8, 2.2))
    assert found.factors.communication == pytest.approx(1.0)
    assert found.log_sd["communication"] == pytest.approx(0.3)
    assert found.log_sd["matrix"] < 0.05
    assert found.factors.matrix == pytest.approx(1.1, abs=0.01)


def test_a_factor_without_prior_spread_is_held():
    """Spread 0 fixes a factor at 1."""
    found = fit_factors(
        lambda site: np.full(4, site.matrix * site.memory), np.full(4, 1.2),
        prior_log_sd={"memory": 0.2},
    )  # fmt: skip
    assert found.factors.matrix == 1.0
    assert found.factors.memory > 1.1


def test_the_interval_is_wider_on_the_slow_side():
    """Outliers are slow runs."""
    low, high = interval_multipliers(0.1)
    assert np.log(high) > -np.log(low)


def test_scatter_of_the_rows_widens_the_interval():
    """Residuals of 20 % say more than the prior's 6 %, and a wild one counts only so much."""
    assert residual_log_sd(np.full(8, 0.2)) > 2.0 * residual_log_sd(np.zeros(8))
    assert residual_log_sd(np.array([3.0] + [0.0] * 7)) < 0.2


@pytest.mark.parametrize(
    ("measured", "message"),
    [([], "one measured step a plan"), ([1.0] * 3, "got 3 for 8"), ([0.0] * 8, "positive")],
)
def test_measurements_that_cannot_be_are_refused(measured, message):
    """No rows, too few, or not a time."""
    with pytest.raises(UserInputError, match=message):
        fit(np.array(measured))
