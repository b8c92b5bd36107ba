"""Traces from seeded models, whose values are multiples of the link's own rate, delay or loss.

So one model fits every link and every ``scale``. The seed of a random model is its option ``seed``; if that is 0, the
scenario's seed and the link's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from testbed.units import parse_float
from topologies.traces.model import MAX_POINTS

_STEP = {"help": "time between two values", "unit": "s"}
_LENGTH = {"help": "time after which it repeats", "unit": "s"}
_SEED = {"help": "0: from the scenario's seed and the link's name, so that links differ", "min": 0}
_LOW = {"help": "lowest value, as a multiple of the link's own", "min": 0, "max": 1000}
_HIGH = {"help": "highest value, as a multiple of the link's own", "above": 0, "max": 1000}
Steps = list[tuple[float, float]]


class _Ranged:
    """A model between ``low`` and ``high`` with a number of steps."""

    __slots__ = ()
    low: float
    high: float

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure of every violation."""
        if self.low > self.high:
            yield "low", f"{self.low:g} is above high ({self.high:g})", "exchange them"
        length_s, step_s = self.extent_s()
        if not 1 <= length_s / step_s <= MAX_POINTS:
            yield "step", f"{length_s:g} s in steps of {step_s:g} s", f"1 to {MAX_POINTS} steps are possible"

    def extent_s(self) -> tuple[float, float]:
        """Return the length of a period and of a step (s)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant value."""

    factor: float = field(default=1.0, metadata=_HIGH)

    def steps(self, _: Random) -> tuple[Steps, float]:
        """Return (time in s, factor) of every step, and the period in s. Only random models use the generator."""
        return [(0.0, self.factor)], math.inf


@dataclass(frozen=True, slots=True)
class Levels:
    """A repeated sequence of levels, each of which lasts for ``every``."""

    levels: str = field(default="1 0.5", metadata={"help": "multiples of the link's own value, separated by blanks"})
    every: float = field(default=10.0, metadata={"help": "how long each level holds", "unit": "s"})

    def problems(self) -> Iterator[tuple[str, str, str]]:
        try:
            levels = [parse_float(level) for level in self.levels.split()]
        except ValueError:
            levels = []
        if not levels or not all(0 <= level <= 1000 for level in levels):
            yield "levels", f"expected numbers in [0, 1000], got '{self.levels}'", "e.g. '1 0.5 0.25'"

    def steps(self, _: Random) -> tuple[Steps, float]:
        levels = [parse_float(level) for level in self.levels.split()]
        return [(number * self.every, level) for number, level in enumerate(levels)], len(levels) * self.every


@dataclass(frozen=True, slots=True)
class Sine(_Ranged):
    """A sine between ``low`` and ``high``, which begins at their mean and rises: the daily cycle of a network."""

    low: float = field(default=0.5, metadata=_LOW)
    high: float = field(default=1.5, metadata=_HIGH)
    period: float = field(default=60.0, metadata={"help": "time of one wave", "unit": "s"})
    step: float = field(default=1.0, metadata=_STEP)

    def extent_s(self) -> tuple[float, float]:
        return self.period, self.step

    def steps(self, _: Random) -> tuple[Steps, float]:
        """Return the same as ``Constant.steps``. A step has the value in its middle, which preserves the mean."""
        middle = (self.high + self.low) / 2
        swing = (self.high - self.low) / 2
        wave = [
            (t, middle + swing * math.sin(2 * math.pi * (t + self.step / 2) / self.period))
            for t in _times(self.period, self.step)
        ]
        return wave, self.period


@dataclass(frozen=True, slots=True)
class Walk(_Ranged):
    """A random walk of the logarithm, reflected at ``low`` and ``high``, that begins at their geometric mean."""

    low: float = field(default=0.25, metadata={**_LOW, "above": 0})
    high: float = field(default=1.5, metadata=_HIGH)
    spread: float = field(default=0.1, metadata={"help": "deviation of a step of the logarithm", "above": 0, "max": 5})
    step: float = field(default=1.0, metadata=_STEP)
    length: float = field(default=600.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def extent_s(self) -> tuple[float, float]:
        return self.length, self.step

    def steps(self, random: Random) -> tuple[Steps, float]:
        low = math.log(self.low)
        high = math.log(self.high)
        now = (low + high) / 2
        steps: Steps = []
        for time_s in _times(self.length, self.step):
            steps.append((time_s, math.exp(now)))
            now = _reflected(now + random.gauss(0.0, self.spread), low, high)
        return steps, self.length


@dataclass(frozen=True, slots=True)
class Markov(_Ranged):
    """Gilbert's on/off chain: exponentially distributed times at ``high`` and at ``low`` (Gilbert 1960)."""

    low: float = field(default=0.1, metadata=_LOW)
    high: float = field(default=1.0, metadata=_HIGH)
    mean_high: float = field(default=20.0, metadata={"help": "mean time at high", "unit": "s"})
    mean_low: float = field(default=4.0, metadata={"help": "mean time at low", "unit": "s"})
    length: float = field(default=600.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def extent_s(self) -> tuple[float, float]:
        return self.length, (self.mean_high + self.mean_low) / 4

    def steps(self, random: Random) -> tuple[Steps, float]:
        now = 0.0
        at_high = True
        steps: Steps = []
        while now < self.length and len(steps) < MAX_POINTS:
            steps.append((round(now, 6), self.high if at_high else self.low))
            now += max(1e-3, random.expovariate(1 / (self.mean_high if at_high else self.mean_low)))
            at_high = not at_high
        return steps, self.length


@dataclass(frozen=True, slots=True)
class Redraw(_Ranged):
    """A new value every ``step``, uniform between ``low`` and ``high``, as for NetStorm's links."""

    low: float = field(default=0.2, metadata=_LOW)
    high: float = field(default=1.0, metadata=_HIGH)
    step: float = field(default=180.0, metadata=_STEP)
    length: float = field(default=7200.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def extent_s(self) -> tuple[float, float]:
        return self.length, self.step

    def steps(self, random: Random) -> tuple[Steps, float]:
        return [(t, random.uniform(self.low, self.high)) for t in _times(self.length, self.step)], self.length


def _times(length_s: float, step_s: float) -> list[float]:
    return [round(number * step_s, 6) for number in range(math.ceil(round(length_s / step_s, 9)))]


def _reflected(value: float, low: float, high: float) -> float:
    if low == high:
        return low
    place = (value - low) % (2 * (high - low))
    return low + min(place, 2 * (high - low) - place)


def make(kind: str, options: Any, seed: str) -> tuple[Steps, float]:
    """Return (time in s, factor) of every step, and the period in s.

    seed  of random models whose own seed is 0
    """
    steps: tuple[Steps, float] = options.steps(Random(f"{kind}/{getattr(options, 'seed', 0) or seed}"))
    return steps


SYNTHETIC: dict[str, type[Any]] = {
    "constant": Constant,
    "levels": Levels,
    "sine": Sine,
    "walk": Walk,
    "markov": Markov,
    "redraw": Redraw,
}
