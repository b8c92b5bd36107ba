"""The network of a Plan: its sites, and the routes between them."""

from __future__ import annotations

from itertools import pairwise

from testbed.ids import link_name
from testbed.plan.model import EMULATED, LinkPlan, NetworkPlan, SitePlan
from testbed.scenario.topology.topology import Topology
from topologies.paths import Paths

ALL_PAIRS_LIMIT = 64


def build_network(topology: Topology, links: tuple[LinkPlan, ...], back_end: str) -> NetworkPlan:
    """Return sites and routes of a written-out topology with these links; LAN rates are divided by its scale."""
    sites = tuple(_site(topology, index, back_end) for index in range(len(topology.data_centers)))
    every_pair = back_end != "simulate" or len(sites) <= ALL_PAIRS_LIMIT
    routes = _routes(sites, links, topology.routing, every_pair)
    return NetworkPlan(sites=sites, routers=topology.routers, links=links, routes=routes, routing=topology.routing)


def _site(topology: Topology, index: int, back_end: str) -> SitePlan:
    data_center = topology.data_centers[index]
    lan = data_center.lan or topology.lan
    subnet = f"10.{index + 1}.0.0/16" if back_end in EMULATED else None
    return SitePlan(
        name=data_center.name, index=index, lan_rate_bps=lan.rate / topology.scale, lan_delay_s=lan.delay,
        central=data_center.central, subnet=subnet,
    )  # fmt: skip


def _routes(
    sites: tuple[SitePlan, ...], links: tuple[LinkPlan, ...], routing: str, every_pair: bool
) -> dict[str, tuple[str, ...]]:
    """Return the links of the shortest path (``topologies.paths``) for ordered pairs of sites.

    Not of every pair: every site to the central one and back, which are the only routes between the nodes of a
    parameter server; three thousand sites would have nine million pairs. The virtual world computes others when asked.
    Real networks, of at most 256 nodes, need them all beforehand.
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
