"""The fitted model of statistical efficiency: what was put in comes out, and what it does not know it says."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from analysis.efficiency import Observed, fit
from testbed.errors import ScenarioError

NEEDED, CRITICAL, STALE, DRIFT = 40.0, 200.0, 0.05, 0.2


def runs(noise: float = 0.0) -> list[Observed]:
    draw = random.Random(1)
    found = []
    for batch, staleness, steps in itertools.product((32, 128, 512), (0, 3, 9), (1, 2, 8)):
        rounds = NEEDED * (1 + CRITICAL / batch) * (1 + STALE * staleness) * (1 + DRIFT * (steps - 1)) / steps
        found.append(Observed(batch, staleness, steps, rounds * math.exp(draw.gauss(0, noise))))
    return found


def test_what_was_put_in_comes_out() -> None:
    found = fit(runs())
    constants = (found.rounds, found.critical_batch, found.staleness_penalty, found.drift_penalty)
    assert constants == pytest.approx((NEEDED, CRITICAL, STALE, DRIFT), rel=1e-4)
    assert found.residual < 1e-4


def test_the_residual_is_that_of_runs_it_has_not_seen() -> None:
    found = fit(runs(noise=0.1))
    assert 0.07 < found.residual < 0.16
    told = found.predict(64, 1, 4)
    assert told.high / told.rounds == pytest.approx(math.exp(found.residual))


def test_a_law_of_another_form_leaves_a_residual() -> None:
    """Penalties that multiply where the model adds: no constants explain them, and it shows."""
    odd = [Observed(r.batch, r.staleness, r.local_steps, r.rounds * (3.0 if r.staleness == 3 else 1.0)) for r in runs()]
    assert fit(odd).residual > 0.4


def test_predictions_say_what_they_are() -> None:
    found = fit(runs(noise=0.05))
    assert found.predict(128, 3, 2).outside == ()
    far = found.predict(100_000, 999, 2)
    assert far.outside == ("batch", "staleness")
    assert "fitted, not measured, extrapolated in batch and staleness" in str(far)


def test_seeds_of_one_setting_are_left_out_together() -> None:
    """Else each would be predicted by its own repetition: a setting that no constants explain would go unnoticed."""
    odd = [
        Observed(r.batch, r.staleness, r.local_steps, r.rounds * (4.0 if i == 5 else 1.0)) for i, r in enumerate(runs())
    ]
    assert fit(odd * 5).residual == pytest.approx(fit(odd).residual, rel=1e-3)


def test_what_did_not_vary_is_not_known() -> None:
    """Not as much as the fit began with."""
    found = fit([run for run in runs(noise=0.05) if run.staleness == 3])
    assert math.isnan(found.staleness_penalty)
    assert found.critical_batch == pytest.approx(CRITICAL, rel=0.3)
    assert found.predict(128, 3, 2).rounds == pytest.approx(fit(runs()).predict(128, 3, 2).rounds, rel=0.1)
    with pytest.raises(ScenarioError, match="staleness: all fitted runs had 3"):
        found.predict(128, 0, 2)


def test_too_few_settings_are_refused() -> None:
    with pytest.raises(ScenarioError, match="5 settings reached the target"):
        fit(runs()[:5] * 3)
