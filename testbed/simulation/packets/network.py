"""An emulated network, packet by packet: its WAN links, the nodes' ports, and the connections over them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from testbed.plan.model import Plan
from testbed.simulation.clock import Clock
from testbed.simulation.packets.congestion import Cubic, Reno
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.lan_sender import LanSender
from testbed.simulation.packets.link import PacketLink, PacketPath, PacketPort
from testbed.simulation.packets.paced_sender import PacedSender
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.sender import TcpSender
from testbed.simulation.paths import PathTable, SitePath, WanLink
from testbed.simulation.tcp_model import TcpModel


def tcp_sender(clock: Clock, path: PacketPath, model: TcpModel, rtt_s: float, random: Random) -> TcpSender:
    """Return the sending end with the model's congestion control."""
    if not model.loss_based:
        return PacedSender(clock, path, model, rtt_s, random)
    return TcpSender(clock, path, model, rtt_s, Reno() if model.congestion_control == "reno" else Cubic())


class PacketNetwork:
    """``links``: the Plan's WAN links, whose state packets follow; their numbers are those of the Plan's order."""

    def __init__(self, clock: Clock, plan: Plan, links: list[WanLink], model: TcpModel) -> None:
        self._clock, self._model, self._seed = clock, model, plan.seed
        channels = plan.transport.best_effort_channels
        self._links: list[PacketLink] = []
        for link in links:
            random = Random(f"{plan.seed}/{link.plan.name}")
            self._links.append(PacketLink(clock, link.plan.queue_bytes, random, channels))
            self.changed(link)
        rates = {site.name: site.lan_rate_bps for site in plan.network.sites}
        self._rates_bps = {node.name: rates[node.data_center] for node in plan.nodes}
        self._ports = {name: (PacketPort(rate_bps), PacketPort(rate_bps)) for name, rate_bps in self._rates_bps.items()}
        self._connections: list[PacketConnection] = []

    @property
    def active(self) -> bool:
        """Whether any connection has something to send, or has not heard of its arrival."""
        return not all(connection.at_rest for connection in self._connections)

    def link(self, number: int) -> PacketLink:
        """Return a link by its number."""
        return self._links[number]

    def changed(self, link: WanLink) -> None:
        """Take note of a link's present state. One that is down sends on, and loses all, as an emulated one does."""
        loss = 1 - (1 - link.loss) * (1 - link.corruption) if link.up else 1.0
        self._links[link.number].change(link.left_bps, link.delay_s, loss)

    def connect(
        self, source: str, target: str, paths: PathTable, deliver: Callable[[Any], None]
    ) -> tuple[PacketConnection, PacketPath]:
        """Connect two nodes. Return the connection, and the way that packets take. ``deliver(item)``: what arrives."""
        there, _ = paths.between(source, target)
        back, _ = paths.between(target, source)
        path = self._path(source, target, there)
        writes, cycles = (Random(f"{self._seed}/{source}>{target}/{what}") for what in ("writes", "cycles"))

        def connect() -> TcpSender | LanSender:
            if not there.links:
                return LanSender(self._clock, path, self._model, self._rates_bps[source], deliver)
            rtt_s = there.rtt_s
            sender = tcp_sender(self._clock, path, self._model, rtt_s, cycles)
            way_back = self._path(target, source, back)
            sender.connect(TcpReceiver(self._clock, way_back, sender.acknowledged, deliver, rtt_s))
            return sender

        connection = PacketConnection(self._clock, there, self._model, connect, writes)
        self._connections.append(connection)
        return connection, path

    def _path(self, source: str, target: str, path: SitePath) -> PacketPath:
        links = tuple(self._links[link.number] for link in path.links)
        return PacketPath(self._clock, links, (self._ports[source][0], self._ports[target][1]), path.lan_delay_s)
