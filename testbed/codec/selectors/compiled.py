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
_ROW = 64  # elements; with a hundredth of all elements sought, every second row holds one

Sweep = Callable[[Floats, Floats, Any, Indices], int]


def feedback_sweep(residual: Floats, gradient: Floats, bound: int, found: Indices) -> int:
    """Add ``gradient`` to ``residual``; write the positions of magnitudes from ``bound`` on to ``found``, ascending.

    Return their number. If that is more than ``found`` holds, the last ones are not written.
    """
    bits = residual.view(np.int32)
    size, count, room = residual.size, 0, found.size
    for start in range(0, size, _ROW):
        stop = min(start + _ROW, size)
        for at in range(start, stop):
            residual[at] += gradient[at]
        largest = np.int32(0)
        for at in range(start, stop):
            largest = max(largest, bits[at] & WITHOUT_SIGN)
        if largest >= bound:
            for at in range(start, stop):
                if bits[at] & WITHOUT_SIGN >= bound:
                    if count < room:
                        found[count] = at
                    count += 1
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
