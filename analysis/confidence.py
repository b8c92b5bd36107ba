"""Means and ratios over seeds: their 95 % confidence intervals, and the number of seeds that a decision needs.

Runs with equal seeds have the same data and the same first values, so two settings are compared seed by seed: the ratio
of two times hardly varies even if the times vary by a factor of ten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

A_DIFFERENCE = 1e-9
"""The smallest relative difference that counts: if a setting has no effect, the runs of each seed are equal."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of ``count`` seeds, and half the width of its 95 % interval (Student's t); infinite for one seed."""

    value: float
    half_width: float
    count: int


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean and confidence interval of independent values, such as one per seed.

    Raise ``ValueError`` if there are none.
    """
    if not values:
        raise ValueError("no values")
    array = np.asarray(values, dtype=float)
    if len(array) == 1:
        return Mean(float(array[0]), math.inf, 1)
    from scipy.special import stdtrit  # the quantile of Student's t; ``scipy.stats`` takes a second to load

    half = stdtrit(len(array) - 1, 0.975) * array.std(ddof=1) / math.sqrt(len(array))
    return Mean(float(array.mean()), float(half), len(array))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The geometric mean of ``count`` ratios with its 95 % confidence interval, which is 0 to ∞ for a single pair.

    log_spread  standard deviation of the ratios' logarithms; ``None`` for a single pair
    """

    value: float
    low: float
    high: float
    count: int
    log_spread: float | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the interval lies on one side of 1, so that the seed does not decide which of the two is larger."""
        return self.low > 1 + A_DIFFERENCE or self.high < 1 - A_DIFFERENCE

    @property
    def inverse(self) -> Ratio:
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low if self.low else math.inf, self.count, self.log_spread)


BOOTSTRAP_FROM = 8  # from this number of pairs on, bootstrap; with fewer, use Student's interval of the logarithms
_RESAMPLES = 4000


def ratio_of(base: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return other / base of pairs of positive values, such as those of equal seeds.

    The interval is that of the mean of the logarithms: it never reaches below 0, and the inverse ratio has the inverse
    interval. Raise ``ValueError`` if there are no pairs.
    """
    if not base:
        raise ValueError("no pairs")
    logs = np.log(np.asarray(other, dtype=float) / np.asarray(base, dtype=float))
    value = float(np.exp(logs.mean()))
    count = len(logs)
    if count == 1:
        return Ratio(value, 0.0, math.inf, 1)
    if count >= BOOTSTRAP_FROM:
        drawn = np.random.default_rng(1).choice(logs, (_RESAMPLES, count)).mean(axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
    else:
        half = mean_of(logs.tolist()).half_width
        low = logs.mean() - half
        high = logs.mean() + half
    return Ratio(value, float(np.exp(low)), float(np.exp(high)), count, float(logs.std(ddof=1)))


def paired(base: Mapping[int, float | None], other: Mapping[int, float | None]) -> Ratio | None:
    """Return other / base over the common seeds. Both map a seed to a value.

    ``None`` without a common seed, or if a value of a common seed is ``None`` or 0: if only some seeds reached a
    target, their ratio would be too good.
    """
    pairs = [(base[seed], other[seed]) for seed in other if seed in base]
    known = [(before, after) for before, after in pairs if before and after]
    if not known or len(known) < len(pairs):
        return None
    return ratio_of([before for before, _ in known], [after for _, after in known])


POWER = 0.8
_MOST_SEEDS = 10_000


def seeds_to_resolve(ratio: Ratio) -> int | None:
    """Return the number of seeds with which the interval of a ratio of this mean and spread excludes 1.

    It does so with probability 0.8, by the power of the paired t-test on the logarithms. ``None`` if the spread is
    unknown (one pair), the ratio is 1, or 10 000 seeds would not suffice.
    """
    effect = abs(math.log(ratio.value))
    if ratio.log_spread is None or effect < A_DIFFERENCE:
        return None
    if ratio.log_spread < A_DIFFERENCE * effect:  # the ratio is the same for every seed
        return 2
    effect /= ratio.log_spread
    from scipy.special import ndtri

    least = float((ndtri(0.975) + ndtri(POWER)) / effect) ** 2  # for the normal distribution; Student's t needs more
    if least > _MOST_SEEDS:
        return None
    count = max(2, math.ceil(least))
    while _power(effect, count) < POWER:
        count += 1
    return count


def _power(effect: float, count: int) -> float:
    """Return the power of the t-test with ``count`` values if the true mean is ``effect`` standard deviations."""
    from scipy.special import nctdtr, stdtrit

    return float(1 - nctdtr(count - 1, effect * math.sqrt(count), stdtrit(count - 1, 0.975)))
