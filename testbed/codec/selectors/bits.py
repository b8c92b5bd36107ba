"""Comparing float32 by magnitude on their bit patterns, and taking the largest of a list of candidates.

Without the sign bit, the bits of a float32 read as an integer order exactly as |x| does (zero and denormals included),
with infinities and NaN above everything finite. So one integer comparison finds large elements and bad ones alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[np.int32]
Indices = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
INFINITY_BITS = 0x7F800000
SMALLEST_BITS = 1  # of the smallest number that is not zero


class NonFinite(ArithmeticError):
    """``count`` elements are NaN or infinite."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"{count} elements are NaN or infinite")


def magnitude_bits(numbers: Floats, out: Bits | None = None) -> Bits:
    """|numbers| as integers in the same order."""
    bits: Bits = np.bitwise_and(numbers.view(np.int32), WITHOUT_SIGN, out=out)
    return bits


def check_finite(bits: Bits) -> None:
    """Raise ``NonFinite`` if any of these magnitudes is."""
    if bits.size and int(bits.max()) >= INFINITY_BITS:
        raise NonFinite(int(np.count_nonzero(bits >= INFINITY_BITS)))


def check_k(k: int, size: int) -> None:
    """Raise ``ValueError`` unless ``k`` of ``size`` elements can be chosen."""
    if not 0 <= k <= size:
        raise ValueError(f"cannot choose {k} of {size} elements")


def positions_of_largest(bits: Bits, k: int) -> Indices:
    """Positions, ascending, of the ``k`` largest magnitudes that are not zero; equal ones from the lowest position."""
    check_finite(bits)
    if not k:
        return np.empty(0, np.int64)
    smallest = SMALLEST_BITS
    if k < bits.size:
        smallest = max(smallest, int(np.partition(bits, bits.size - k)[bits.size - k]))
    take = bits > smallest
    equal = np.flatnonzero(bits == smallest)
    take[equal[: max(0, k - int(np.count_nonzero(take)))]] = True
    return np.flatnonzero(take)
