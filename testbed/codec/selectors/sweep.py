"""Sample and sweep: exact top-k in one sweep over the memory. The default selector on a CPU.

A sample at fixed random positions gives a lower bound for the k-th largest magnitude, with a margin of four standard
deviations. One sweep, in blocks that stay in the cache, updates the source and collects the candidates, which reach the
bound: usually 1.1 to 1.7 times k. The k largest are chosen exactly among these. If there are fewer than k candidates,
or far too many, bisection over all elements finds the same answer more slowly. So the result never depends on the
sample.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from testbed import buffers
from testbed.codec.blocks import BLOCK, blocks
from testbed.codec.selectors.sources import (
    INFINITY_BITS,
    SMALLEST_BITS,
    Bits,
    Difference,
    Feedback,
    Indices,
    Momentum,
    NonFinite,
    ValueSource,
    check_k,
    magnitude_bits,
)
from testbed.codec.selectors.sources import positions_of_largest as largest_of
from testbed.numba_cache import compiled_by_numba

SMALL = 1 << 17  # elements up to which a partition of the whole tensor is faster
COMPILED_FROM = 1 << 20  # elements; for smaller tensors, several hundred sweeps take less time than importing numba
_Compiled = Feedback | Momentum | Difference
SAFETY = 4.0  # standard deviations; 0 of 2000 trials fell below the bound at 4, 1.9 % at 2


@lru_cache(maxsize=256)
def sample_of(size: int, seed: int) -> Indices:
    count = min(65_536, max(8_192, size // 64))
    positions = np.random.default_rng(seed).integers(0, size, count)
    positions.sort()  # neighbours in memory are read together
    positions.flags.writeable = False
    return positions


class SampleAndSweep:
    """Exact top-k. ``seed`` places the sample, which affects only the time."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def __call__(self, source: ValueSource, k: int) -> Indices:
        """Return the positions, ascending, of the k largest magnitudes, without zeros; of equal ones, the first."""
        check_k(k, source.size)
        if source.size <= SMALL:
            return largest_of(magnitude_bits(source.update(slice(0, source.size))), k)
        bound, most = self._bound(source, k)
        found = _sweep(source, bound, most)
        if found is None or (found.size < k and bound > SMALLEST_BITS):
            return largest_by_bisection(source, k)
        return found[largest_of(magnitude_bits(source.read(found)), k)]

    def _bound(self, source: ValueSource, k: int) -> tuple[int, int]:
        """Return a magnitude that at least k elements should reach, and a generous limit for how many may reach it."""
        sample = magnitude_bits(source.peek(sample_of(source.size, self._seed)))
        expected = k / source.size * sample.size
        rank = min(sample.size, int(expected + SAFETY * math.sqrt(expected) + SAFETY))
        bound = int(np.partition(sample, sample.size - rank)[sample.size - rank])
        return max(bound, SMALLEST_BITS), min(source.size, 4 * rank * (source.size // sample.size + 1))


def _sweep(source: ValueSource, bound: int, most: int) -> Indices | None:
    """Update all elements. Return the positions of magnitudes of at least ``bound``; ``None`` if more than ``most``."""
    if isinstance(source, _Compiled) and source.size >= COMPILED_FROM:
        return _compiled_sweep(source, bound, most)
    bits = np.empty(BLOCK, np.int32)
    hits = np.empty(BLOCK, np.bool_)
    found: list[Indices] = []
    count = 0
    for part in blocks(source.size):
        numbers = source.update(part)
        if count > most:
            continue  # too many to keep, but the other blocks must still be updated
        block_bits = magnitude_bits(numbers, out=bits[: numbers.size])
        positions = np.flatnonzero(np.greater_equal(block_bits, bound, out=hits[: numbers.size]))
        if positions.size:
            positions += part.start
            found.append(positions)
            count += positions.size
    if count > most:
        return None
    return np.concatenate(found) if found else np.empty(0, np.int64)


@lru_cache(maxsize=1)
def _loops() -> Any:
    """Return the module of compiled loops. Importing it makes numba compile them."""
    return compiled_by_numba(partial(importlib.import_module, "testbed.codec.selectors.compiled"))


def _compiled_sweep(source: _Compiled, bound: int, most: int) -> Indices | None:
    loops = _loops()
    rows = source.size // loops.ROW * loops.ROW
    found: Indices = buffers.empty((most + loops.ROW,), torch.int64).numpy()
    count = loops.SWEEPS[type(source)](*source.operands(slice(rows)), np.int32(bound), found)
    last = np.flatnonzero(magnitude_bits(source.update(slice(rows, source.size))) >= bound) + rows
    if count + last.size > most:
        return None
    found[count : count + last.size] = last
    return found[: count + last.size]


# ---- bisection ------------------------------------------------------------------------------------------------------


def largest_by_bisection(source: ValueSource, k: int) -> Indices:
    """Return the positions, ascending, of the k largest magnitudes of an updated source, by up to 31 counting sweeps.

    Zeros are left out; of equal magnitudes the first are taken. MSTopK's threshold search (Shi et al., MLSys 2021)
    bisects between mean |x| and max |x|, so it cannot find a threshold below the mean. This search bisects the bit
    patterns of magnitudes as integers.
    """
    bad = _count(source, INFINITY_BITS)
    if bad:
        raise NonFinite(bad)
    return _collect(source, _kth_largest(source, k), k) if k else np.empty(0, np.int64)


def _count(source: ValueSource, bound: int) -> int:
    return sum(int(np.count_nonzero(bits >= bound)) for _, bits in _magnitudes(source))


def _magnitudes(source: ValueSource) -> Iterator[tuple[int, Bits]]:
    """Yield the start and the magnitude bits of each block."""
    buffer = np.empty(min(BLOCK, source.size), np.int32)
    for part in blocks(source.size):
        numbers = source.read(part)
        yield part.start, magnitude_bits(numbers, out=buffer[: numbers.size])


def _kth_largest(source: ValueSource, k: int) -> int:
    """Return the largest bound that at least k magnitudes reach; the smallest bound if fewer than k are above zero."""
    # invariant: count(low) >= k, or low is the smallest bound; count(high) < k
    low = SMALLEST_BITS
    high = INFINITY_BITS
    while high - low > 1:
        middle = (low + high) // 2
        if _count(source, middle) >= k:
            low = middle
        else:
            high = middle
    return low


def _collect(source: ValueSource, bound: int, k: int) -> Indices:
    """Return, ascending, the positions of all magnitudes above ``bound`` and of the first equal to it, k in total."""
    above: list[Indices] = []
    equal: list[Indices] = []
    for start, bits in _magnitudes(source):
        above.append(np.flatnonzero(bits > bound) + start)
        equal.append((np.flatnonzero(bits == bound) + start)[:k])
    larger = np.concatenate(above)
    chosen = np.concatenate([larger, np.concatenate(equal)[: k - larger.size]])
    chosen.sort()
    return chosen
