"""What would change the advice: who wins where all links are slower, faster, nearer or farther."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from statistics import fmean

from analysis.advise import estimate
from analysis.advise.estimate import Known
from analysis.advise.mathematics import period
from analysis.advise.observation import DONE, Limits
from analysis.advise.pace import WARM_UP, Pace, sampled
from analysis.advise.pool import Task
from analysis.advise.search import Search
from testbed.plan.model import LinkPlan, Plan
from testbed.plan.network import default_queue_bytes
from testbed.settings.run import Timeouts
from testbed.settings.series import Series

FACTORS = (0.25, 1.0, 4.0)
"""Of all rates, and of all delays."""
PERIODS = 2
CANDIDATES = 4
SHARE = 0.95
"""Of the budget, at which this ends: tables and pictures take the rest."""


@dataclass(frozen=True, slots=True)
class Place:
    """A network whose rates and delays are multiples of the scenario's."""

    rate: float
    delay: float


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The values of candidates at a place, by name."""

    place: Place
    values: Mapping[str, float]

    @property
    def winner(self) -> str:
        return min(self.values, key=self.values.__getitem__)


def places() -> Iterator[Place]:
    """Yield the places of the map but the scenario's own, the nearest ones first."""
    corners = [Place(rate, delay) for rate in FACTORS for delay in FACTORS if (rate, delay) != (1, 1)]
    yield from sorted(corners, key=lambda place: (place.rate != 1) + (place.delay != 1))


def at(plan: Plan, place: Place) -> Plan:
    """Return a few rounds of a Plan by sizes alone, on a network with other rates and delays."""
    shown = sampled(plan, (WARM_UP + PERIODS) * period(plan), 0.0)
    links = tuple(_link(link, place) for link in shown.network.links)
    timeouts = _longer(shown.timeouts, place)
    return replace(shown, network=replace(shown.network, links=links), timeouts=timeouts)


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
    """Return deadlines that hold there, too."""
    factor = max(1.0, 1 / place.rate, place.delay)
    changed = {field.name: factor * getattr(timeouts, field.name) for field in fields(timeouts)}
    return replace(timeouts, **changed)


def elsewhere(search: Search) -> list[Elsewhere]:
    """Return who wins at which place, of the best candidates that learn alike everywhere; empty for fewer than two."""
    accuracy = search.question.accuracy
    found = search.estimates()
    order = sorted(found, key=lambda name: found[name].value)
    chosen = [search.known[name] for name in order if not search.known[name].timed][:CANDIDATES]
    if accuracy is None or len(chosen) < 2:
        return []
    search.tell("what would change it")
    names = [known.candidate.name for known in chosen]
    rounds = {known.candidate.name: _rounds(known, accuracy) for known in chosen}
    values = {Place(1, 1): {name: fmean(each) for name, each in search.values().items() if name in names}}
    limits = Limits(clock_s=search.budget.clock_s(SHARE))
    tasks = [
        Task((place, known.candidate.name), at(known.candidate.plan, place), limits)
        for place in places()
        for known in chosen
    ]
    for task, seen in search.simulate(tasks, SHARE):
        place, name = task.key
        if seen.status == DONE:
            there = replace(search.known[name], pace=Pace.of(task.plan, seen))
            each = [search.question.value(estimate.after(there, count)) for count in rounds[name]]
            values.setdefault(place, {})[name] = fmean(each)
    return [Elsewhere(place, each) for place, each in values.items() if len(each) == len(chosen)]


def _rounds(known: Known, accuracy: float) -> list[int]:
    return [int(end.rounds) for end in estimate.reached(known, accuracy).values()]
