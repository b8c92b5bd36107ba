"""Links packet by packet: rate and bucket, queue, delay, losses, priorities; against closed forms."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.links import leaves_port_s
from tests.simulation.links import change, wan_link

RATE_BPS, DELAY_S = 5e6, 0.1
FRAME_S = FRAME_BYTES * 8 / RATE_BPS
AT_ONCE = burst_bytes(RATE_BPS) // FRAME_BYTES + 1  # those that begin in the bucket


class Wire:
    """A link between two fast ports, and when each frame arrives."""

    def __init__(self, queue_bytes: int = 10**6, loss: float = 0.0, channels: int = 0) -> None:
        self.clock = Clock()
        self.engine = PacketEngine(self.clock, compiled=False)
        self.state = wan_link(RATE_BPS, DELAY_S, queue_bytes, loss)
        self._link = self.engine.add_link(self.state, Random(1), channels)
        ports = self.engine.add_port(1e12), self.engine.add_port(1e12)
        self._path = self.engine.add_path((self._link,), ports, 0.0)
        self.arrivals: list[tuple[int, float]] = []

    @property
    def link(self) -> Any:
        return self.engine.link(self._link)

    def change(self, rate_bps: float, delay_s: float) -> None:
        change(self.engine, self._link, self.state, rate_bps, delay_s)

    def send(self, number: int, size_bytes: int = FRAME_BYTES, channel: int = 0) -> None:
        def deliver() -> None:
            self.arrivals.append((number, self.clock.now))

        self.engine.send_datagrams(self._path, [size_bytes], channel, deliver)

    def at(self, time_s: float, *numbers: int) -> None:
        for number in numbers:
            self.clock.at(time_s, self.send, number)


def test_after_silence_a_bucket_passes_at_once_and_then_the_rate_counts() -> None:
    wire = Wire()
    wire.at(1.0, *range(10))
    wire.clock.finish()
    times = [at_s - 1.0 - DELAY_S for _, at_s in wire.arrivals]
    assert times[:AT_ONCE] == pytest.approx([0.0] * AT_ONCE, abs=1e-9)
    # the bucket is in debt by what its last packet was longer than what was left
    debt_s = (AT_ONCE * FRAME_BYTES - burst_bytes(RATE_BPS)) * 8 / RATE_BPS
    assert times[AT_ONCE:] == pytest.approx([debt_s + i * FRAME_S for i in range(10 - AT_ONCE)], abs=1e-9)
    assert wire.link.sent_bytes == 10 * FRAME_BYTES


def test_what_does_not_fit_into_the_queue_is_lost() -> None:
    wire = Wire(queue_bytes=4 * FRAME_BYTES + 100)
    wire.at(1.0, *range(AT_ONCE + 6))
    wire.clock.at(1.0, lambda _: wire.send(99, size_bytes=90))  # there is room for it
    wire.clock.finish()
    assert [number for number, _ in wire.arrivals] == [*range(AT_ONCE + 4), 99]
    assert wire.link.dropped_packets == 2
    assert wire.link.backlog_bytes == 0


def test_a_change_of_the_rate_concerns_what_waits() -> None:
    wire = Wire()
    wire.at(1.0, *range(AT_ONCE + 2))
    wire.clock.at(1.0 + 1e-4, lambda _: wire.change(2 * RATE_BPS, DELAY_S))
    wire.clock.finish()
    last, before = wire.arrivals[-1][1], wire.arrivals[-2][1]
    assert last - before == pytest.approx(FRAME_S / 2)


def test_nothing_leaves_a_link_that_is_down_and_what_waits_leaves_later() -> None:
    wire = Wire()
    wire.at(1.0, 0)
    wire.clock.at(1.01, lambda _: wire.change(0.0, DELAY_S))
    wire.at(1.02, 1)
    wire.clock.at(3.0, lambda _: wire.change(RATE_BPS, DELAY_S))
    wire.clock.finish()
    assert wire.arrivals == [(0, pytest.approx(1.1)), (1, pytest.approx(3.1))]


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    wire = Wire()
    wire.at(1.0, 0)
    wire.clock.at(1.05, lambda _: wire.change(RATE_BPS, 0.01))
    wire.at(1.06, 1)
    wire.at(2.0, 2)
    wire.clock.finish()
    assert wire.arrivals == [(0, pytest.approx(1.1)), (1, pytest.approx(1.1)), (2, pytest.approx(2.01))]


def test_a_lower_channel_is_served_first_and_has_a_queue_of_its_own() -> None:
    wire = Wire(queue_bytes=3 * FRAME_BYTES, channels=1)
    wire.at(1.0, *range(AT_ONCE))
    for number in range(100, 105):
        wire.clock.at(1.0, lambda _, number=number: wire.send(number, channel=1))
    wire.at(1.0, 10, 11)
    wire.clock.finish()
    assert [number for number, _ in wire.arrivals] == [*range(AT_ONCE), 10, 11, 100, 101, 102]


def test_losses_have_the_share_that_is_asked_for() -> None:
    wire = Wire(queue_bytes=10**8, loss=0.05)
    wire.at(1.0, *range(4000))
    wire.clock.finish()
    assert len(wire.arrivals) == pytest.approx(3800, abs=4 * (4000 * 0.05 * 0.95) ** 0.5)
    assert (wire.link.dropped_packets, wire.link.lost_packets) == (0, 4000 - len(wire.arrivals))


def test_a_port_lets_pass_its_bucket_and_then_its_rate() -> None:
    rate_bps = 1e9
    engine = PacketEngine(Clock(), compiled=False)
    port = engine.add_port(rate_bps)
    engine.net.now = 1.0
    count = burst_bytes(rate_bps) // FRAME_BYTES + 1
    assert {leaves_port_s(engine.net, port, FRAME_BYTES) for _ in range(count)} == {1.0}
    later = [leaves_port_s(engine.net, port, FRAME_BYTES) for _ in range(3)]
    assert later[2] - later[1] == pytest.approx(FRAME_BYTES * 8 / rate_bps)


def test_a_message_is_forgotten_when_none_of_its_datagrams_is_on_its_way() -> None:
    wire = Wire(loss=0.5)
    for number in range(50):
        wire.clock.at(number, wire.send, number)
    wire.clock.finish()
    assert 10 < len(wire.arrivals) < 40
    assert wire.engine.messages_on_their_way == 0
    wire.state.loss = 0.0
    wire.change(RATE_BPS, DELAY_S)
    wire.send(50)
    assert wire.engine.messages_on_their_way == 1
