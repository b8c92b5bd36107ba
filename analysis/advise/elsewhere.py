"""What would change the advice: which technique wins if all rates or delays, or the size of the model, were different.

A model of another size is assumed to learn in as many rounds, with steps of the same duration: only the sizes of its
messages change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from statistics import geometric_mean

from analysis.advise import estimate
from analysis.advise.estimate import Known
from analysis.advise.observation import DONE, STOPPED, Observation
from analysis.advise.pace import Pace, rounds_to_sample, sampled
from analysis.advise.pool import Task
from analysis.advise.search import Search
from testbed.plan.model import LinkPlan, Plan
from testbed.plan.network import default_queue_bytes
from testbed.settings.run import Timeouts
from testbed.settings.series import Series
from testbed.target import Target

FACTORS = (0.25, 1.0, 4.0)
"""The factors tried for all rates, for all delays, and for the model's size."""
CANDIDATES = 4
"""How many candidates are compared whose learning does not depend on the network."""
TIMED_CANDIDATES = 2
"""How many are compared whose learning depends on times. Each of these is trained anew at every place."""
SHARE = 0.95
"""The share of the budget at which this comparison ends: tables and pictures take the rest."""


@dataclass(frozen=True, slots=True)
class Place:
    """The factors by which all rates, all delays and the model's size differ from the scenario's."""

    rate: float
    delay: float
    size: float = 1.0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The values of the compared candidates at a place, by name."""

    place: Place
    values: Mapping[str, float]

    @property
    def winner(self) -> str:
        return min(self.values, key=self.values.__getitem__)


def places() -> Iterator[Place]:
    """Yield all places except the scenario's own, those that differ least from it first."""
    all_places = [Place(rate, delay, size) for size in FACTORS for rate in FACTORS for delay in FACTORS]
    others = [place for place in all_places if place != Place(1, 1)]
    yield from sorted(others, key=lambda place: (place.size != 1, (place.rate != 1) + (place.delay != 1)))


def at(plan: Plan, place: Place) -> Plan:
    """Return the Plan with the rates, delays and payload sizes of a place."""
    links = tuple(_link(link, place) for link in plan.network.links)
    timeouts = _longer(plan.timeouts, place)
    simulation = replace(plan.simulation, payloads=place.size)
    return replace(plan, network=replace(plan.network, links=links), timeouts=timeouts, simulation=simulation)


def _link(link: LinkPlan, place: Place) -> LinkPlan:
    rate_bps = link.rate_bps * place.rate
    delay_s = link.delay_s * place.delay
    return replace(
        link,
        rate_bps=rate_bps,
        delay_s=delay_s,
        queue_bytes=max(link.queue_bytes, default_queue_bytes(rate_bps, delay_s)),
        rate_trace=_times(link.rate_trace, place.rate),
        delay_trace=_times(link.delay_trace, place.delay),
    )


def _times(series: Series | None, factor: float) -> Series | None:
    return None if series is None else replace(series, values=tuple(factor * value for value in series.values))


def _longer(timeouts: Timeouts, place: Place) -> Timeouts:
    """Return timeouts that are long enough for a place."""
    factor = max(1.0, place.size / place.rate, place.delay)
    changed = {field.name: factor * getattr(timeouts, field.name) for field in fields(timeouts)}
    return replace(timeouts, **changed)


def elsewhere(search: Search) -> list[Elsewhere]:
    """Return, for each place, the values of the best candidates.

    Places at which a candidate has no value are left out. Empty without a target, or with fewer than two candidates.
    """
    target = search.question.target
    here = {name: found.value for name, found in search.estimates().items()}
    best = [search.known[name] for name in sorted(here, key=here.__getitem__)]
    alike = [known for known in best if not known.timed][:CANDIDATES]
    timed = [known for known in best if known.timed][:TIMED_CANDIDATES]
    chosen = [known for known in best if known in (*alike, *timed)]
    if target is None or len(chosen) < 2:
        return []
    search.tell("what would change it")
    values = {Place(1, 1): {known.candidate.name: here[known.candidate.name] for known in chosen}}
    limits = search.budget.limits(SHARE)
    # unreliable datagrams are cut from the real payload, so its size cannot be changed
    sizes_are_fixed = any(known.candidate.plan.transport.best_effort_channels for known in chosen)
    tasks = [
        Task((place, known.candidate.name), _plan(search, known, place), limits)
        for place in places()
        for known in chosen
        if place.size == 1 or not sizes_are_fixed
    ]
    for task, seen in search.simulate(tasks, SHARE):
        place, name = task.key
        known = search.known[name]
        value = (
            _of_training(search, known, target, seen)
            if known.timed
            else _of_pace(search, known, target, task.plan, seen)
        )
        if value is not None:
            values.setdefault(place, {})[name] = value
    return [Elsewhere(place, each) for place, each in values.items() if len(each) == len(chosen)]


def _plan(search: Search, known: Known, place: Place) -> Plan:
    """Return the Plan to simulate at a place: a few rounds, or a training for candidates whose learning depends on
    times."""
    plan = known.candidate.plan
    if known.timed:
        return at(search.training(known, plan, known.rounds), place)
    return at(sampled(plan, rounds_to_sample(plan), 0.0), place)


def _of_pace(search: Search, known: Known, target: Target, plan: Plan, seen: Observation) -> float | None:
    """Return a candidate's value from the pace of a few rounds at a place; ``None`` if this simulation did not end."""
    if seen.status != DONE:
        return None
    there = replace(known, pace=Pace.of(plan, seen))
    ends = estimate.reached(known, target).values()
    return geometric_mean([search.question.value(estimate.after(there, int(end.rounds))) for end in ends])


def _of_training(search: Search, known: Known, target: Target, seen: Observation) -> float | None:
    """Return a candidate's value from a training at a place with the first seed.

    The ratio of the mean over all seeds to the first seed is assumed to be that on the scenario's own network. The
    value is ``None`` if the budget stopped the training, and infinite if the goal was not reached.
    """
    if seen.status == STOPPED:
        return None
    value = search.question.value
    there = estimate.reached(replace(known, curves={search.seed: seen}), target).get(search.seed)
    if there is None:
        return inf
    here = {seed: value(end) for seed, end in estimate.reached(known, target).items()}
    of_seed = here.get(search.seed)
    return value(there) * (geometric_mean(here.values()) / of_seed if of_seed else 1.0)
