"""The sweeps of ``sweep`` as loops compiled by numba, which are limited by memory bandwidth alone.

NumPy needs four steps for a block: sum, magnitudes, comparison, positions. These loops update and compare a row of 64
elements in vector registers. The comparison gives 64 bits, which tell where the candidates are, so only the candidates
take additional time. Positions and sums are the same to the last bit. As numba does not vectorise comparisons by
itself, ``numba.extending.intrinsic`` defines the operations on a row as LLVM instructions, which LLVM translates for
any processor. The loops run without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from testbed.codec.selectors.sources import WITHOUT_SIGN, Difference, Feedback, Floats, Indices, Momentum

ROW = 64  # elements, so that the bits of a comparison fit one 64-bit integer

_INTEGER = ir.IntType(32)
_FLOATS = ir.VectorType(ir.FloatType(), ROW)
_INTEGERS = ir.VectorType(_INTEGER, ROW)


class _Row:
    """Makes LLVM instructions on one row. Integer parameters are positions among the arguments of the intrinsic."""

    def __init__(self, target: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self._target = target
        self._types = signature.args
        self._arguments = arguments
        self.builder = builder

    def pointer(self, array: int, start: int) -> Any:
        """Return a pointer to the row of the array that begins at element ``start``."""
        kind = self._types[array]
        assert kind.dtype == types.float32 and kind.layout == "C", (
            f"{kind}: a row is read as float32 one after the other"
        )
        data = self._target.make_array(self._types[array])(self._target, self.builder, self._arguments[array]).data
        return self.builder.bitcast(self.builder.gep(data, [self._arguments[start]]), _FLOATS.as_pointer())

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4)

    def store(self, numbers: Any, pointer: Any) -> None:
        self.builder.store(numbers, pointer, align=4)

    def filled(self, argument: int, kind: Any) -> Any:
        """Return a row in which every element is the given argument."""
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, self._arguments[argument], ir.Constant(_INTEGER, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(_INTEGERS, [0] * ROW))

    def reach(self, numbers: Any, bound: int) -> Any:
        """Return one bit for each number, the lowest for the first: whether its magnitude bits reach the bound."""
        without_sign = ir.Constant(_INTEGERS, [int(WITHOUT_SIGN)] * ROW)
        magnitudes = self.builder.and_(self.builder.bitcast(numbers, _INTEGERS), without_sign)
        large = self.builder.icmp_signed(">=", magnitudes, self.filled(bound, _INTEGERS))
        return self.builder.bitcast(large, ir.IntType(ROW))


@intrinsic  # type: ignore[untyped-decorator]
def _add(_context: Any, residual: Any, gradient: Any, start: Any, bound: Any) -> Any:
    def generate(*given: Any) -> Any:
        row = _Row(*given)
        at = row.pointer(0, 2)
        total = row.builder.fadd(row.load(at), row.load(row.pointer(1, 2)))
        row.store(total, at)
        return row.reach(total, 3)

    return types.uint64(residual, gradient, start, bound), generate


@intrinsic  # type: ignore[untyped-decorator]
def _add_momentum(
    _context: Any, velocity: Any, total: Any, gradient: Any, momentum: Any, start: Any, bound: Any
) -> Any:
    def generate(*given: Any) -> Any:
        row = _Row(*given)
        build = row.builder
        at = row.pointer(0, 4)
        to = row.pointer(1, 4)
        kept = build.fmul(row.load(at), row.filled(3, _FLOATS))
        velocity = build.fadd(kept, row.load(row.pointer(2, 4)))
        total = build.fadd(row.load(to), velocity)
        row.store(velocity, at)
        row.store(total, to)
        return row.reach(total, 5)

    return types.uint64(velocity, total, gradient, momentum, start, bound), generate


@intrinsic  # type: ignore[untyped-decorator]
def _subtract(_context: Any, value: Any, mirror: Any, start: Any, bound: Any) -> Any:
    def generate(*given: Any) -> Any:
        row = _Row(*given)
        return row.reach(row.builder.fsub(row.load(row.pointer(0, 2)), row.load(row.pointer(1, 2))), 3)

    return types.uint64(value, mirror, start, bound), generate


@intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(_context: Any, bits: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(bits), generate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _collect(bits: Any, start: int, found: Indices, count: int) -> int:
    if count <= found.size - ROW:
        while bits:
            found[count] = start + np.int64(_trailing_zeros(bits))
            count += 1
            bits &= bits - np.uint64(1)
    return count


# Three similar loops instead of one: numba cannot cache a function on disk that takes its intrinsic as an argument.


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _feedback(residual: Floats, gradient: Floats, bound: Any, found: Indices) -> int:
    count = 0
    for start in range(0, residual.size, ROW):
        count = _collect(_add(residual, gradient, start, bound), start, found, count)
    return count


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _momentum(velocity: Floats, total: Floats, gradient: Floats, momentum: Any, bound: Any, found: Indices) -> int:
    count = 0
    for start in range(0, total.size, ROW):
        count = _collect(_add_momentum(velocity, total, gradient, momentum, start, bound), start, found, count)
    return count


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _difference(value: Floats, mirror: Floats, bound: Any, found: Indices) -> int:
    count = 0
    for start in range(0, value.size, ROW):
        count = _collect(_subtract(value, mirror, start, bound), start, found, count)
    return count


# Each loop updates whole rows (the ``operands`` of a source), writes the positions of magnitudes of at least ``bound``
# to ``found``, ascending, and returns their number. A number above ``found.size - ROW`` means that some are missing.
SWEEPS: dict[type, Callable[..., int]] = {Feedback: _feedback, Momentum: _momentum, Difference: _difference}
