"""Estimates what a candidate takes to reach the goal, from its pace and its learning curves, and how sure this is.

A candidate's value is its time, bytes or money at the round in which it reaches the goal. Its uncertainty is the
product of three factors, drawn independently:

* seeds: another seed needs more or fewer rounds. Candidates of one mathematics share this factor.
* extrapolation: the time of rounds that were not simulated (``Pace.spread``).
* the error of the simulator, as measured against exact runs.
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
"""An interval is for the mean over this many runs with other seeds."""

PRIOR_SPREAD = 0.2
"""Prior standard deviation, between seeds, of the logarithm of a value, which a single seed does not show. It is the
median of 77 techniques in randomly drawn scenarios, with six seeds each (docs/measurements/advice.md)."""

_PRIOR_WEIGHT = 2  # degrees of freedom that the prior counts for
DRAWS = 4000


@dataclass(slots=True)
class Known:
    """The findings about a candidate.

    mathematics  candidates with equal texts learn alike in each round (``mathematics.signature``)
    timed        whether its learning depends on times, so that its curves are over time and not over rounds
    error        standard deviation of the logarithm of a simulated time over an exact one
    pace         ``None`` until some rounds have been simulated
    why          why they failed; empty if they did not
    rounds       the most rounds that it may make
    every        rounds between two evaluations
    curves       its trainings, by seed
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
    """What a run has taken by some round: rounds, seconds, bytes over the WAN, and US dollars (0 without prices)."""

    rounds: float
    time_s: float
    wan_bytes: float
    usd: float


Value = Callable[[Reached], float]
"""Returns the quantity to be minimised: time, bytes or money."""


def reached(known: Known, target: Target) -> dict[int, Reached]:
    """Return, by seed, what a candidate took to reach the target, without the seeds that did not reach it."""
    found = {}
    for seed, curve in known.curves.items():
        score = curve.first_at(target)
        if score is not None:
            found[seed] = at(known, curve, score.round + 1, score.at_s)
    return found


def missed(known: Known, reached_with: Mapping[int, Reached]) -> list[Reached]:
    """Return what all rounds take with each seed that made all of them, or diverged, without reaching the goal.

    reached_with  by seed: what the seeds took that did reach it
    """
    return [
        at(known, curve, curve.rounds, curve.ends_s[-1]) if curve.rounds >= known.rounds else after(known, known.rounds)
        for seed, curve in known.curves.items()
        if seed not in reached_with and (curve.rounds >= known.rounds or curve.status == DIVERGED)
    ]


def at(known: Known, curve: Observation, rounds: int, time_s: float) -> Reached:
    """Return what a run with this learning curve takes for ``rounds`` rounds on the candidate's own network.

    time_s  the time of this round in the curve; used only if learning depends on times
    """
    if known.timed:
        return taken(known, rounds, time_s, curve.wan_bytes_by(time_s))
    return after(known, rounds)


def after(known: Known, rounds: int) -> Reached:
    """Return what a candidate takes for ``rounds`` rounds, by its pace."""
    assert known.pace is not None
    return taken(known, rounds, known.pace.time_s(rounds), known.pace.wan_bytes(rounds))


def at_least_after(known: Known, rounds: int) -> Reached:
    """Return what a candidate takes for ``rounds`` rounds, with a lower bound of the time from its shortest rounds."""
    assert known.pace is not None
    return taken(known, rounds, known.pace.least_time_s(rounds), known.pace.wan_bytes(rounds))


def taken(known: Known, rounds: float, time_s: float, wan_bytes: float) -> Reached:
    """Return these quantities with their cost: machines by the hour, and bytes at the mean price of observed ones."""
    if known.prices is None or known.pace is None:
        return Reached(rounds, time_s, wan_bytes, 0.0)
    transfers = wan_bytes * known.prices.of_byte(known.pace.first.pairs)
    return Reached(rounds, time_s, wan_bytes, transfers + known.prices.usd_per_hour * time_s / 3600)


def left_at(known: Known) -> Reached | None:
    """Return what the shortest training of a candidate has taken; ``None`` if none has made a round."""
    if not known.curves:
        return None
    ends = [at(known, curve, curve.rounds, curve.ends_s[-1]) for curve in known.curves.values() if curve.rounds]
    return min(ends, key=lambda end: end.time_s, default=None)


def gave_up(known: Known) -> bool:
    """Return whether some training of a candidate failed, diverged, or ended after all of its rounds."""
    return any(
        curve.status in (DIVERGED, FAILED) or (curve.status == DONE and curve.rounds >= known.rounds)
        for curve in known.curves.values()
    )


def seed_spread(values_by_mathematics: Mapping[str, Sequence[float]]) -> float:
    """Return the standard deviation, between seeds, of the logarithm of values: pooled over candidates and a prior."""
    squares = _PRIOR_WEIGHT * PRIOR_SPREAD**2
    freedom = float(_PRIOR_WEIGHT)
    for values in values_by_mathematics.values():
        logs = np.log(values)
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate's value with its 90 % interval. An infinite ``high`` means that the goal was not reached.

    chance  probability that this value is the lowest of all candidates'
    """

    value: float
    low: float
    high: float
    chance: float


def grain(known: Known, ends: Sequence[Reached]) -> float:
    """Return half the difference in log(rounds) between the evaluation that reached the goal and the next one.

    Runs are scored only at evaluations, so seeds whose results are equal may still differ by up to one evaluation. The
    standard deviation of seeds that reach the goal at one of two successive evaluations is at most this half.
    """
    return sum(math.log1p(known.every / end.rounds) for end in ends) / len(ends) / 2


def _of_other_seeds(known: Known, ends: Sequence[Reached], spread: float) -> float:
    """Return the standard deviation of the logarithm of a mean over other seeds, predicted from the seeds in ``ends``.

    spread  that of a single seed, from candidates with several seeds
    """
    least = PRIOR_SPREAD if len(ends) == 1 else 0.0
    of_one = max(spread, least, grain(known, ends))
    return of_one * math.sqrt(1 / len(ends) + 1 / SEEDS_OF_A_VALUE)


def estimates(
    found: Mapping[str, Known], ends: Mapping[str, Sequence[Reached]], value: Value, seed: int
) -> dict[str, Estimate]:
    """Return an estimate for each candidate in ``ends``.

    ends  what each candidate took to the goal, with each of its seeds
    seed  of the random draws
    """
    if not ends:
        return {}
    values = {name: [value(end) for end in each] for name, each in ends.items()}
    learned = {found[name].mathematics: name for name in values if found[name].curves}  # seeds matter only in training
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
