"""A link's traces as series of the Plan: models drawn, rates divided by the scale, times by the speed."""

from __future__ import annotations

import math
from bisect import bisect_right

from testbed.plan.model import Series
from testbed.scenario.network import Link, Queue
from testbed.scenario.traces import AnyTrace, RateTrace, value_of
from topologies.traces.model import LIMITS
from topologies.traces.synthetic import make


def scaled_link(link: Link, scale: float) -> Link:
    """The link with rates and bytes of queue divided; what is said in time stays."""
    if scale == 1:
        return link
    changes: dict[str, object] = {"rate": link.rate / scale}
    if link.queue is not None and link.queue.unit == "bytes":
        changes["queue"] = Queue("bytes", link.queue.amount / scale)
    if link.rate_trace is not None:
        changes["rate_trace"] = _scaled(link.rate_trace, scale)
    return link.model_copy(update=changes)


def _scaled(trace: RateTrace, scale: float) -> RateTrace:
    points = tuple(point.model_copy(update={"rate": point.rate / scale}) for point in trace.points)
    return trace.model_copy(update={"points": points})


def series_of(trace: AnyTrace, own: float, what: str, speed: float, seed: str) -> Series:
    """``own``: the link's rate, delay or loss, of which a model's values are multiples."""
    if trace.model is not None:
        return _modelled(trace, own, what, speed, seed)
    points = getattr(trace, "points", ())
    return Series(
        times_s=tuple(point.at / speed for point in points),
        values=tuple(value_of(point) for point in points),
        period_s=math.inf if trace.repeat_after is None else trace.repeat_after / speed,
        source=trace.source or "",
    )


def slowest_mean(series: Series, window_s: float) -> float:
    """The least mean of a series over any time of that length."""
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


def _modelled(trace: AnyTrace, own: float, what: str, speed: float, seed: str) -> Series:
    assert trace.model is not None, "a trace without a model"
    steps, period_s = make(trace.model.kind, trace.model.made(), seed)
    low, high, _ = LIMITS[what]
    return Series(
        times_s=tuple(time_s / speed for time_s, _ in steps),
        values=tuple(min(high, max(low, factor * own)) for _, factor in steps),
        period_s=period_s / speed,
        source=trace.source or f"synthetic: {trace.model.kind}, seed {trace.model.options().get('seed') or seed}",
    )
