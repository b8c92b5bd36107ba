"""A fitted model of statistical efficiency: how many rounds training needs, where the mathematics cannot be run.

    rounds = n · (1 + b / B) · (1 + s·τ) · (1 + h·(H - 1)) / H

B: samples in a round's gradient, of all workers together; τ: mean staleness of an update; H: local steps of a round.
The first factor is the law of McCandlish et al. (An empirical model of large-batch training, 2018); the others are
linear penalties of staleness and of drift, of which nothing is known beyond the points they were fitted to.

It is fitted to runs with real mathematics, all of one learning rate, and extrapolates from them. What it gives is no
measurement: every prediction carries the residual of the fit, in which each setting was left out once (all its seeds
together), and says where it lies outside of the fitted range, for which the residual vouches for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.errors import ScenarioError

PARAMETERS = 4


@dataclass(frozen=True, slots=True)
class Observed:
    """One run that reached the target: what it was, and after how many rounds."""

    batch: float
    staleness: float
    local_steps: float
    rounds: float

    @property
    def setting(self) -> tuple[float, float, float]:
        """What it was, without what came of it."""
        return self.batch, self.staleness, self.local_steps


@dataclass(frozen=True, slots=True)
class Predicted:
    """``rounds``, and one residual below and above it; ``outside``: what lies beyond the fitted range."""

    rounds: float
    low: float
    high: float
    outside: tuple[str, ...]

    def __str__(self) -> str:
        beyond = f", extrapolated in {' and '.join(self.outside)}" if self.outside else ""
        return f"{self.rounds:.0f} rounds ({self.low:.0f} to {self.high:.0f}): fitted, not measured{beyond}"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The constants; NaN where all runs had the same value of its setting.

    ``residual``: root mean square of the error of settings left out of the fit, in the logarithm.
    """

    rounds: float
    critical_batch: float
    staleness_penalty: float
    drift_penalty: float
    residual: float
    seen: tuple[Observed, ...]

    def predict(self, batch: float, staleness: float = 0.0, local_steps: float = 1.0) -> Predicted:
        """Return the rounds to the target of the runs that were fitted.

        Raise ``ScenarioError`` for a value whose effect is not known, as all runs had the same other one.
        """
        asked = (batch, staleness, local_steps)
        seen = zip(*(each.setting for each in self.seen), strict=True)
        names = zip(("batch", "staleness", "local steps"), asked, seen, strict=True)
        outside = {name: set(known) for name, value, known in names if not min(known) <= value <= max(known)}
        for name, known in outside.items():
            if len(known) == 1:
                raise ScenarioError(f"{name}: all fitted runs had {known.pop():g}; fit runs that differ in it")
        constants = (self.rounds, self.critical_batch, self.staleness_penalty, self.drift_penalty)
        rounds = float(_rounds(np.nan_to_num(constants), np.array([asked]))[0])
        factor = math.exp(self.residual)
        return Predicted(rounds, rounds / factor, rounds * factor, tuple(outside))


def fit(runs: Sequence[Observed]) -> Efficiency:
    """Fit the logarithm of rounds by least squares. Raise ``ScenarioError`` with too few settings to leave one out."""
    settings = list(dict.fromkeys(run.setting for run in runs))
    if len(settings) < PARAMETERS + 2:
        raise ScenarioError(
            f"{len(settings)} settings reached the target; {PARAMETERS} constants need {PARAMETERS + 2} at least"
        )
    left_out: list[float] = []
    for setting in settings:
        others = _constants([run for run in runs if run.setting != setting])
        guess = _rounds(np.nan_to_num(others), np.array([setting]))[0]
        left_out += [math.log(guess / run.rounds) for run in runs if run.setting == setting]
    residual = math.sqrt(sum(error**2 for error in left_out) / len(left_out))
    return Efficiency(*_constants(runs), residual, tuple(runs))


def _rounds(constants: Sequence[float] | np.ndarray, points: np.ndarray) -> np.ndarray:
    """``points``: rows of batch, staleness, local steps."""
    least, critical, stale, drift = constants
    batch, staleness, steps = points.T
    return np.asarray(least * (1 + critical / batch) * (1 + stale * staleness) * (1 + drift * (steps - 1)) / steps)


def _constants(runs: Sequence[Observed]) -> tuple[float, float, float, float]:
    """Fit the constants; one whose quantity is the same in all runs is NaN, and its factor a part of the first one."""
    from scipy.optimize import least_squares  # which takes half a second to load

    points = np.array([[run.batch, run.staleness, run.local_steps] for run in runs])
    wanted = np.log([run.rounds for run in runs])
    varied = np.array([True, *(np.ptp(points, axis=0) > 0)])
    start = np.array([min(run.rounds for run in runs), float(np.median(points[:, 0])), 0.1, 0.1])[varied]

    def all_constants(known: np.ndarray, unknown: float) -> np.ndarray:
        constants = np.full(PARAMETERS, unknown)
        constants[varied] = known
        return constants

    lowest = np.array([1e-9, 0, 0, 0])[varied]
    found = least_squares(
        lambda x: np.log(_rounds(all_constants(x, 0.0), points)) - wanted, start, bounds=(lowest, np.inf), x_scale=start
    )
    least, critical, stale, drift = all_constants(found.x, math.nan).tolist()
    return least, critical, stale, drift
