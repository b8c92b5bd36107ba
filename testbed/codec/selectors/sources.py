"""Sources of the numbers that a selector chooses from, which a source computes while the selector sweeps over them.

Error feedback adds the gradient to a residual and then chooses from the residual. One sweep for both, in blocks that
stay in the cache, reads and writes the memory once: 12 bytes an element, where separate steps need at least 28. So a
selector gets a ``ValueSource``, and must ``update`` each of its elements exactly once, block by block.

Selectors compare bit patterns. The bits of a float32 without the sign bit, read as an integer, have the same order as
|x| (zero and denormals included), with infinities and NaN above all finite numbers. So one integer comparison finds
large elements and non-finite ones alike.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[np.int32]
Indices = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
INFINITY_BITS = 0x7F800000
SMALLEST_BITS = 1  # bits of the smallest number above zero


class NonFinite(ArithmeticError):
    """``count`` elements are NaN or infinite."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"{count} elements are NaN or infinite")


def magnitude_bits(numbers: Floats, out: Bits | None = None) -> Bits:
    """Return |numbers| as integers that compare in the same order."""
    bits: Bits = np.bitwise_and(numbers.view(np.int32), WITHOUT_SIGN, out=out)
    return bits


def check_finite(bits: Bits) -> None:
    """Raise ``NonFinite`` if any of these magnitudes is NaN or infinite."""
    if bits.size and int(bits.max()) >= INFINITY_BITS:
        raise NonFinite(int(np.count_nonzero(bits >= INFINITY_BITS)))


def check_k(k: int, size: int) -> None:
    """Raise ``ValueError`` unless 0 ≤ k ≤ size."""
    if not 0 <= k <= size:
        raise ValueError(f"cannot choose {k} of {size} elements")


def positions_of_largest(bits: Bits, k: int) -> Indices:
    """Return the positions, ascending, of the ``k`` largest magnitudes, without zeros; of equal ones, the first."""
    check_finite(bits)
    if not k:
        return np.empty(0, np.int64)
    smallest = SMALLEST_BITS
    others = bits[bits >= smallest]  # a partition is slow with many zeros, and most differences of values are zero
    if k < others.size:
        smallest = int(np.partition(others, others.size - k)[others.size - k])
    take = bits > smallest
    equal = np.flatnonzero(bits == smallest)
    take[equal[: max(0, k - int(np.count_nonzero(take)))]] = True
    return np.flatnonzero(take)


class ValueSource(Protocol):
    """``size`` numbers. Arrays are flat float32; callers must not change a returned array."""

    size: int

    def peek(self, at: Indices) -> Floats:
        """Return, before the update, the numbers at these positions after the update, up to rounding."""

    def update(self, part: slice) -> Floats:
        """Update ``part``, and return its numbers, which are valid until the next call."""

    def read(self, at: slice | Indices) -> Floats:
        """Return, after the update, the numbers at these positions."""


class Feedback:
    """Error feedback (Seide et al., 2014): residual ← residual + gradient."""

    def __init__(self, residual: Floats, gradient: Floats) -> None:
        self._residual = residual
        self._gradient = gradient
        self.size = residual.size

    def peek(self, at: Indices) -> Floats:
        return self._residual[at] + self._gradient[at]

    def update(self, part: slice) -> Floats:
        block = self._residual[part]
        return np.add(block, self._gradient[part], out=block)

    def read(self, at: slice | Indices) -> Floats:
        return self._residual[at]

    def operands(self, part: slice) -> tuple[Any, ...]:
        """Return the arguments of this source's compiled sweep: ``part`` of each array, and any scalars."""
        return self._residual[part], self._gradient[part]


class Momentum:
    """Momentum correction (DGC, Lin et al., 2018): velocity ← m·velocity + gradient; total ← total + velocity."""

    def __init__(self, velocity: Floats, total: Floats, gradient: Floats, momentum: float) -> None:
        self._velocity = velocity
        self._total = total
        self._gradient = gradient
        self._momentum = np.float32(momentum)
        self.size = total.size

    def peek(self, at: Indices) -> Floats:
        return self._total[at] + (self._velocity[at] * self._momentum + self._gradient[at])

    def update(self, part: slice) -> Floats:
        velocity = self._velocity[part]
        total = self._total[part]
        np.multiply(velocity, self._momentum, out=velocity)
        np.add(velocity, self._gradient[part], out=velocity)
        return np.add(total, velocity, out=total)

    def read(self, at: slice | Indices) -> Floats:
        return self._total[at]

    def operands(self, part: slice) -> tuple[Any, ...]:
        return self._velocity[part], self._total[part], self._gradient[part], self._momentum


class Difference:
    """The difference between ``value`` and ``mirror``, the value at the other end."""

    def __init__(self, value: Floats, mirror: Floats) -> None:
        self._value = value
        self._mirror = mirror
        self.size = value.size

    def read(self, at: slice | Indices) -> Floats:
        return np.subtract(self._value[at], self._mirror[at])

    peek = read
    update = read

    def operands(self, part: slice) -> tuple[Any, ...]:
        return self._value[part], self._mirror[part]
