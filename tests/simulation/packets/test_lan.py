"""Connections inside a data centre of an emulated network: two ports, and nothing between them."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.plan.shaping import burst_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each

RATE_BPS = 1e9
FRAME_BITS = 8 * (SEGMENT_BYTES + HEADER_BYTES)


class Lan:
    """Nodes with a port each; ``arrivals``: when messages have arrived, in their order."""

    def __init__(self, rate_bps: float = RATE_BPS, unsent_limit_bytes: int = 131_072, control: str = "cubic") -> None:
        self.clock, self.rate_bps = Clock(), rate_bps
        self.arrivals: dict[Any, float] = {}
        self._engine = PacketEngine(self.clock, compiled=False)
        self._model = TcpModel(unsent_limit_bytes=unsent_limit_bytes, congestion_control=control)
        self._ports: dict[str, int] = {}

    def connect(self, source: str, target: str) -> PacketConnection:
        path = self._engine.add_path((), (self._port(f"{source}>"), self._port(f">{target}")), 0.0)
        way = SitePath("lan", (), 0.0)
        name = f"{source}>{target}"
        return PacketConnection(self._engine, way, (path, path), self._model, name, self._arrived, self.rate_bps)

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = self._engine.add_port(self.rate_bps)
        return self._ports[name]

    def _arrived(self, message: Any) -> None:
        self.arrivals[message] = self.clock.now

    def wire_s(self, size_bytes: float) -> float:
        """How long so much takes, less what the port's bucket lets pass at once."""
        return (size_bytes / SEGMENT_BYTES * FRAME_BITS - 8 * burst_bytes(self.rate_bps)) / self.rate_bps


@for_each("rate_bps", [1e9, 100e6])
def test_a_message_takes_its_bytes_over_the_ports_rate(rate_bps: float) -> None:
    lan = Lan(rate_bps)
    lan.connect("a", "b").send(5_000_000, 0, "m")
    lan.clock.finish()
    assert lan.arrivals["m"] == pytest.approx(lan.wire_s(5_000_000), rel=0.03)


def test_two_senders_share_the_receivers_port() -> None:
    lan = Lan()
    lan.connect("a", "c").send(2_000_000, 0, "first")
    lan.connect("b", "c").send(2_000_000, 0, "second")
    lan.clock.finish()
    assert min(lan.arrivals.values()) > 0.9 * lan.wire_s(4_000_000)
    assert max(lan.arrivals.values()) == pytest.approx(lan.wire_s(4_000_000), rel=0.03)


def test_frames_leave_a_port_in_their_order() -> None:
    """A small message to one node waits behind a large one to another, as in the kernel."""
    lan = Lan()
    to_b, to_c = lan.connect("a", "b"), lan.connect("a", "c")
    to_b.send(120_000, 0, "fills the bucket")
    to_b.send(120_000, 0, "large")
    lan.clock.at(1e-6, lambda _: to_c.send(100, 0, "small"))
    lan.clock.finish()
    assert list(lan.arrivals) == ["fills the bucket", "large", "small"]


def test_two_connections_of_a_node_take_turns_at_its_port() -> None:
    """Each may have two frames there, however much the other has to send."""
    lan = Lan()
    connections = [lan.connect("a", "b"), lan.connect("a", "c")]
    for connection in connections:
        connection.send(1_000_000, 0, (connection, "opens its window"))
        lan.clock.finish()
    begin_s = lan.clock.now
    for connection, name in zip(connections, ("first", "second"), strict=True):
        connection.send(2_000_000, 0, name)
    lan.clock.finish()
    frames_s = 4 * 65_536 * 8 / RATE_BPS
    assert lan.arrivals["second"] - lan.arrivals["first"] < frames_s
    assert lan.arrivals["first"] - begin_s == pytest.approx(lan.wire_s(4_000_000), rel=0.1)


def test_connections_that_are_given_the_same_at_once_do_not_write_in_step() -> None:
    lan, starts = Lan(), list[float]()
    connections = [lan.connect(name, "b") for name in ("a", "c")]
    for connection in connections:
        connection.send(100, 0, (connection, "sets it up"))
    lan.clock.finish()
    now = lan.clock.now
    for connection in connections:
        connection.send(100, 0, connection, lambda: starts.append(lan.clock.now))
    lan.clock.finish()
    assert starts[0] != starts[1] and max(starts) - now < 1e-5


def test_what_is_urgent_overtakes_what_the_socket_has_not_taken() -> None:
    lan = Lan(100e6)
    connection = lan.connect("a", "b")
    for number in range(10):
        connection.send(50_000, 0, number)
    lan.clock.at(1e-3, lambda _: connection.send(1000, 1, "urgent"))
    lan.clock.finish()
    assert 2 <= list(lan.arrivals).index("urgent") <= 6


@for_each(
    ("control", "messages", "frames"), [("cubic", 0, 9.6), ("bbr", 0, 9.6), ("cubic", 60, 3.5), ("bbr", 60, 1.65)]
)
def test_a_connection_starts_slowly_where_anothers_data_waits(control: str, messages: int, frames: float) -> None:
    """Flights of 10, 20 and 32 segments, each of which waits for frames of the other; with an open window, one flight.

    BBR's window grows with whatever arrives, CUBIC's if it is used. Where nothing was sent before, three frames of the
    handshake wait for two of the other each. Mean over the moments at which the message begins.
    """
    frame_s, took_s = 65_536 * 8 / RATE_BPS, list[float]()
    for moment in range(4):
        lan = Lan(control=control)
        new = lan.connect("b", "c")
        for number in range(messages):
            lan.clock.at(1e-3 * number, lambda _, new=new, number=number: new.send(1400, 0, number))
        lan.clock.finish()
        lan.connect("a", "c").send(20_000_000, 0, "long")
        begin_s = lan.clock.now + 0.05 + moment * frame_s / 4
        lan.clock.at(begin_s, lambda _, new=new: new.send(90_000, 0, "new"))
        lan.clock.finish()
        took_s.append(lan.arrivals["new"] - begin_s)
    assert sum(took_s) / len(took_s) / frame_s == pytest.approx(frames, abs=0.2)


def test_a_long_message_passes_a_port_that_is_never_busy() -> None:
    """No frame waits and none takes time: each arrival makes the connection send the next one, 7000 times."""
    lan = Lan(1e15)
    lan.connect("a", "b").send(458_000_000, 0, "m")
    lan.clock.finish()
    assert lan.arrivals["m"] < 1e-3


def test_it_is_idle_when_all_has_arrived() -> None:
    lan, idle = Lan(), list[float]()
    connection = lan.connect("a", "b")
    connection.on_idle = lambda: idle.append(lan.clock.now)
    connection.send(2_000_000, 0, "m")
    lan.clock.run(until=1e-3)
    assert connection.busy and not connection.at_rest
    lan.clock.finish()
    assert connection.at_rest and idle
