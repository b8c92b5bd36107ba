"""Transform traces (shift, scale, speed up, loop, resample) and summarise them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from testbed.errors import ScenarioError
from topologies.traces.model import LIMITS, MAX_LENGTH_S, MAX_POINTS, Trace, rate_or_outage


def looped(trace: Trace, loop: bool) -> Trace:
    """Repeat the trace from its end, or hold its last value."""
    return replace(trace, period_s=trace.length_s if loop else math.inf)


def shifted(trace: Trace, offset_s: float) -> Trace:
    """Begin at ``offset_s``. A looped trace is rotated, another loses its beginning.

    Raise ``ScenarioError`` for an offset beyond the end.
    """
    if not offset_s:
        return trace
    loops = math.isfinite(trace.period_s)
    start = offset_s % trace.period_s if loops else offset_s
    if start >= trace.length_s:
        raise ScenarioError(
            f"offset {offset_s:g} s is beyond the trace's {trace.length_s:g} s (loop it, or start earlier)"
        )
    first = bisect_right(trace.times_s, start) - 1
    steps = [(max(0.0, time - start), trace.values[i]) for i, time in enumerate(trace.times_s) if i >= first]
    if loops:
        rest = trace.period_s - start
        steps += [(rest + time, trace.values[i]) for i, time in enumerate(trace.times_s) if time < start]
    length = trace.length_s if loops else trace.length_s - start
    times = tuple(round(time, 6) for time, _ in steps)
    return replace(trace, times_s=times, values=tuple(value for _, value in steps), length_s=length)


def scaled(trace: Trace, factor: float) -> Trace:
    """Multiply all values by ``factor``, within the limits of a link. Rates below 1 kbit/s become outages."""
    low, high, _ = LIMITS[trace.what]
    values = (min(high, max(low, value * factor)) for value in trace.values)
    return replace(trace, values=tuple(map(rate_or_outage, values) if trace.what == "rate" else values))


def sped_up(trace: Trace, speed: float) -> Trace:
    """Divide all times by ``speed``: 10 makes ten minutes one. Raise ``ScenarioError`` above ``MAX_LENGTH_S``."""
    if trace.length_s / speed > MAX_LENGTH_S:
        raise ScenarioError(
            f"speed {speed:g} makes {trace.length_s / speed:g} s, allowed {MAX_LENGTH_S:g} s (choose a larger one)"
        )
    times = tuple(time / speed for time in trace.times_s)
    return replace(trace, times_s=times, period_s=trace.period_s / speed, length_s=trace.length_s / speed)


def steps_of(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield (duration in s, value) of every step of one period."""
    ends = (*trace.times_s[1:], trace.length_s)
    for start, end, value in zip(trace.times_s, ends, trace.values, strict=True):
        yield end - start, value


def resampled(trace: Trace, step_s: float) -> Trace:
    """Replace the steps by means over steps of ``step_s``; the last may be shorter. The integral stays the same.

    Raise ``ScenarioError`` for too many steps.
    """
    steps = trace.length_s / step_s
    if not 0 < steps <= MAX_POINTS:
        raise ScenarioError(f"{steps:g} steps of {step_s:g} s, allowed {MAX_POINTS} (choose longer steps)")
    count = math.ceil(round(steps, 9))
    edges = [min(number * step_s, trace.length_s) for number in range(count + 1)]
    sums = [0.0] * count
    number, now = 0, 0.0
    for duration_s, value in steps_of(trace):
        end = now + duration_s
        while number < count:
            upto = min(end, edges[number + 1])
            sums[number] += value * max(0.0, upto - now)
            now = upto
            if end < edges[number + 1]:
                break
            number += 1
        now = end
    values = tuple(total / (b - a) for total, a, b in zip(sums, edges, edges[1:], strict=False))
    return replace(trace, times_s=tuple(round(edge, 6) for edge in edges[:-1]), values=values)


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of a trace; those of values are weighted by time."""

    steps: int
    length_s: float
    loops: bool
    step_s: float  # the median
    longest_s: float  # far above the median: a gap, over which the previous value holds
    mean: float
    deviation: float
    least: float
    p5: float
    median: float
    p95: float
    most: float
    changes: float  # mean change from one step to the next, relative to the mean


def summary(trace: Trace) -> Summary:
    """Return the statistics of a trace."""
    steps = list(steps_of(trace))
    total = math.fsum(duration for duration, _ in steps)
    mean = math.fsum(duration * value for duration, value in steps) / total
    square = math.fsum(duration * (value - mean) ** 2 for duration, value in steps) / total
    pairs = list(zip(trace.values, trace.values[1:], strict=False))
    changes = math.fsum(abs(b - a) for a, b in pairs) / len(pairs) / mean if pairs and mean else 0.0
    ordered = sorted(steps, key=lambda step: step[1])
    loops, middle = math.isfinite(trace.period_s), sorted(duration for duration, _ in steps)[len(steps) // 2]
    p5, half, p95 = (_quantile(ordered, total, share) for share in (0.05, 0.5, 0.95))
    least, most, deviation = ordered[0][1], ordered[-1][1], math.sqrt(square)
    longest = max(duration for duration, _ in steps)
    return Summary(
        len(steps), trace.length_s, loops, middle, longest, mean, deviation, least, p5, half, p95, most, changes
    )


def _quantile(ordered: list[tuple[float, float]], total: float, share: float) -> float:
    passed = 0.0
    for duration, value in ordered:
        passed += duration
        if passed >= share * total:
            return value
    return ordered[-1][1]
