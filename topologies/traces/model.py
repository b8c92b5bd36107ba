"""The model of a trace, and the settings for reading its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from topologies.text_file import TextFile

MAX_POINTS = 50_000  # most steps of a trace that a link follows
MAX_READ = 1_000_000  # most steps of a trace that is read to be resampled
MAX_LENGTH_S = 1e9  # 30 years: the times of a longer trace are in another unit, or damaged
MIN_RATE_BPS = 1000.0  # a lower rate counts as an outage: 0
WHAT = ("rate", "delay", "loss")
UNITS = {
    "rate": {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "bytes/s": 8.0, "KB/s": 8e3, "MB/s": 8e6},
    "delay": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "loss": {"share": 1.0, "%": 0.01},
}
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
LIMITS = {"rate": (0.0, 1e12, "bit/s"), "delay": (0.0, 10.0, "s"), "loss": (0.0, 0.5, "as a share")}
CONSTANT_LIMITS = LIMITS | {"rate": (MIN_RATE_BPS, 1e12, "bit/s")}  # limits of values that are constant in a run


def rate_or_outage(rate_bps: float) -> float:
    """Return the rate, or 0 (an outage) if it is so low that a packet would take seconds."""
    return rate_bps if rate_bps >= MIN_RATE_BPS else 0.0


@dataclass(frozen=True, slots=True)
class Trace:
    """A step function of time: ``values[i]`` holds from ``times_s[i]`` on. Times are strictly increasing from 0.

    what      ``rate`` (bit/s) | ``delay`` (s, one way) | ``loss`` (share)
    period_s  time after which the trace repeats; if infinite, the last value holds for ever
    length_s  duration of the values, whether the trace repeats or not
    format    the format of its file
    unit      the unit of the values in the file
    notes     assumptions and repairs made when reading the file
    """

    times_s: tuple[float, ...]
    values: tuple[float, ...]
    what: str = "rate"
    period_s: float = math.inf
    length_s: float = 0.0
    format: str = ""
    unit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Settings for reading a file. ``None`` means that they are detected, or the format's own.

    what        ``rate`` | ``delay`` | ``loss``
    format      the kind of the format
    unit        of the values, such as ``kbit/s``
    time_unit   of the times, such as ``ms``
    step_s      width of the bins in which Mahimahi's packets are counted; for FCC, the duration of each rate
    source      with ``target``: the pair to read from a file with many
    columns     (role, name) of columns whose names do not tell their role: ``("rate", "bw in Mbit/s")``
    most_steps  a longer trace is refused
    """

    what: str = "rate"
    format: str | None = None
    unit: str | None = None
    time_unit: str | None = None
    step_s: float | None = None
    source: str | None = None
    target: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    most_steps: int = MAX_POINTS

    def scale(self, default: str) -> float:
        """Return the factor from the file's values to SI units. ``default``: the format's own unit."""
        return UNITS[self.what][self.unit or default]

    def time_scale(self, default: str) -> float:
        """Return the factor from the file's times to seconds. ``default``: the format's own unit."""
        return TIME_UNITS[self.time_unit or default]


def from_durations(
    file: TextFile, steps: list[tuple[int, float, float]], reading: Reading, notes: tuple[str, ...] = ()
) -> Trace:
    """Make a trace from (line, duration in s, value) of consecutive steps. Raise ``ScenarioError`` if it is invalid."""
    if not steps:
        file.refuse(None, "no rows")
    times = []
    now = 0.0
    for line, duration_s, _ in steps:
        if duration_s <= 0:
            file.refuse(line, f"the step lasts {duration_s:g} s", "times must rise; remove the line")
        times.append(round(now, 6))
        now += duration_s
    values = [value for _, _, value in steps]
    return finish(file, times, values, [line for line, _, _ in steps], reading, round(now, 6), notes)


def finish(
    file: TextFile,
    times_s: list[float],
    values: list[float],
    lines: list[int],
    reading: Reading,
    length_s: float,
    notes: tuple[str, ...],
) -> Trace:
    """Make a trace. Raise ``ScenarioError`` if it violates the bounds of all traces.

    Rates below ``MIN_RATE_BPS`` become 0, an outage.

    lines  the line number of each value
    """
    if length_s > MAX_LENGTH_S:
        cure = "are its times in another unit? Correct them, or remove the line"
        file.refuse(lines[-1], f"the trace lasts {length_s:g} s, allowed {MAX_LENGTH_S:g} s", cure)
    if len(values) > reading.most_steps:
        cure = f"resample it: testbed trace {file.name} --resample '1 s' --out SHORT.csv"
        file.refuse(None, f"has {len(values)} steps, allowed {reading.most_steps}", cure)
    for line, (before_s, time_s) in zip(lines[1:], pairwise(times_s), strict=True):
        if time_s <= before_s:
            file.refuse(line, "the step before it is shorter than a microsecond", "times must rise; remove the line")
    low, high, unit = LIMITS[reading.what]
    if reading.what == "rate":
        values = [rate_or_outage(value) if value >= 0 else value for value in values]
    for line, value in zip(lines, values, strict=True):
        if not low <= value <= high:
            cure = "correct it, or state its unit: in a csv by the column's name, elsewhere by 'unit'"
            if reading.what == "loss" and high < value <= 1:
                cure = "where everything is lost, the link is down: give it a rate of 0 there"
            file.refuse(line, f"{value:g} {unit} is outside [{low:g}, {high:g}]", cure)
    return Trace(tuple(times_s), tuple(values), reading.what, math.inf, length_s, notes=notes)


def typical_step_s(times_s: list[float]) -> float:
    """Return the median step, which is the assumed duration of the last value; 1 s for a single time."""
    return median(b - a for a, b in pairwise(times_s)) if len(times_s) > 1 else 1.0
