"""A value that changes while a run trains."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from testbed.declaration import Problem, option, required


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A piecewise-constant function of time: ``values[i]`` holds from ``times_s[i]`` on. ``times_s[0]`` is 0.

    With a finite ``period_s``, the ``period_s`` seconds from ``repeats_from_s`` on repeat; otherwise the last value
    stays.
    """

    times_s: tuple[float, ...]
    values: tuple[float, ...]
    period_s: float = math.inf
    repeats_from_s: float = 0.0
    source: str = ""

    @property
    def repeats(self) -> bool:
        return math.isfinite(self.period_s)

    def segments(self, after_s: float = 0.0) -> Iterator[tuple[float, float, float]]:
        """Yield (begin in s, end in s, value) of each segment in order, beginning with the segment at ``after_s``."""
        lap = 0
        if self.repeats:
            lap = max(0, math.floor((after_s - self.repeats_from_s) / self.period_s))
            lap += after_s >= self._begin_s(lap + 1)  # the quotient was rounded down
            lap -= lap > 0 and after_s < self._begin_s(lap)
        base_s = lap * self.period_s if lap else 0.0
        index = max(0, bisect_right(self.times_s, after_s, key=lambda time_s: base_s + time_s) - 1)
        while True:
            for at in range(index, len(self.times_s)):
                begins = self.times_s[at] <= self.repeats_from_s and lap > 0
                begin_s = self._begin_s(lap) if begins else base_s + self.times_s[at]
                last = at + 1 == len(self.times_s)
                yield begin_s, self._begin_s(lap + 1) if last else base_s + self.times_s[at + 1], self.values[at]
            if not self.repeats:
                return
            lap, index = lap + 1, bisect_right(self.times_s, self.repeats_from_s) - 1
            base_s = lap * self.period_s

    def _begin_s(self, lap: int) -> float:
        """Return when a lap begins. Both neighbours use this value, so that rounding leaves no gap between them."""
        return lap * self.period_s + self.repeats_from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownPoint:
    """A time from which the device is ``factor`` times slower."""

    at_s: float = required(unit="s")
    """Time since the worker's first step."""
    factor: float = required(min=0.001, max=1000.0)
    """How many times longer than its step time a step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Times at which a device is slower: other jobs, thermal throttling, a battery."""

    short: ClassVar[str] = "points"

    points: tuple[SlowdownPoint, ...] = ()
    """Times and factors; the first time is 0 s."""
    repeat_after_s: float = option(math.inf, unit="s", min=1e-6, absent=math.inf)
    """Time after which the points start again; by default the last factor stays."""

    @classmethod
    def of(cls, series: Series) -> Slowdown:
        """Return the written form of a series; the inverse of ``value``."""
        points = (
            SlowdownPoint(at_s=at_s, factor=factor) for at_s, factor in zip(series.times_s, series.values, strict=True)
        )
        return cls(points=tuple(points), repeat_after_s=series.period_s)

    def value(self) -> Series:
        return Series(
            times_s=tuple(point.at_s for point in self.points),
            values=tuple(point.factor for point in self.points),
            period_s=self.repeat_after_s,
        )

    def problems(self) -> Iterator[Problem]:
        if not self.points:
            yield (), "has no points", "write a list of {at: 0 s, factor: 1}, {at: 10 s, factor: 5}"
        else:
            yield from series_problems([point.at_s for point in self.points], self.repeat_after_s)


def series_problems(times_s: Sequence[float], repeat_after_s: float) -> Iterator[Problem]:
    """Yield the problems of a series of ``points``.

    Its times must rise strictly from 0 s, and a repetition must begin after the last of them.
    """
    if times_s[0] != 0:
        yield ("points", 0, "at"), f"the first time is {times_s[0]:g} s, and must be 0 s", ""
    for index, (before, after) in enumerate(pairwise(times_s), start=1):
        if after <= before:
            yield ("points", index, "at"), f"{after:g} s does not come after {before:g} s", ""
    if repeat_after_s <= times_s[-1]:
        yield "repeat_after", f"{repeat_after_s:g} s is not after the last point ({times_s[-1]:g} s)", ""
