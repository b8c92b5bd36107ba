"""Background traffic in virtual time: datagrams do not yield, so they take their rate from the links of their path."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.plan.model import BackgroundPlan, Plan
from testbed.plan.routes import routes_of
from testbed.simulation.clock import Clock
from testbed.simulation.monitor import Links
from testbed.traffic import bursts


def start_background(plan: Plan, clock: Clock, links: Links, start_s: float) -> None:
    """Training starts, or started at ``start_s``: time 0 of all background traffic. (In simulation it is never tcp.)"""
    numbers = {link.name: number for number, link in enumerate(plan.network.links)}
    for traffic in plan.background:
        route = routes_of(plan.network).between(traffic.source, traffic.target)
        _Source(traffic, tuple(numbers[name] for name in route), clock, links, start_s).start()


class _Source:
    """One entry of the Plan: takes and gives back, burst by burst."""

    def __init__(
        self, traffic: BackgroundPlan, path: tuple[int, ...], clock: Clock, links: Links, begin_s: float
    ) -> None:
        self._traffic, self._path, self._clock, self._links = traffic, path, clock, links
        self._begin_s = begin_s
        self._edges = self._changes()

    def start(self) -> None:
        self._next()

    def _changes(self) -> Iterator[tuple[float, float]]:
        for begin_s, end_s in bursts(self._traffic):
            yield begin_s, self._traffic.rate_bps
            if end_s < float("inf"):
                yield end_s, -self._traffic.rate_bps

    def _next(self) -> None:
        edge = next(self._edges, None)
        if edge is None:
            return
        at_s, rate_bps = self._begin_s + edge[0], edge[1]

        def apply(_: object = None) -> None:
            self._links.take(self._path, rate_bps)
            self._next()

        if at_s <= self._clock.now:
            apply()
        else:
            self._clock.at_background(at_s, apply)
