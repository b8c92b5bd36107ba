"""MSTopK as published (Shi et al., "Towards scalable distributed training of deep learning on public cloud clusters",
MLSys 2021): N counts of a threshold between mean |x| and max |x|, then all above it and a random contiguous run.

Kept as it is, to compare with. Where the k-th largest magnitude lies below the mean (one large layer, one outlier) it
returns a random run for up to all of k, and for a constant tensor everything. The repair is the exact selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testbed.codec.selectors.chance import Drawing
from testbed.codec.selectors.sources import Floats, Indices, ValueSource, check_finite, check_k

SAMPLINGS = 30  # of the paper


@dataclass(slots=True)
class Thresholds:
    """The best threshold from above (too few elements reach it) and from below (too many do)."""

    upper: float = 0.0
    upper_count: int = 0
    lower: float = 0.0
    lower_count: int = 0


class PublishedMsTopk(Drawing):
    """About the k largest, k in number for most tensors. ``seed`` draws where the random run begins."""

    def __init__(self, seed: int = 0, sender: str = "", samplings: int = SAMPLINGS) -> None:
        super().__init__(seed, sender)
        self._samplings = samplings

    def __call__(self, source: ValueSource, k: int) -> Indices:
        """Ascending positions. More than k, up to all, where the published algorithm does that (constant tensors)."""
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
        """Draw where the run among ``between`` candidates begins; return that and its length."""
        missing = max(0, k - sure)
        return int(self._random.integers(0, max(0, between - missing) + 1)), missing

    def _search(self, magnitudes: Floats, k: int) -> Thresholds:
        counted = magnitudes  # those that may reach one of the thresholds that follow

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
        """Bisect between mean and largest magnitude; ``count`` returns how many of ``size`` reach a threshold."""
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
