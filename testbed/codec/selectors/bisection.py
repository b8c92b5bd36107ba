"""The exact k-th largest magnitude for any distribution, by bisection on bit patterns; and all from there on.

The repaired form of MSTopK's threshold search (Shi et al., MLSys 2021): that one bisects between mean |x| and max |x|,
and cannot find a threshold below the mean; this one bisects the integers that order magnitudes, at most 31 counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from testbed.codec.blocks import BLOCK, blocks
from testbed.codec.selectors.sources import (
    INFINITY_BITS,
    SMALLEST_BITS,
    Bits,
    Drawing,
    Indices,
    NonFinite,
    ValueSource,
    check_finite,
    check_k,
    magnitude_bits,
)


def largest_by_bisection(source: ValueSource, k: int) -> Indices:
    """Ascending positions of the k largest magnitudes of a source that is up to date, at up to 31 counting sweeps.

    Zeros are excepted; of equal ones it takes the lowest positions.
    """
    bad = _count(source, INFINITY_BITS)
    if bad:
        raise NonFinite(bad)
    return _collect(source, _kth_largest(source, k), k) if k else np.empty(0, np.int64)


def _count(source: ValueSource, bound: int) -> int:
    return sum(int(np.count_nonzero(bits >= bound)) for _, bits in _magnitudes(source))


def _magnitudes(source: ValueSource) -> Iterator[tuple[int, Bits]]:
    """Start and magnitudes of each block."""
    buffer = np.empty(min(BLOCK, source.size), np.int32)
    for part in blocks(source.size):
        numbers = source.read(part)
        yield part.start, magnitude_bits(numbers, out=buffer[: numbers.size])


def _kth_largest(source: ValueSource, k: int) -> int:
    """The largest bound that at least k magnitudes reach; the smallest of all if there are fewer that are not zero."""
    low, high = SMALLEST_BITS, INFINITY_BITS  # count(low) >= k, or nothing is that large; count(high) < k
    while high - low > 1:
        middle = (low + high) // 2
        if _count(source, middle) >= k:
            low = middle
        else:
            high = middle
    return low


def _collect(source: ValueSource, bound: int, k: int) -> Indices:
    """All above ``bound``, and the first equal to it, k in total."""
    above: list[Indices] = []
    equal: list[Indices] = []
    for start, bits in _magnitudes(source):
        above.append(np.flatnonzero(bits > bound) + start)
        equal.append((np.flatnonzero(bits == bound) + start)[:k])
    larger = np.concatenate(above)
    chosen = np.concatenate([larger, np.concatenate(equal)[: k - larger.size]])
    chosen.sort()
    return chosen


class RandomK(Drawing):
    """k distinct positions, drawn evenly; a new draw at every call, the same for the same ``seed``."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        for part in blocks(source.size):
            check_finite(magnitude_bits(source.update(part)))
        return self.draw(source.size, k)

    def draw(self, size: int, k: int) -> Indices:
        """Draw k of ``size`` positions; ascending."""
        return np.sort(self._random.choice(size, k, replace=False, shuffle=False))
