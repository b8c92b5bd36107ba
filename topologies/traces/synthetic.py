"""Traces from seeded models. Their values are multiples of the link's own rate, delay or loss.

So one model fits every link and every ``scale``. Random models are seeded with a text, the scenario's seed and the
link's name, unless ``seed`` fixes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from topologies.traces.model import MAX_POINTS

_STEP = {"help": "time between two values", "unit": "s"}
_LENGTH = {"help": "time after which it repeats", "unit": "s"}
_SEED = {"help": "0: from the scenario's seed and the link's name, so that links differ", "min": 0}
_LOW = {"help": "lowest value, as a multiple of the link's own", "min": 0, "max": 1000}
_HIGH = {"help": "highest value, as a multiple of the link's own", "above": 0, "max": 1000}
Steps = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Constant:
    """One value."""

    factor: float = field(default=1.0, metadata=_HIGH)


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels in turn, each for ``every``, repeated."""

    levels: str = field(default="1 0.5", metadata={"help": "multiples of the link's own value, separated by blanks"})
    every: float = field(default=10.0, metadata={"help": "how long each level holds", "unit": "s"})

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure of every violation."""
        try:
            levels = [float(level) for level in self.levels.split()]
        except ValueError:
            levels = []
        if not levels or not all(0 <= level <= 1000 for level in levels):
            yield "levels", f"expected numbers in [0, 1000], got '{self.levels}'", "e.g. '1 0.5 0.25'"


@dataclass(frozen=True, slots=True)
class Sine:
    """A sine between ``low`` and ``high``, first at their mean and rising: the daily cycle of a network."""

    low: float = field(default=0.5, metadata=_LOW)
    high: float = field(default=1.5, metadata=_HIGH)
    period: float = field(default=60.0, metadata={"help": "time of one wave", "unit": "s"})
    step: float = field(default=1.0, metadata=_STEP)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """See ``Levels``."""
        yield from _bounds(self)
        yield from _count(self.period, self.step)


@dataclass(frozen=True, slots=True)
class Walk:
    """A random walk of the logarithm, reflected at ``low`` and ``high``, from their geometric mean on."""

    low: float = field(default=0.25, metadata={**_LOW, "above": 0})
    high: float = field(default=1.5, metadata=_HIGH)
    spread: float = field(default=0.1, metadata={"help": "deviation of a step of the logarithm", "above": 0, "max": 5})
    step: float = field(default=1.0, metadata=_STEP)
    length: float = field(default=600.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """See ``Levels``."""
        yield from _bounds(self)
        yield from _count(self.length, self.step)


@dataclass(frozen=True, slots=True)
class Markov:
    """Gilbert's on/off chain: exponential times at ``high`` and at ``low`` (Gilbert 1960)."""

    low: float = field(default=0.1, metadata=_LOW)
    high: float = field(default=1.0, metadata=_HIGH)
    mean_high: float = field(default=20.0, metadata={"help": "mean time at high", "unit": "s"})
    mean_low: float = field(default=4.0, metadata={"help": "mean time at low", "unit": "s"})
    length: float = field(default=600.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """See ``Levels``."""
        yield from _bounds(self)
        yield from _count(self.length, (self.mean_high + self.mean_low) / 4)


@dataclass(frozen=True, slots=True)
class Redraw:
    """A new value every ``step``, uniform between ``low`` and ``high`` (as NetStorm's links)."""

    low: float = field(default=0.2, metadata=_LOW)
    high: float = field(default=1.0, metadata=_HIGH)
    step: float = field(default=180.0, metadata=_STEP)
    length: float = field(default=7200.0, metadata=_LENGTH)
    seed: int = field(default=0, metadata=_SEED)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """See ``Levels``."""
        yield from _bounds(self)
        yield from _count(self.length, self.step)


def _bounds(options: Sine | Walk | Markov | Redraw) -> Iterator[tuple[str, str, str]]:
    if options.low > options.high:
        yield "low", f"{options.low:g} is above high ({options.high:g})", "exchange them"


def _count(length_s: float, step_s: float) -> Iterator[tuple[str, str, str]]:
    if not 1 <= length_s / step_s <= MAX_POINTS:
        yield "step", f"{length_s:g} s in steps of {step_s:g} s", f"1 to {MAX_POINTS} steps are possible"


def _constant(options: Constant, _: Random) -> tuple[Steps, float]:
    return [(0.0, options.factor)], math.inf


def _levels(options: Levels, _: Random) -> tuple[Steps, float]:
    levels = [float(level) for level in options.levels.split()]
    return [(number * options.every, level) for number, level in enumerate(levels)], len(levels) * options.every


def _sine(options: Sine, _: Random) -> tuple[Steps, float]:
    middle, swing = (options.high + options.low) / 2, (options.high - options.low) / 2
    times = _times(options.period, options.step)
    # each step has the value of the wave at its middle, so that the mean is kept
    return [
        (t, middle + swing * math.sin(2 * math.pi * (t + options.step / 2) / options.period)) for t in times
    ], options.period


def _walk(options: Walk, random: Random) -> tuple[Steps, float]:
    low, high = math.log(options.low), math.log(options.high)
    now = (low + high) / 2
    steps: Steps = []
    for time_s in _times(options.length, options.step):
        steps.append((time_s, math.exp(now)))
        now = _reflected(now + random.gauss(0.0, options.spread), low, high)
    return steps, options.length


def _reflected(value: float, low: float, high: float) -> float:
    if low == high:
        return low
    place = (value - low) % (2 * (high - low))
    return low + min(place, 2 * (high - low) - place)


def _markov(options: Markov, random: Random) -> tuple[Steps, float]:
    now, at_high = 0.0, True
    steps: Steps = []
    while now < options.length and len(steps) < MAX_POINTS:
        steps.append((round(now, 6), options.high if at_high else options.low))
        now += max(1e-3, random.expovariate(1 / (options.mean_high if at_high else options.mean_low)))
        at_high = not at_high
    return steps, options.length


def _redraw(options: Redraw, random: Random) -> tuple[Steps, float]:
    return [
        (t, random.uniform(options.low, options.high)) for t in _times(options.length, options.step)
    ], options.length


def _times(length_s: float, step_s: float) -> list[float]:
    return [round(number * step_s, 6) for number in range(math.ceil(round(length_s / step_s, 9)))]


def make(kind: str, options: Any, seed: str) -> tuple[Steps, float]:
    """Return (time in s, factor) of every step, and the period in s.

    ``seed`` is used by random kinds whose own seed is 0.
    """
    own = getattr(options, "seed", 0)
    return _MAKERS[kind](options, Random(f"{kind}/{own or seed}"))


SYNTHETIC: dict[str, type[Any]] = {
    "constant": Constant,
    "levels": Levels,
    "sine": Sine,
    "walk": Walk,
    "markov": Markov,
    "redraw": Redraw,
}
_MAKERS: dict[str, Callable[[Any, Random], tuple[Steps, float]]] = {
    "constant": _constant,
    "levels": _levels,
    "sine": _sine,
    "walk": _walk,
    "markov": _markov,
    "redraw": _redraw,
}
