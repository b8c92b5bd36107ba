"""Two nodes at the ends of a link, for tests of connections."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.link import PacketLink, PacketPath, PacketPort
from testbed.simulation.packets.network import tcp_sender
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.sender import TcpSender
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel
from tests.simulation.links import change, wan_link

MODEL = TcpModel(unsent_limit_bytes=131_072)


class Pair:
    """Two nodes, a link there and back, and a connection over it.

    ``lose`` names frames there that are lost. ``over``: another pair, whose link they share.
    """

    def __init__(
        self, rate_bps: float, delay_s: float, queue_bytes: int, model: TcpModel = MODEL,
        lose: Callable[[int], bool] | None = None, over: Pair | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.arrivals = over.clock if over else Clock(), dict[Any, float]()
        self.there, self.back = (
            (over.there, over.back)
            if over
            else (PacketLink(self.clock, wan_link(rate_bps, delay_s, queue_bytes), Random(1)) for _ in range(2))
        )
        self.rate_bps, self.delay_s = rate_bps, delay_s
        self.up(True)
        self.sent = 0
        self._connect(model)
        if over is None:
            self._count(lose or (lambda number: False))

    def _count(self, lose: Callable[[int], bool]) -> None:
        send = self.there._send

        def counted(packet: Any) -> None:
            self.sent += 1
            if not lose(self.sent):
                send(packet)

        self._lossy = type("Lossy", (PacketLink,), {"__slots__": (), "_send": lambda _, packet: counted(packet)})
        self.there.__class__ = self._lossy

    def _connect(self, model: TcpModel) -> None:
        there, back = (
            PacketPath(self.clock, (link,), (PacketPort(1e9), PacketPort(1e9)), 0.0) for link in (self.there, self.back)
        )
        rtt_s = 2 * self.delay_s

        def connect() -> TcpSender:
            sender = tcp_sender(self.clock, there, model, rtt_s, Random(1))
            sender.connect(TcpReceiver(self.clock, back, sender.acknowledged, self._arrived, rtt_s))
            return sender

        way = SitePath("wan", (), 0.0, delay_s=self.delay_s)
        self.connection = PacketConnection(self.clock, way, model, connect, Random(1))

    def up(self, up: bool, delay_s: float | None = None) -> None:
        for link in (self.there, self.back):
            change(link, self.rate_bps if up else 0.0, self.delay_s if delay_s is None else delay_s)

    def _arrived(self, message: Any) -> None:
        assert message not in self.arrivals
        self.arrivals[message] = self.clock.now

    def send(self, at_s: float, *sizes: tuple[Any, int]) -> None:
        for name, size_bytes in sizes:
            self.clock.at(at_s, lambda _, name=name, size=size_bytes: self.connection.send(size, 0, name))

    @property
    def sender(self) -> TcpSender:
        sender = self.connection._sender
        assert isinstance(sender, TcpSender)
        return sender
