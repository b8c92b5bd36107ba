"""The sweep of error feedback as one loop that numba compiles, where it is installed: it takes the time of the memory.

NumPy takes four steps for a block: the sum, the magnitudes, the comparison, the positions. Here a row of elements is
summed and its largest magnitude found in the processor's registers, and few rows have to be looked at again. The
positions and the residual are the same to the last bit. The loop runs without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from testbed.codec.selectors.sources import WITHOUT_SIGN, Floats, Indices

COMPILED_FROM = 1 << 22  # elements: of smaller tensors a hundred sweeps take less than to import numba
ROW = 64  # elements; with a hundredth of all elements sought, every second row holds one

Sweep = Callable[[Floats, Floats, Any, Indices], int]


def feedback_sweep(residual: Floats, gradient: Floats, bound: int, found: Indices) -> int:
    """Add ``gradient`` to ``residual``; write the positions of magnitudes from ``bound`` on to ``found``, ascending.

    Return their number, or more than ``found.size - ROW`` if there are more than that: then not all are written. Both
    arrays are whole rows, as the compiler makes vector instructions of loops of a fixed length.
    """
    bits = residual.view(np.int32)
    count, most = 0, found.size - ROW
    for start in range(0, residual.size, ROW):
        for at in range(start, start + ROW):
            residual[at] += gradient[at]
        largest = np.int32(0)
        for at in range(start, start + ROW):
            largest = max(largest, bits[at] & WITHOUT_SIGN)
        if largest >= bound and count <= most:
            for at in range(start, start + ROW):
                found[count] = at  # written over by the next one, unless it counts: without a branch for each element
                count += bits[at] & WITHOUT_SIGN >= bound
    return count


@lru_cache(maxsize=1)
def compiled() -> Sweep | None:
    """Return ``feedback_sweep`` compiled; ``None`` without numba."""
    try:
        import numba
    except ImportError:
        return None
    sweep: Sweep = numba.njit(cache=True, nogil=True)(feedback_sweep)
    return sweep
