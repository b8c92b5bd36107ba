"""The Plan's network as numbered links for the flow network, and the path between any two nodes.

Links: the WAN links in the Plan's order, then an uplink and a downlink of each node (its LAN port). Capacities are in
bytes of TCP payload per second: ``rate_bps / 8 * goodput``. ``lan_delay_s`` is the one-way delay between two nodes of
one LAN, and between a node and its gateway.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from testbed.plan.effects import LinkState
from testbed.plan.model import Plan, SitePlan
from testbed.plan.shaping import shaped_bps
from testbed.settings.series import Series

_LEAST_SHARE = 0.01  # share of a link's rate that datagrams always leave to TCP


@dataclass(slots=True, eq=False)
class WanLink(LinkState):
    """A WAN link's present state. ``number``: its index in the Plan and in the flow network.

    taken_bps        rate of the background datagrams that arrive at the link; they do not yield to TCP
    taken_bytes      bytes of such datagrams that the link has carried until ``counted_s``
    """

    number: int = 0
    taken_bps: float = 0.0
    taken_bytes: float = 0.0
    counted_s: float = 0.0

    @property
    def loses_all(self) -> bool:
        """Whether no packet arrives, though the link is up."""
        return self.loss >= 1 or self.corruption >= 1

    @property
    def passes(self) -> bool:
        """Whether any packet gets to the other end. For TCP, a link that loses all packets is down."""
        return self.up and not self.loses_all

    @property
    def left_bps(self) -> float:
        """The rate that background datagrams leave to TCP."""
        return max(self.rate_bps - self.taken_bps, _LEAST_SHARE * self.rate_bps)

    def passing_share(self, datagrams_bps: float) -> float:
        """Return the share of datagrams that gets to the other end, if they arrive at ``datagrams_bps``."""
        room_bps = (1 - _LEAST_SHARE) * self.rate_bps
        share = room_bps / datagrams_bps if datagrams_bps > room_bps else 1.0
        return share * (1 - self.lost)

    def count_taken(self, now_s: float) -> None:
        """Count the bytes that datagrams have used until now. Call this before the link's state changes."""
        if self.taken_bps and self.passes:
            self.taken_bytes += (self.rate_bps - self.left_bps) / 8 * (now_s - self.counted_s)
        self.counted_s = now_s


@dataclass(slots=True, eq=False)
class SitePath:
    """The path of all connections between two sites, or inside one. ``refresh`` follows the links' state.

    passing        share of packets that its links do not lose at random; a link that loses all makes the path down
    least_passing  the smallest value of ``passing`` so far
    narrowest      the link with the least rate, before which queues stand; None inside a site
    reverse        the path of acknowledgements; None inside a site
    """

    tier: str  # "lan" or "wan"
    links: tuple[WanLink, ...]
    lan_delay_s: float
    delay_s: float = 0.0
    passing: float = 1.0
    least_passing: float = 1.0
    narrowest: WanLink | None = None
    up: bool = True
    outages: int = 0  # number of outages that have begun
    reverse: SitePath | None = None

    @property
    def rtt_s(self) -> float:
        """Round-trip time without queues."""
        return self.delay_s + (self if self.reverse is None else self.reverse).delay_s

    @property
    def loss(self) -> float:
        """Share of packets that its links lose at random."""
        return 1.0 - self.passing

    @property
    def queue_bytes(self) -> float:
        """Size of the queue before the narrowest link; infinite inside a site."""
        return math.inf if self.narrowest is None else self.narrowest.plan.queue_bytes

    @property
    def acknowledged(self) -> bool:
        """Whether acknowledgements get back."""
        return self.reverse is None or self.reverse.up

    def refresh(self) -> None:
        """Recompute delay, loss and state from the links."""
        self.delay_s = self.lan_delay_s + math.fsum(link.delay_s for link in self.links)
        passing = (link for link in self.links if not link.loses_all)
        self.passing = math.prod((1.0 - link.loss) * (1.0 - link.corruption) for link in passing)
        self.least_passing = min(self.passing, self.least_passing)
        was_up, self.up = self.up, all(link.passes for link in self.links)
        self.outages += was_up and not self.up
        if self.links:
            self.narrowest = min(self.links, key=lambda link: link.left_bps)


class PathTable:
    """All links, and the paths between nodes, which are made on first use.

    goodput           payload bytes per byte of Ethernet frame
    node_bytes_per_s  upper bound of a node's port, from its processor
    """

    def __init__(self, plan: Plan, goodput: float, node_bytes_per_s: float = math.inf) -> None:
        self.goodput = goodput
        self._emulated = plan.simulation.by_packet
        self.links = [WanLink(link, number=number) for number, link in enumerate(plan.network.links)]
        for link in self.links:
            link.rate_bps = self.made_bps(link.rate_bps)
        self._by_name = {link.plan.name: link for link in self.links}
        self._network = plan.network
        self._sites = {site.name: site for site in plan.network.sites}
        self._place = {node.name: (i, self._sites[node.data_center]) for i, node in enumerate(plan.nodes)}
        self._between: dict[tuple[str, str], SitePath] = {}
        self._crossing: list[list[SitePath]] = [[] for _ in self.links]
        self._node_bytes_per_s = node_bytes_per_s
        self.longest = 2 + max((len(route) for route in plan.network.routes.values()), default=0)

    def capacities(self) -> list[float]:
        """Return the capacity of every link at the start, in payload bytes per second."""
        wan = [self.capacity(link.rate_bps) for link in self.links]
        ports = [self._port(site) for _, site in self._place.values() for _ in range(2)]
        return wan + ports

    def made_bps(self, rate_bps: float) -> float:
        """Return the rate that a link of this rate really gets. Emulation cannot make arbitrarily slow links."""
        return shaped_bps(rate_bps) if self._emulated and rate_bps > 0 else rate_bps

    def capacity(self, rate_bps: float) -> float:
        """Return the capacity of a link of that rate, in payload bytes per second."""
        return rate_bps / 8 * self.goodput

    def between(self, source: str, target: str) -> tuple[SitePath, tuple[int, ...]]:
        """Return the path between two nodes, and the numbers of its links."""
        i, here = self._place[source]
        j, there = self._place[target]
        sites = (here.name, there.name)
        path = self._between.get(sites)
        if path is None:
            path = self._between[sites] = self._site_path(here, there)
            if here.name != there.name:
                path.reverse = self._between[sites[::-1]] = self._site_path(there, here)
                path.reverse.reverse = path
        wan = len(self.links)
        numbers = (wan + 2 * i, *(link.number for link in path.links), wan + 2 * j + 1)
        return path, numbers

    def shared(self, source: str, target: str, folded: Collection[str]) -> tuple[tuple[int, ...], float]:
        """Do the same as ``between`` for a connection of a ``folded`` node, which represents several nodes.

        Return the links that the connections of these nodes share, and the capacity of the ports that each connection
        has to itself (bytes/s; infinite if there are none).
        """
        _, here = self._place[source]
        _, there = self._place[target]
        _, numbers = self.between(source, target)
        own = []
        if source in folded:
            own.append(self._port(here))
            numbers = numbers[1:]
        if target in folded:
            own.append(self._port(there))
            numbers = numbers[:-1]
        return numbers, min(own, default=math.inf)

    def _port(self, site: SitePlan) -> float:
        return min(self.capacity(site.lan_rate_bps), self._node_bytes_per_s)

    def crossing(self, link: WanLink) -> list[SitePath]:
        """Return the paths over ``link`` that have been asked for so far."""
        return self._crossing[link.number]

    def _site_path(self, here: SitePlan, there: SitePlan) -> SitePath:
        if here.name == there.name:
            path = SitePath("lan", (), self._lan_delay_s(here))
        else:
            links = tuple(self._by_name[link] for link in self._network.between(here.name, there.name))
            path = SitePath("wan", links, self._lan_delay_s(here) + self._lan_delay_s(there))
        for link in path.links:
            self._crossing[link.number].append(path)
        path.refresh()
        return path

    def _lan_delay_s(self, site: SitePlan) -> float:
        return site.emulated_lan_delay_s if self._emulated else site.lan_delay_s


def changes(series: Series, after_s: float = 0.0) -> Iterator[tuple[float, float]]:
    """Yield (time in s, value) of every change of a series, beginning with the value that holds at ``after_s``.

    A series that repeats yields for ever.
    """
    last: float | None = None
    constant = len(set(series.values)) == 1
    for at_s, _, value in series.segments(after_s):
        if value != last:
            yield at_s, value
        if constant:
            return
        last = value
