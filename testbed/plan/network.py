"""The network of a Plan: sites, directed links with their queues and traces, and the routes between sites."""

from __future__ import annotations

import math
from itertools import pairwise

from testbed.ids import link_name
from testbed.plan.model import LinkPlan, NetworkPlan, Series, SitePlan
from testbed.plan.series import scaled_link, series_of
from testbed.scenario.graphs import topology_of
from testbed.scenario.network import Link, Queue, Topology
from testbed.scenario.one_way import one_way
from topologies.generators import BUILDERS
from topologies.paths import Paths

ALL_PAIRS_LIMIT = 64
QUEUE_MARGIN_S = 0.02
MIN_QUEUE_BYTES = 65_536


def expand(topology: Topology) -> Topology:
    """The topology written out: what a generator stands for, or itself."""
    if topology.generator is None:
        return topology
    made = topology_of(BUILDERS[topology.generator.kind](topology.generator.made()))
    return made.model_copy(update={"lan": topology.lan, "scale": topology.scale, "speed": topology.speed})


def build_network(topology: Topology, back_end: str, seed: int = 0) -> NetworkPlan:
    """Sites, links and routes of an expanded topology, rates divided by its scale. ``seed`` is of random traces."""
    scaled = [scaled_link(link, topology.scale) for entry in topology.links for link in one_way(entry)]
    links = tuple(_link(link, topology.speed, seed) for link in scaled)
    sites = tuple(_site(topology, index, back_end) for index in range(len(topology.data_centers)))
    routes = _routes(sites, links, topology.routing)
    return NetworkPlan(sites=sites, routers=topology.routers, links=links, routes=routes, routing=topology.routing)


def default_queue_bytes(rate_bps: float, delay_s: float) -> int:
    """One bandwidth-delay product of the link's own round trip and 20 ms more, and at least 64 KiB."""
    return max(MIN_QUEUE_BYTES, math.ceil(rate_bps * (2 * delay_s + QUEUE_MARGIN_S) / 8))


def _site(topology: Topology, index: int, back_end: str) -> SitePlan:
    data_center = topology.data_centers[index]
    lan = data_center.lan or topology.lan
    subnet = f"10.{index + 1}.0.0/16" if back_end == "emulate" else None
    return SitePlan(
        name=data_center.name, index=index, lan_rate_bps=lan.rate / topology.scale, lan_delay_s=lan.delay,
        central=data_center.central, subnet=subnet,
    )  # fmt: skip


def _link(link: Link, speed: float, seed: int) -> LinkPlan:
    """One direction of a link."""
    source, target = str(link.source), str(link.target)
    traces = {
        f"{what}_trace": series_of(
            trace, getattr(link, what), what, speed, f"{seed}/{link_name(source, target)}/{what}"
        )
        for what, trace in (("rate", link.rate_trace), ("delay", link.delay_trace), ("loss", link.loss_trace))
        if trace is not None
    }
    return LinkPlan(
        name=link_name(source, target), source=source, target=target, rate_bps=link.rate, delay_s=link.delay,
        queue_bytes=_queue_bytes(link.queue, link), jitter_s=link.jitter, loss=link.loss,
        loss_burst_packets=link.loss_burst,
        corruption=link.corruption, duplication=link.duplication, reordering=link.reordering,
        state_trace=_outages(link) if link.down else None, **traces,
    )  # fmt: skip


def _queue_bytes(queue: Queue | None, link: Link) -> int:
    if queue is None:
        return default_queue_bytes(link.rate, link.delay)
    seconds = {"bytes": 8 / link.rate, "s": 1.0, "bdp": 2 * link.delay}[queue.unit]
    return max(1, round(queue.amount * seconds * link.rate / 8))


def _outages(link: Link) -> Series:
    changes = [change for outage in link.down for change in ((outage.at, 0.0), (outage.until, 1.0))]
    if changes[0][0] > 0:
        changes.insert(0, (0.0, 1.0))
    times_s, values = zip(*changes, strict=True)
    return Series(times_s=times_s, values=values, source="down")


def _routes(sites: tuple[SitePlan, ...], links: tuple[LinkPlan, ...], routing: str) -> dict[str, tuple[str, ...]]:
    """The shortest path (``topologies.paths``) for ordered pairs of sites.

    Up to 64 sites: all pairs. Beyond: every site to the central one and back, which is all that nodes of a parameter
    server talk over; three thousand sites would have nine million pairs. The virtual world finds others when asked.
    """
    edges = [(link.source, link.target, link.delay_s) for link in links]
    central = next(site.name for site in sites if site.central)
    names = [site.name for site in sites]
    few = len(names) <= ALL_PAIRS_LIMIT
    away = {origin: Paths(edges, origin, routing, backwards=False) for origin in (names if few else [central])}
    home = None if few else Paths(edges, central, routing, backwards=True)
    routes: dict[str, tuple[str, ...]] = {}
    for a in names:
        for b in names if few or a == central else [central]:
            paths, end = (away[a], b) if a in away else (home, a)
            if a != b and paths is not None:
                routes[link_name(a, b)] = _links_of(paths.path(end))
    return routes


def _links_of(path: list[str]) -> tuple[str, ...]:
    return tuple(link_name(a, b) for a, b in pairwise(path))
