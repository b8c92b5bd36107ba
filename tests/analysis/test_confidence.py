"""Means and ratios over seeds, and how many seeds a decision takes."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import confidence
from analysis.confidence import Ratio, paired, ratio_of, seeds_to_resolve


def test_confidence_interval_over_seeds() -> None:
    mean = confidence.mean_of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean.value, mean.count) == (3.0, 5)
    assert mean.half_width == pytest.approx(1.96324, abs=1e-5)  # t(0.975, 4) = 2.776445, s = 1.581139
    assert confidence.mean_of([7.0]).half_width == math.inf
    with pytest.raises(ValueError, match="no values"):
        confidence.mean_of([])


def test_ratios_in_pairs_stay_above_zero() -> None:
    few = ratio_of([3.0, 12.0, 33.0], [1.5, 24.0, 16.5])
    assert few.low > 0 and few.value == pytest.approx(0.5 ** (1 / 3)) and few.high > 1
    assert ratio_of([1.0], [2.0]) == Ratio(2.0, 0.0, math.inf, 1)
    many = ratio_of([1.0] * 9, [1.1, 1.2, 1.3, 1.1, 1.2, 1.3, 1.1, 1.2, 1.3])
    assert 1.1 < many.low < many.value < many.high < 1.3 and many == ratio_of([1.0] * 9, [1.1, 1.2, 1.3] * 3)


def test_runs_are_paired_by_seed_and_never_without_one_that_missed() -> None:
    """Seeds differ by ten times, the ratio hardly."""
    base = {1: 3.0, 2: 12.0, 3: 33.0, 7: 1.0}
    found = paired(base, {1: 6.0, 2: 24.0, 3: 66.0, 8: 1.0})
    assert found is not None and (found.value, found.count) == (pytest.approx(2.0), 3)
    assert found.low == pytest.approx(2) and found.high == pytest.approx(2) and found.is_resolved
    assert paired(base, {1: 6.0, 2: None}) is None and paired(base, {9: 1.0}) is None


def test_an_interval_decides_only_on_one_side_of_one() -> None:
    assert ratio_of([1.0] * 3, [2.0, 2.1, 2.2]).is_resolved and ratio_of([2.0, 2.1, 2.2], [1.0] * 3).is_resolved
    assert not ratio_of([1.0] * 3, [0.9, 1.0, 1.2]).is_resolved
    assert not ratio_of([1.0], [9.0]).is_resolved
    assert not ratio_of([3.0] * 3, [3.0] * 3).is_resolved, "equal in every seed"


@pytest.mark.parametrize(("effect", "spread"), [(0.1, 0.25), (0.1, 0.1), (0.3, 0.1)])
def test_so_many_seeds_resolve_four_of_five_times_and_fewer_do_not(effect: float, spread: float) -> None:
    count = seeds_to_resolve(Ratio(math.exp(effect), 0.0, math.inf, 5, spread))
    assert count is not None
    draws = np.random.default_rng(1).normal(effect, spread, (20_000, count))

    def power(seeds: int) -> float:
        told = stats.ttest_1samp(draws[:, :seeds], 0, axis=1)
        return float(((told.pvalue < 0.05) & (told.statistic > 0)).mean())

    assert power(count) > 0.79 and power(count - 1) < 0.81


def test_what_no_number_of_seeds_tells_apart() -> None:
    assert seeds_to_resolve(ratio_of([1.0], [2.0])) is None, "the spread of one pair is unknown"
    assert seeds_to_resolve(ratio_of([3.0] * 3, [3.0] * 3)) is None
    assert seeds_to_resolve(Ratio(1.0001, 0.0, math.inf, 5, 1.0)) is None
    assert seeds_to_resolve(ratio_of([1.0, 2.0], [2.0, 4.0])) == 2
