"""A change of some length, laid over a series of the Plan."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable

from testbed.plan.model import Series

WRITTEN_OUT_S = 6 * 3600.0
MOST_POINTS = 100_000


def laid_over(base: Series, at_s: float, for_s: float, change: Callable[[float], float], source: str) -> Series:
    """``base``, but ``change`` of its value from ``at_s`` on, for ``for_s``.

    A series that repeats is written out for six hours after the change (but at most 100 000 points); then its last
    value stays.
    """
    flat = _written_out(base, at_s + (for_s if math.isfinite(for_s) else 0.0))
    end_s = at_s + for_s
    times = sorted({*flat.times_s, at_s, *((end_s,) if math.isfinite(end_s) else ())})
    before = [flat.values[bisect_right(flat.times_s, time_s) - 1] for time_s in times]
    values = [change(value) if at_s <= time_s < end_s else value for time_s, value in zip(times, before, strict=True)]
    kept = [i for i in range(len(times)) if i == 0 or values[i] != values[i - 1]]
    return Series(
        times_s=tuple(times[i] for i in kept), values=tuple(values[i] for i in kept),
        source=f"{base.source} and {source}" if base.source else source,
    )  # fmt: skip


def _written_out(base: Series, until_s: float) -> Series:
    """Without a period."""
    if not math.isfinite(base.period_s):
        return base
    needed = math.floor((until_s + WRITTEN_OUT_S) / base.period_s) + 1
    laps = max(1, min(needed, MOST_POINTS // len(base.times_s)))
    times = tuple(lap * base.period_s + time_s for lap in range(laps) for time_s in base.times_s)
    return Series(times_s=times, values=base.values * laps, source=base.source)
