"""Means of a series."""

from __future__ import annotations

import math
from bisect import bisect_right

from testbed.plan.model import Series


def slowest_mean(series: Series, window_s: float) -> float:
    """Return the least mean of a series over any interval of length ``window_s``."""
    times, values = list(series.times_s), list(series.values)
    if math.isfinite(series.period_s):
        laps = math.ceil(window_s / series.period_s) + 1
        times = [lap * series.period_s + time for lap in range(laps) for time in series.times_s]
        values *= laps
        end_s = laps * series.period_s
    else:
        end_s = times[-1] + window_s
    sums = [0.0]  # integral until each time
    for value, time, after in zip(values, times, [*times[1:], end_s], strict=True):
        sums.append(sums[-1] + value * (after - time))
    times.append(end_s)

    def integral(at_s: float) -> float:
        index = bisect_right(times, at_s) - 1
        return sums[-1] if index >= len(values) else sums[index] + values[index] * (at_s - times[index])

    # the mean is least where a window begins or ends at a change
    starts = {max(0.0, start) for time in times for start in (time, time - window_s) if start + window_s <= end_s}
    return min((integral(start + window_s) - integral(start)) / window_s for start in starts)
