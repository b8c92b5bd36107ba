"""Transforms traces (shift, scale, speed up, loop, resample) and summarises them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError
from topologies.traces.model import LIMITS, MAX_LENGTH_S, MAX_POINTS, Trace, rate_or_outage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def looped(trace: Trace, loop: bool) -> Trace:
    """Repeat the trace from its end, or hold its last value."""
    return replace(trace, period_s=trace.length_s if loop else math.inf)


def shifted(trace: Trace, offset_s: float) -> Trace:
    """Begin at ``offset_s``: rotate a looped trace, and cut the beginning off any other. Round times to microseconds.

    Raise ``ScenarioError`` if the offset is beyond the end of a trace that does not loop.
    """
    if not offset_s:
        return trace
    loops = math.isfinite(trace.period_s)
    start = offset_s % trace.period_s if loops else offset_s
    if round(trace.length_s - start, 6) <= 0:
        if not loops:
            raise ScenarioError(
                f"offset {offset_s:g} s is beyond the trace's {trace.length_s:g} s (loop it, or start earlier)"
            )
        start = 0.0  # the offset is a multiple of the period, up to rounding
    begins = [round(time - start, 6) for time in trace.times_s]
    first = bisect_right(begins, 0.0) - 1
    steps = [(max(0.0, begin), value) for begin, value in zip(begins[first:], trace.values[first:], strict=True)]
    if loops:
        passed = bisect_left(begins, 0.0)
        again = (round(time - start + trace.period_s, 6) for time in trace.times_s[:passed])
        steps += zip(again, trace.values, strict=False)
    length = trace.length_s if loops else trace.length_s - start
    return replace(
        trace, times_s=tuple(time for time, _ in steps), values=tuple(value for _, value in steps), length_s=length
    )


def scaled(trace: Trace, factor: float) -> Trace:
    """Multiply all values by ``factor``, and clip them to the limits of a link. Rates below 1 kbit/s become outages."""
    low, high, _ = LIMITS[trace.what]
    values = (min(high, max(low, value * factor)) for value in trace.values)
    return replace(trace, values=tuple(map(rate_or_outage, values) if trace.what == "rate" else values))


def sped_up(trace: Trace, speed: float) -> Trace:
    """Divide all times by ``speed``: 10 turns ten minutes into one.

    Raise ``ScenarioError`` if the trace becomes longer than ``MAX_LENGTH_S``.
    """
    if trace.length_s / speed > MAX_LENGTH_S:
        raise ScenarioError(
            f"speed {speed:g} makes {trace.length_s / speed:g} s, allowed {MAX_LENGTH_S:g} s (choose a larger one)"
        )
    times = tuple(time / speed for time in trace.times_s)
    return replace(trace, times_s=times, period_s=trace.period_s / speed, length_s=trace.length_s / speed)


def steps_of(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield (duration in s, value) of every step of one period."""
    yield from zip(_durations_s(trace).tolist(), trace.values, strict=True)


def _durations_s(trace: Trace) -> NDArray[np.float64]:
    import numpy as np  # importing it takes a tenth of a second, and few scenarios need it

    return np.diff([*trace.times_s, trace.length_s])


def resampled(trace: Trace, step_s: float) -> Trace:
    """Replace the values by means over steps of ``step_s``; the last one may be shorter. The integral is preserved.

    Raise ``ScenarioError`` if there are too many steps.
    """
    import numpy as np

    steps = trace.length_s / step_s
    if not 0 < steps <= MAX_POINTS:
        raise ScenarioError(f"{steps:g} steps of {step_s:g} s, allowed {MAX_POINTS} (choose longer steps)")
    edges = np.minimum(np.arange(math.ceil(round(steps, 9)) + 1) * step_s, trace.length_s)
    knots = np.array([*trace.times_s, trace.length_s])
    spans = _durations_s(trace)
    integral = np.interp(edges, knots, np.cumsum([0.0, *(spans * trace.values)]))
    values = tuple((np.diff(integral) / np.diff(edges)).clip(min=0).tolist())
    return replace(trace, times_s=tuple(round(edge, 6) for edge in edges[:-1]), values=values)


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of a trace. Those of its values are weighted by time, except ``changes``."""

    steps: int
    outages: int  # steps with a rate of 0
    length_s: float
    loops: bool
    step_s: float  # the median
    longest_s: float  # if far above the median, a gap in the measurements: the previous value holds
    mean: float
    deviation: float
    least: float
    p5: float
    median: float
    p95: float
    most: float
    changes: float  # mean change from one step to the next, relative to the mean


def summary(trace: Trace) -> Summary:
    import numpy as np

    durations_s = _durations_s(trace)
    values = np.array(trace.values)
    mean = float(np.average(values, weights=durations_s))
    deviation = math.sqrt(np.average((values - mean) ** 2, weights=durations_s))
    order = values.argsort(kind="stable")
    passed_s = durations_s[order].cumsum()
    p5, half, p95 = values[order][np.searchsorted(passed_s, passed_s[-1] * np.array((0.05, 0.5, 0.95)))].tolist()
    return Summary(
        steps=len(values),
        outages=int((values == 0).sum()) if trace.what == "rate" else 0,
        length_s=trace.length_s,
        loops=math.isfinite(trace.period_s),
        step_s=float(np.quantile(durations_s, 0.5, method="higher")),
        longest_s=float(durations_s.max()),
        mean=mean,
        deviation=deviation,
        least=float(values.min()),
        p5=p5,
        median=half,
        p95=p95,
        most=float(values.max()),
        changes=float(np.abs(np.diff(values)).mean()) / mean if len(values) > 1 and mean else 0.0,
    )
