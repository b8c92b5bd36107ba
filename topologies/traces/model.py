"""A trace, the settings for reading its file, and errors that name file, line, problem and cure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NoReturn

from testbed.errors import ScenarioError
from testbed.regular_file import read_regular
from testbed.units import parse_float

MAX_POINTS = 50_000  # of a trace that a link follows
MAX_READ = 1_000_000  # of one that is read to be resampled
MAX_FILE_BYTES = 64 << 20
MAX_LENGTH_S = 1e9  # 30 years: longer ones are in another unit, or damaged
MIN_RATE_BPS = 1000.0  # anything below is an outage: 0
WHAT = ("rate", "delay", "loss")
UNITS = {
    "rate": {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "bytes/s": 8.0, "KB/s": 8e3, "MB/s": 8e6},
    "delay": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "loss": {"share": 1.0, "%": 0.01},
}
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
LIMITS = {"rate": (0.0, 1e12, "bit/s"), "delay": (0.0, 10.0, "s"), "loss": (0.0, 0.5, "as a share")}


def rate_or_outage(rate_bps: float) -> float:
    """Return the rate, or 0, an outage, for one so low that a packet would be under way for seconds."""
    return rate_bps if rate_bps >= MIN_RATE_BPS else 0.0


@dataclass(frozen=True, slots=True)
class Trace:
    """``values[i]`` holds from ``times_s[i]`` on; times rise strictly from 0.

    what      ``rate`` (bit/s) | ``delay`` (s, one way) | ``loss`` (share)
    period_s  time after which it repeats; infinite: the last value stays
    length_s  duration of the values, whether it repeats or not
    format    the format of its file; ``unit``: of the values there; ``notes``: what was assumed or repaired
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
    """Settings for reading a file. ``None``: auto-detected, or the format's own.

    what       ``rate`` | ``delay`` | ``loss``
    unit       of the values, such as ``kbit/s``; time_unit of the times
    step_s     width of the bins into which Mahimahi's packets are counted
    source     the pair to pick from a file of many, with ``target``
    columns    of a table, (role, name) of columns whose names do not tell: ``("rate", "bw in Mbit/s")``
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
        """Return the factor from the file's values to SI units; ``default`` is the format's own unit."""
        return UNITS[self.what][self.unit or default]

    def time_scale(self, default: str) -> float:
        """Return the factor from the file's times to seconds; ``default`` is the format's own unit."""
        return TIME_UNITS[self.time_unit or default]


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file, its rows (line number and text, without comments and empty lines), its name for messages."""

    name: str
    text: str
    rows: tuple[tuple[int, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, name: str, text: str) -> TextFile:
        """Make a file from a text in memory."""
        numbered = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
        return cls(name, text, tuple((number, line) for number, line in numbered if line and line[0] != "#"))

    @classmethod
    def read(cls, path: Path, limit_bytes: int = MAX_FILE_BYTES) -> TextFile:
        """Read a regular file of at most ``limit_bytes`` in UTF-8. Raise ``ScenarioError``."""
        try:
            return cls.of(path.name, read_regular(path, limit_bytes).decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            cure = f"save it as UTF-8: iconv -f latin1 -t utf-8 {path.name} > NEW; or is it no text file?"
            problem = f"{path.name}:{line}: not valid UTF-8 at byte {error.start} ({cure})"
            raise ScenarioError(problem) from error
        except OSError as error:
            raise ScenarioError(f"{path.name}: {error.strerror}") from error

    def refuse(self, line: int | None, problem: str, cure: str = "") -> NoReturn:
        """Raise ``ScenarioError`` for a line (``None``: the whole file)."""
        where = f"{self.name}:{line}" if line else self.name
        raise ScenarioError(f"{where}: {problem} ({cure})" if cure else f"{where}: {problem}")

    def number(self, line: int, text: str, problem: str, cure: str) -> float:
        """Return a text as a finite number; refuse any other for ``problem``, with ``cure``."""
        try:
            value = parse_float(text)
        except ValueError:
            value = math.nan
        return value if math.isfinite(value) else self.refuse(line, problem, cure)

    def numbers(self, columns: int, what: str, cure: str) -> Iterator[tuple[int, list[float]]]:
        """Yield line number and finite numbers of every row, separated by commas or blanks.

        ``what`` and ``cure`` describe a row of ``columns`` numbers in the error for any other.
        """
        if not self.rows:
            self.refuse(None, "no rows")
        for line, text in self.rows:
            problem = f"expected {what}, got '{text[:40]}'"
            values = [self.number(line, cell, problem, cure) for cell in text.replace(",", " ").split()]
            if len(values) != columns:
                self.refuse(line, problem, cure)
            yield line, values


def from_durations(
    file: TextFile, steps: list[tuple[int, float, float]], reading: Reading, notes: tuple[str, ...] = ()
) -> Trace:
    """Make a trace from (line, duration in s, value) of consecutive steps. Raise ``ScenarioError``."""
    if not steps:
        file.refuse(None, "no rows")
    times, now = [], 0.0
    for line, duration_s, _ in steps:
        if duration_s <= 0:
            file.refuse(line, f"the step lasts {duration_s:g} s", "times must rise; remove the line")
        times.append(round(now, 6))
        now += duration_s
    values = [value for _, _, value in steps]
    return finish(file, times, values, [line for line, _, _ in steps], reading, round(now, 6), notes)


def finish(
    file: TextFile, times_s: list[float], values: list[float], lines: list[int], reading: Reading,
    length_s: float, notes: tuple[str, ...],
) -> Trace:  # fmt: skip
    """Make a trace, within the bounds that hold for every trace. Raise ``ScenarioError``.

    Rates below ``MIN_RATE_BPS`` become 0, an outage. ``lines`` are the line numbers of the values.
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
    """Return the median step, which is assumed for the last value."""
    return median(b - a for a, b in pairwise(times_s)) if len(times_s) > 1 else 1.0
