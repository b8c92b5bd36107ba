"""What a candidate would take to the goal, by the pace of its rounds and what it learns in them, and how sure that is.

A candidate's value is its time, bytes or money at the round in which it reaches the goal. Three things make it
uncertain, and are drawn independently, as factors:

* another seed learns in more or fewer rounds: what candidates of one mathematics have in common;
* rounds that were not simulated, but extrapolated (``Pace.spread``);
* the simulator's own error, as exact runs show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.advise.candidates import Candidate
from analysis.advise.observation import DIVERGED, DONE, FAILED, Observation
from analysis.advise.pace import Pace
from analysis.advise.prices import Prices
from testbed.target import Target

SEEDS_OF_A_VALUE = 3
"""Intervals are those of the mean over so many runs, of other seeds."""

PRIOR_SPREAD = 0.2
"""Standard deviation of the logarithm of a value between seeds, of which one seed alone says nothing: the median of 77
techniques in drawn scenarios, with six seeds each (docs/measurements/advice.md)."""

_PRIOR_WEIGHT = 2  # degrees of freedom for which the prior counts
DRAWS = 4000


@dataclass(slots=True)
class Known:
    """What has been found out about a candidate.

    mathematics  candidates of one text learn alike in each round
    timed        whether what it learns depends on times, so that its curves are over time and not over rounds
    rounds       that it makes at most
    every        rounds between two evaluations
    curves       what it learns, by seed
    paces        of other seeds, and of more rounds, by seed
    """

    candidate: Candidate
    mathematics: str
    timed: bool
    error: float
    prices: Prices | None = None
    pace: Pace | None = None
    why: str = ""
    rounds: int = 0
    every: int = 1
    curves: dict[int, Observation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reached:
    """What a run has taken by some round: rounds, seconds, bytes over the WAN, and US dollars by known prices."""

    rounds: float
    time_s: float
    wan_bytes: float
    usd: float


Value = Callable[[Reached], float]
"""What is to be least."""


def reached(known: Known, target: Target) -> dict[int, Reached]:
    """Return, by seed, where a candidate reaches the target; seeds with which it does not are left out."""
    found = {}
    for seed, curve in known.curves.items():
        score = curve.first_at(target)
        if score is not None:
            found[seed] = at(known, curve, score.round + 1, score.at_s)
    return found


def missed(known: Known, reached_with: Mapping[int, Reached]) -> list[Reached]:
    """Return what all rounds took with the other seeds, with which these did not suffice."""
    return [
        at(known, curve, curve.rounds, curve.ends_s[-1])
        for seed, curve in known.curves.items()
        if seed not in reached_with and curve.rounds >= known.rounds
    ]


def at(known: Known, curve: Observation, rounds: int, time_s: float) -> Reached:
    """Return what a run with this curve has taken after ``rounds`` rounds, over the candidate's own network."""
    if known.timed:
        return taken(known, rounds, time_s, curve.wan_bytes_by(time_s))
    return after(known, rounds)


def after(known: Known, rounds: int) -> Reached:
    """Return what a candidate has taken after ``rounds`` rounds, by its pace."""
    assert known.pace is not None
    return taken(known, rounds, known.pace.time_s(rounds), known.pace.wan_bytes(rounds))


def at_least_after(known: Known, rounds: int) -> Reached:
    """Return what a candidate has taken after ``rounds`` rounds at the least, by its shortest rounds."""
    assert known.pace is not None
    return taken(known, rounds, known.pace.least_time_s(rounds), known.pace.wan_bytes(rounds))


def taken(known: Known, rounds: float, time_s: float, wan_bytes: float) -> Reached:
    """Return these quantities with what they cost: transfers as the candidate's observed ones, machines by the hour."""
    if known.prices is None or known.pace is None:
        return Reached(rounds, time_s, wan_bytes, 0.0)
    transfers = wan_bytes * known.prices.of_byte(known.pace.first.pairs)
    return Reached(rounds, time_s, wan_bytes, transfers + known.prices.usd_per_hour * time_s / 3600)


def left_at(known: Known) -> Reached | None:
    """Return how far a candidate was followed without reaching the goal; ``None`` if it was not followed at all."""
    if not known.curves:
        return None
    ends = [at(known, curve, curve.rounds, curve.ends_s[-1]) for curve in known.curves.values() if curve.rounds]
    return min(ends, key=lambda end: end.time_s, default=None)


def gave_up(known: Known) -> bool:
    """Return whether it has made all of its rounds, or diverged, without reaching the goal."""
    return any(
        curve.status in (DIVERGED, FAILED) or (curve.status == DONE and curve.rounds >= known.rounds)
        for curve in known.curves.values()
    )


def seed_spread(values_by_mathematics: Mapping[str, Sequence[float]]) -> float:
    """Return the standard deviation between seeds of the logarithm of values, pooled over candidates, with a prior."""
    squares = _PRIOR_WEIGHT * PRIOR_SPREAD**2
    freedom = float(_PRIOR_WEIGHT)
    for values in values_by_mathematics.values():
        logs = np.log(values)
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 90 % interval, and ``chance``: how likely it is the least of all. Infinite: not reached."""

    value: float
    low: float
    high: float
    chance: float


def grain(known: Known, ends: Sequence[Reached]) -> float:
    """Return half of what one evaluation more takes, as a difference of logarithms.

    A goal is seen to be reached at an evaluation only. Where seeds reach it at one of two in a row, their standard
    deviation is half of the difference at most, however alike the few seeds are that were tried.
    """
    return sum(math.log1p(known.every / end.rounds) for end in ends) / len(ends) / 2


def _of_other_seeds(known: Known, ends: Sequence[Reached], spread: float) -> float:
    """Return the standard deviation of the logarithm of the mean over other seeds, as seen from these.

    ``spread``: of one seed, as candidates with several show it.
    """
    least = PRIOR_SPREAD if len(ends) == 1 else 0.0
    of_one = max(spread, least, grain(known, ends))
    return of_one * math.sqrt(1 / len(ends) + 1 / SEEDS_OF_A_VALUE)


def estimates(
    found: Mapping[str, Known], ends: Mapping[str, Sequence[Reached]], value: Value, seed: int
) -> dict[str, Estimate]:
    """Return an estimate for each candidate that has ``ends``: one for each of its seeds. ``seed``: of the draws."""
    if not ends:
        return {}
    values = {name: [value(end) for end in each] for name, each in ends.items()}
    learned = {found[name].mathematics: name for name in values if found[name].curves}  # else no seed matters
    spread = seed_spread({key: values[name] for key, name in learned.items()})
    generator = np.random.default_rng(seed)
    shared = {
        key: generator.standard_normal(DRAWS) * _of_other_seeds(found[name], ends[name], spread)
        for key, name in learned.items()
    }
    drawn = {}
    for name, each in values.items():
        known = found[name]
        own = generator.standard_normal(DRAWS) * math.hypot(_extrapolated(known), known.error)
        drawn[name] = np.exp(np.log(each).mean() + shared.get(known.mathematics, 0.0) + own)
    first = np.stack(list(drawn.values())).argmin(axis=0)
    found_estimates = {}
    for place, (name, draws) in enumerate(drawn.items()):
        low, high = np.quantile(draws, (0.05, 0.95))
        middle = float(np.exp(np.log(values[name]).mean()))
        found_estimates[name] = Estimate(middle, float(low), float(high), float((first == place).mean()))
    return found_estimates


def _extrapolated(known: Known) -> float:
    if known.timed or known.pace is None or not known.curves:
        return 0.0
    return known.pace.spread(max(curve.rounds for curve in known.curves.values()))
