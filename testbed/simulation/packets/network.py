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
from testbed.simulation.packets.congestion import Cubic, Reno
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.lan_sender import LanSender
from testbed.simulation.packets.link import PacketLink, PacketPath, PacketPort
from testbed.simulation.packets.paced_sender import PacedSender
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.sender import TcpSender
from testbed.simulation.paths import PathTable, WanLink
from testbed.simulation.tcp_model import TcpModel


def tcp_sender(clock: Clock, path: PacketPath, model: TcpModel, rtt_s: float, random: Random) -> TcpSender:
    """Return the sending end with the model's congestion control."""
    if not model.loss_based:
        return PacedSender(clock, path, model, rtt_s, random)
    return TcpSender(clock, path, model, rtt_s, Reno() if model.congestion_control == "reno" else Cubic())


class PacketCarrier:
    """Carries best-effort messages from one node to another. ``deliver``: what has arrived."""

    def __init__(self, path: PacketPath, deliver: Callable[[Envelope], None]) -> None:
        self._path = path
        self._deliver = deliver

    def carry(self, item: Item, channel: int) -> None:
        """Send a message in its datagrams, one after another. All have to arrive."""
        size_bytes, larger = divmod(item.size_bytes, item.datagrams)
        arrive = partial(self._arrived, item, missing=[item.datagrams])
        for number in range(item.datagrams):
            self._path.send(size_bytes + (number < larger), arrive, None, channel)

    def _arrived(self, item: Item, _: Any, missing: list[int]) -> None:
        missing[0] -= 1
        if not missing[0]:
            self._deliver(item.envelope)


class PacketNetwork:
    """Packets over the links of ``paths``, whose state they follow."""

    def __init__(self, clock: Clock, plan: Plan, paths: PathTable, model: TcpModel) -> None:
        self._clock = clock
        self._paths = paths
        self._model = model
        self._seed = plan.seed
        channels = plan.transport.best_effort_channels
        self.links: list[PacketLink] = []
        for link in paths.links:
            random = Random(f"{plan.seed}/{link.plan.name}")
            self.links.append(PacketLink(clock, link, random, channels))
        rates = {site.name: site.lan_rate_bps for site in plan.network.sites}
        self._rates_bps = {node.name: rates[node.data_center] for node in plan.nodes}
        self._ports = {name: (PacketPort(rate_bps), PacketPort(rate_bps)) for name, rate_bps in self._rates_bps.items()}
        self._connections: list[PacketConnection] = []

    @property
    def active(self) -> bool:
        """Whether any connection has something to send, or has not heard of its arrival."""
        return not all(connection.at_rest for connection in self._connections)

    def link_changed(self, link: WanLink, what: str, passed: bool) -> None:
        """Follow a link's present state; see ``LinkUser``."""
        if what in ("rate", "state"):
            self.links[link.number].changed()

    def counters(self, links: Sequence[WanLink]) -> list[LinkCounters]:
        """Return what links have carried, dropped and queued."""
        return [
            LinkCounters(each.sent_bytes, each.dropped_packets + each.lost_packets, each.backlog_bytes)
            for each in (self.links[link.number] for link in links)
        ]

    def connect(self, source: str, target: str, deliver: Callable[[Any], None]) -> PacketConnection:
        """Connect two nodes. ``deliver(item)``: what arrives."""
        there, _ = self._paths.between(source, target)
        path = self.path(source, target)
        writes, cycles = (Random(f"{self._seed}/{source}>{target}/{what}") for what in ("writes", "cycles"))

        def connect() -> TcpSender | LanSender:
            if not there.links:
                return LanSender(self._clock, path, self._model, self._rates_bps[source], deliver)
            rtt_s = there.rtt_s
            sender = tcp_sender(self._clock, path, self._model, rtt_s, cycles)
            sender.connect(TcpReceiver(self._clock, self.path(target, source), sender.acknowledged, deliver, rtt_s))
            return sender

        connection = PacketConnection(self._clock, there, self._model, connect, writes)
        self._connections.append(connection)
        return connection

    def path(self, source: str, target: str) -> PacketPath:
        """Return the way of packets from one node to another."""
        path, _ = self._paths.between(source, target)
        links = tuple(self.links[link.number] for link in path.links)
        return PacketPath(self._clock, links, (self._ports[source][0], self._ports[target][1]), path.lan_delay_s)
