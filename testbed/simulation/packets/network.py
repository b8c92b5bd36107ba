"""An emulated network, packet by packet: its WAN links, the nodes' ports, and what travels over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from testbed.plan.model import Plan
from testbed.simulation.best_effort import Item
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.link_monitor import LinkCounters
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.paths import PathTable, WanLink
from testbed.simulation.tcp_model import TcpModel


class PacketCarrier:
    """Carries best-effort messages over a path of the engine. ``deliver`` is called with each one that arrives."""

    def __init__(self, engine: PacketEngine, path: int, deliver: Callable[[Envelope], None]) -> None:
        self._engine = engine
        self._path = path
        self._deliver = deliver

    def carry(self, item: Item, channel: int) -> None:
        """Send a message in its datagrams, one after another. It arrives only if all of them do."""
        size_bytes, larger = divmod(item.size_bytes, item.datagrams)
        sizes = [size_bytes + (number < larger) for number in range(item.datagrams)]
        self._engine.send_datagrams(self._path, sizes, channel, partial(self._deliver, item.envelope))


class PacketNetwork:
    """Packets over the links of ``paths``, whose state they follow. ``compiled``: see ``PacketEngine``."""

    def __init__(
        self, clock: Clock, plan: Plan, paths: PathTable, model: TcpModel, compiled: bool | None = None
    ) -> None:
        self._paths = paths
        self._model = model
        self._seed = plan.seed
        self.engine = PacketEngine(clock, compiled)
        channels = plan.transport.best_effort_channels
        for link in paths.links:
            number = self.engine.add_link(link, Random(f"{plan.seed}/{link.plan.name}"), channels)
            assert number == link.number
        rates = {site.name: site.lan_rate_bps for site in plan.network.sites}
        self._rates_bps = {node.name: rates[node.data_center] for node in plan.nodes}
        self._ports: dict[str, tuple[int, int]] = {}
        for name, rate_bps in self._rates_bps.items():
            self._ports[name] = (self.engine.add_port(rate_bps), self.engine.add_port(rate_bps))
        self._packet_paths: dict[tuple[str, str], int] = {}
        self._connections: list[PacketConnection] = []

    @property
    def active(self) -> bool:
        """Whether any connection has something to send, or still waits for acknowledgements."""
        return not all(connection.at_rest for connection in self._connections)

    def link_changed(self, link: WanLink, what: str, passed: bool) -> None:
        """Follow a link's present state; see ``LinkUser``."""
        self.engine.link_changed(link.number, link, rate=what in ("rate", "state"))

    def counters(self, links: Sequence[WanLink]) -> list[LinkCounters]:
        """Return the bytes that links have carried and queue, and the packets that they have dropped or lost."""
        return [
            LinkCounters(each.sent_bytes, each.dropped_packets + each.lost_packets, each.backlog_bytes)
            for each in (self.engine.link(link.number) for link in links)
        ]

    def connect(self, source: str, target: str, deliver: Callable[[Any], None]) -> PacketConnection:
        """Connect two nodes. ``deliver(item)`` is called with each message that arrives."""
        there, _ = self._paths.between(source, target)
        connection = PacketConnection(
            self.engine,
            there,
            (self.path(source, target), self.path(target, source)),
            self._model,
            f"{self._seed}/{source}>{target}",
            deliver,
            lan_bps=0.0 if there.links else self._rates_bps[source],
        )
        self._connections.append(connection)
        return connection

    def path(self, source: str, target: str) -> int:
        """Return the number of the engine's path from one node to another."""
        if (source, target) not in self._packet_paths:
            path, _ = self._paths.between(source, target)
            ports = self._ports[source][0], self._ports[target][1]
            links = tuple(link.number for link in path.links)
            self._packet_paths[source, target] = self.engine.add_path(links, ports, path.lan_delay_s)
        return self._packet_paths[source, target]
