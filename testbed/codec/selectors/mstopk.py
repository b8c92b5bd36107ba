"""MSTopK as published (Shi et al., "Towards scalable distributed training of deep learning on public cloud clusters",
MLSys 2021): N bisections search a threshold between mean |x| and max |x|. It takes all elements that reach the lowest
threshold reached by at most k elements, and fills up to k with a random contiguous run of the elements between that and
the next lower threshold found.

This baseline is kept as published. If the k-th largest magnitude lies below the mean (one large layer, one outlier), up
to all k elements are a random run; and it takes every element of a constant tensor. Exact selection has neither flaw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testbed.codec.selectors.chance import Drawing
from testbed.codec.selectors.sources import Floats, Indices, ValueSource, check_finite, check_k

SAMPLINGS = 30  # bisections, as in the paper


@dataclass(slots=True)
class Thresholds:
    """The closest thresholds found on both sides: at most k elements reach ``upper``, more reach ``lower``."""

    upper: float = 0.0
    upper_count: int = 0
    lower: float = 0.0
    lower_count: int = 0


class PublishedMsTopk(Drawing):
    """Selects approximately the k largest elements. ``seed`` decides where the random run begins."""

    def __init__(self, seed: int = 0, sender: str = "", samplings: int = SAMPLINGS) -> None:
        super().__init__(seed, sender)
        self._samplings = samplings

    def __call__(self, source: ValueSource, k: int) -> Indices:
        """Return k positions, ascending; for a constant tensor, all positions, as the published algorithm does."""
        check_k(k, source.size)
        numbers = source.update(slice(0, source.size))
        magnitudes = np.abs(numbers)
        check_finite(magnitudes.view(np.int32))
        found = self._search(magnitudes, k)
        sure = np.flatnonzero(magnitudes >= found.upper)
        between = np.flatnonzero((magnitudes >= found.lower) & (magnitudes < found.upper))
        start, missing = self.run(between.size, k, found.upper_count)
        return np.sort(np.concatenate([sure, between[start : start + missing]]))

    def run(self, between: int, k: int, sure: int) -> tuple[int, int]:
        """Draw the start of the run among ``between`` candidates. Return the start and the length of the run."""
        missing = max(0, k - sure)
        return int(self._random.integers(0, max(0, between - missing) + 1)), missing

    def _search(self, magnitudes: Floats, k: int) -> Thresholds:
        counted = magnitudes  # the magnitudes that may still reach a later threshold

        def count(threshold: float) -> int:
            nonlocal counted
            reached = counted >= threshold
            found = int(np.count_nonzero(reached))
            if found > k and 4 * found < counted.size:
                counted = counted[np.flatnonzero(reached)]
            return found

        mean = float(magnitudes.mean())
        largest = float(magnitudes.max(initial=0.0))
        return self.search(mean, largest, count, k, magnitudes.size)

    def search(self, mean: float, largest: float, count: Callable[[float], int], k: int, size: int) -> Thresholds:
        """Bisect between the mean and the largest magnitude. ``count(t)``: how many of ``size`` elements reach t."""
        best = Thresholds(lower_count=size)
        left = 0.0
        right = 1.0
        for _ in range(self._samplings):
            share = (left + right) / 2
            threshold = mean + share * (largest - mean)
            reached = count(threshold)
            if reached <= k:
                right = share
                if reached > best.upper_count:
                    best.upper = threshold
                    best.upper_count = reached
            else:
                left = share
                if reached < best.lower_count:
                    best.lower = threshold
                    best.lower_count = reached
        return best
