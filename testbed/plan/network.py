"""Makes the network of a Plan: sites, routes and links.

Links have queues in bytes and traces as series. Rates are divided by the topology's scale, trace times by its speed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from testbed.declaration import made_from
from testbed.facilities import Facilities
from testbed.ids import link_name
from testbed.plan.model import LinkPlan, NetworkPlan, SitePlan
from testbed.scenario.topology.links import Link, Queue, one_way
from testbed.scenario.topology.topology import Topology
from testbed.scenario.topology.traces import LinkTrace
from testbed.settings.series import Series
from topologies.graph import Paths
from topologies.traces.model import LIMITS, rate_or_outage
from topologies.traces.synthetic import make

QUEUE_MARGIN_S = 0.02
MIN_QUEUE_BYTES = 65_536
ALL_PAIRS_LIMIT = 64  # the most sites of a simulated network for which the routes of all pairs are precomputed


def build_links(topology: Topology, seed: int = 0) -> tuple[LinkPlan, ...]:
    """Return the one-way links of a written-out topology. ``seed`` is for random traces."""
    divisors = topology.scale, topology.speed
    return tuple(_link(link, ends, divisors, seed) for ends, link in one_way(topology.links).items())


def default_queue_bytes(rate_bps: float, delay_s: float) -> int:
    """Return the bytes that the link sends in its own round-trip time plus 20 ms, but at least 64 KiB."""
    return max(MIN_QUEUE_BYTES, math.ceil(rate_bps * (2 * delay_s + QUEUE_MARGIN_S) / 8))


def longest_delay_s(link: LinkPlan) -> float:
    """Return the longest delay that a link has at any time, without jitter and queue."""
    return max((link.delay_s, *(link.delay_trace.values if link.delay_trace else ())))


def _link(link: Link, ends: tuple[str, str], divisors: tuple[float, float], seed: int) -> LinkPlan:
    scale, speed = divisors
    name = link_name(*ends)
    rate_bps = _divided(link.rate_bps, scale)
    own = {"rate": rate_bps, "delay": link.delay_s, "loss": link.loss}
    traces: dict[str, Any] = {
        f"{what}_trace": _series(trace, what, value, (scale if what == "rate" else 1.0, speed), f"{seed}/{name}/{what}")
        for what, value in own.items()
        if (trace := getattr(link, f"{what}_trace")) is not None
    }
    return made_from(
        LinkPlan,
        link,
        name=name,
        rate_bps=rate_bps,
        queue_bytes=_queue_bytes(link.queue, rate_bps, link.delay_s, scale),
        state_trace=_outages(link) if link.down else None,
        **traces,
    )


def _divided(value: float, scale: float) -> float:
    """Return ``value / scale``; at scale 1 the value itself, so that an integer is still written as one."""
    return value if scale == 1 else value / scale


def _queue_bytes(queue: Queue | None, rate_bps: float, delay_s: float, scale: float) -> int:
    """Return the size of a queue. A size in bytes is divided by the scale; other units use the divided rate."""
    if queue is None:
        return default_queue_bytes(rate_bps, delay_s)
    if queue.unit == "bytes":
        return max(1, round(queue.amount / scale))
    seconds = {"s": 1.0, "bdp": 2 * delay_s}[queue.unit]
    return max(1, round(queue.amount * seconds * rate_bps / 8))


def _series(trace: LinkTrace, what: str, own: float, divisors: tuple[float, float], seed: str) -> Series:
    """Return a trace as a series. The values of a model are multiples of ``own``, the link's rate, delay or loss."""
    scale, speed = divisors
    bounded = rate_or_outage if what == "rate" else float
    if isinstance(trace, Series):
        return replace(
            trace,
            times_s=tuple(time_s / speed for time_s in trace.times_s),
            values=tuple(bounded(_divided(value, scale)) for value in trace.values),
            period_s=trace.period_s / speed,
        )
    steps, period_s = make(trace.model.kind, trace.model.options, seed)
    low, high, _ = LIMITS[what]
    shown_seed = getattr(trace.model.options, "seed", 0) or seed
    return Series(
        times_s=tuple(time_s / speed for time_s, _ in steps),
        values=tuple(bounded(min(high, max(low, factor * own))) for _, factor in steps),
        period_s=period_s / speed,
        source=trace.source or f"synthetic: {trace.model.kind}, seed {shown_seed}",
    )


def _outages(link: Link) -> Series:
    changes = [change for outage in link.down for change in ((outage.at_s, 0.0), (outage.until_s, 1.0))]
    if changes[0][0] > 0:
        changes.insert(0, (0.0, 1.0))
    times_s, values = zip(*changes, strict=True)
    return Series(times_s=times_s, values=values, source="down")


def build_network(topology: Topology, links: tuple[LinkPlan, ...], facilities: Facilities) -> NetworkPlan:
    """Return sites and routes of a written-out topology with these links; LAN rates are divided by its scale."""
    sites = tuple(_site(topology, index, facilities) for index in range(len(topology.data_centers)))
    every_pair = facilities.has_processes or len(sites) <= ALL_PAIRS_LIMIT
    routes = _routes(sites, links, topology.routing, every_pair)
    return NetworkPlan(sites=sites, routers=topology.routers, links=links, routes=routes, routing=topology.routing)


def _site(topology: Topology, index: int, facilities: Facilities) -> SitePlan:
    data_center = topology.data_centers[index]
    lan = data_center.lan or topology.lan
    subnet = f"10.{index + 1}.0.0/16" if facilities.shapes_links else None
    return SitePlan(
        name=data_center.name,
        index=index,
        lan_rate_bps=lan.rate_bps / topology.scale,
        lan_delay_s=lan.delay_s,
        central=data_center.central,
        subnet=subnet,
    )


def _routes(
    sites: tuple[SitePlan, ...], links: tuple[LinkPlan, ...], routing: str, every_pair: bool
) -> dict[str, tuple[str, ...]]:
    """Return the links of the shortest path (``topologies.graph``) for ordered pairs of sites.

    Without ``every_pair``, these are the routes from every site to the central one and back, the only ones that
    parameter servers use. All pairs would be nine million for three thousand sites; the virtual world computes other
    routes on request. Real networks, of at most 256 nodes, need the routes of all pairs beforehand.
    """
    edges = [(link.source, link.target, link.delay_s) for link in links]
    central = next(site.name for site in sites if site.central)
    names = [site.name for site in sites]
    away = {origin: Paths(edges, origin, routing, backwards=False) for origin in (names if every_pair else [central])}
    home = None if every_pair else Paths(edges, central, routing, backwards=True)
    routes: dict[str, tuple[str, ...]] = {}
    for a in names:
        for b in names if every_pair or a == central else [central]:
            paths, end = (away[a], b) if a in away else (home, a)
            if a != b and paths is not None:
                routes[link_name(a, b)] = tuple(link_name(*ends) for ends in pairwise(paths.path(end)))
    return routes
