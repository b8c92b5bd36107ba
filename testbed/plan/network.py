"""The network of a Plan: sites, directed links with their queues and traces, and the routes between sites."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import networkx as nx

from testbed.ids import link_name
from testbed.plan.model import LinkPlan, NetworkPlan, Series, SitePlan
from testbed.scenario.network import DataCenter, Link, Queue, RateTrace, Reverse, Topology
from testbed.scenario.rules import directions
from topologies.generators import BUILDERS, GENERATORS
from topologies.graph import pairs, routers

ALL_PAIRS_LIMIT = 64
QUEUE_MARGIN_S = 0.02
MIN_QUEUE_BYTES = 65_536


def expand(topology: Topology) -> Topology:
    """The topology written out: what a generator stands for, or itself."""
    if topology.generator is None:
        return topology
    kind = topology.generator.kind
    graph = BUILDERS[kind](GENERATORS[kind](**topology.generator.options()))
    central = graph.graph["central"]
    data_centers = tuple(
        DataCenter(name=name, central=name == central, workers=data["workers"])
        for name, data in graph.nodes(data=True)
        if data["workers"] is not None
    )
    links = tuple(Link(between=(a, b), rate=data["rate_bps"], delay=data["delay_s"]) for a, b, data, _ in pairs(graph))
    return Topology(data_centers=data_centers, routers=tuple(routers(graph)), links=links, lan=topology.lan)


def build_network(topology: Topology, back_end: str) -> NetworkPlan:
    """Sites, links and routes of an expanded topology."""
    links = tuple(plan for link in topology.links for plan in _directed(link))
    sites = tuple(_site(topology, index, back_end) for index in range(len(topology.data_centers)))
    return NetworkPlan(sites=sites, routers=topology.routers, links=links, routes=_routes(sites, links))


def default_queue_bytes(rate_bps: float, delay_s: float) -> int:
    """One bandwidth-delay product of the link's own round trip and 20 ms more, and at least 64 KiB."""
    return max(MIN_QUEUE_BYTES, math.ceil(rate_bps * (2 * delay_s + QUEUE_MARGIN_S) / 8))


def _site(topology: Topology, index: int, back_end: str) -> SitePlan:
    data_center = topology.data_centers[index]
    lan = data_center.lan or topology.lan
    subnet = f"10.{index + 1}.0.0/16" if back_end == "emulate" else None
    return SitePlan(
        name=data_center.name, index=index, lan_rate_bps=lan.rate, lan_delay_s=lan.delay,
        central=data_center.central, subnet=subnet,
    )  # fmt: skip


def _directed(link: Link) -> Iterator[LinkPlan]:
    there, *back = directions(link)
    yield _link(*there, link)
    if back:
        yield _link(*back[0], _reversed(link, link.reverse) if link.reverse else link)


def _reversed(link: Link, reverse: Reverse) -> Link:
    """The link as it is on the way back. A rate of its own replaces the trace as well."""
    changes = {key: value for key, value in reverse if value is not None}
    if reverse.rate is not None:
        changes.setdefault("rate_trace", None)
    return link.model_copy(update=changes)


def _link(source: str, target: str, link: Link) -> LinkPlan:
    return LinkPlan(
        name=link_name(source, target), source=source, target=target, rate_bps=link.rate, delay_s=link.delay,
        queue_bytes=_queue_bytes(link.queue, link), jitter_s=link.jitter, loss=link.loss,
        rate_trace=_series(link.rate_trace) if link.rate_trace else None,
    )  # fmt: skip


def _queue_bytes(queue: Queue | None, link: Link) -> int:
    if queue is None:
        return default_queue_bytes(link.rate, link.delay)
    seconds = {"bytes": 8 / link.rate, "s": 1.0, "bdp": 2 * link.delay}[queue.unit]
    return max(1, round(queue.amount * seconds * link.rate / 8))


def _series(trace: RateTrace) -> Series:
    return Series(
        times_s=tuple(point.at for point in trace.points),
        values=tuple(point.rate for point in trace.points),
        period_s=math.inf if trace.repeat_after is None else trace.repeat_after,
        source=trace.source or "",
    )


def _routes(sites: tuple[SitePlan, ...], links: tuple[LinkPlan, ...]) -> dict[str, tuple[str, ...]]:
    """The path of least delay (then of fewest links) for ordered pairs of sites.

    Up to 64 sites: all pairs. Beyond: every site to the central one and back, which is all that nodes of a parameter
    server talk over; three thousand sites would have nine million pairs.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    backwards: nx.DiGraph[str] = nx.DiGraph()
    for link in links:
        weight = (round(link.delay_s * 1e9) << 16) + 1
        graph.add_edge(link.source, link.target, weight=weight)
        backwards.add_edge(link.target, link.source, weight=weight)
    central = next(site.name for site in sites if site.central)
    origins = [site.name for site in sites] if len(sites) <= ALL_PAIRS_LIMIT else [central]
    paths = {(origin, end): path for origin in origins for end, path in _paths(graph, origin).items()}
    if len(sites) > ALL_PAIRS_LIMIT:
        paths |= {(end, central): path[::-1] for end, path in _paths(backwards, central).items()}
    names = [site.name for site in sites]
    pairs = ((a, b) for a in names for b in (names if len(names) <= ALL_PAIRS_LIMIT or a == central else [central]))
    return {link_name(*pair): _links_of(paths[pair]) for pair in pairs if pair[0] != pair[1]}


def _paths(graph: nx.DiGraph[str], origin: str) -> dict[str, list[str]]:
    if origin not in graph:
        return {}
    paths: dict[str, list[str]] = nx.single_source_dijkstra_path(graph, origin)
    return paths


def _links_of(path: list[str]) -> tuple[str, ...]:
    return tuple(link_name(a, b) for a, b in pairwise(path))
