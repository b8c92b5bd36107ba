"""When segments are acknowledged: RFC 1122, 4.2.3.2 and RFC 5681, 4.2."""

from __future__ import annotations

import math

from testbed.simulation.clock import Clock
from testbed.simulation.machine.events import pop_event
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.events import DELAY_TIMER
from testbed.simulation.packets.pools import take_packet
from testbed.simulation.packets.receiver import begin_receiver, on_delay_timer, receive
from testbed.simulation.packets.records import NONE, Connection, Packet, Segment
from testbed.simulation.packets.segment import SEGMENT_BYTES


class Back:
    """The way back: what is acknowledged, and when. The segments have been sent at once."""

    def __init__(self) -> None:
        self.engine = PacketEngine(Clock(), compiled=False)
        net = self.net = self.engine.net
        ports = self.engine.add_port(1e15), self.engine.add_port(1e15)
        self.connection = Connection(back=self.engine.add_path((), ports, 0.0), rtt_s=0.1, beyond_head=NONE)
        begin_receiver(self.connection, 0.0)
        net.segment_list = [Segment(number=number, next=number + 1) for number in range(100)]
        net.packet_list = [Packet(next=number + 1) for number in range(100)]
        net.free_packet = 0
        self.sent: list[tuple[float, Packet]] = []
        self._arrivals: list[tuple[float, int, bool]] = []

    def arrive(self, at_s: float, number: int, pushed: bool = False, size_bytes: int = SEGMENT_BYTES) -> None:
        self.net.segment_list[number].size_bytes = size_bytes
        self._arrivals.append((at_s, number, pushed))

    def told(self) -> list[tuple[float, int, int]]:
        for at_s, number, pushed in self._arrivals:
            self._let_pass(at_s)
            self.net.now = at_s
            receive(self.net, self.connection, self._packet(at_s, number, pushed))
        self._let_pass(math.inf)
        return [(round(at_s, 6), each.number, each.beyond) for at_s, each in self.sent]

    def _packet(self, at_s: float, number: int, pushed: bool) -> int:
        index = take_packet(self.net)
        packet = self.net.packet_list[index]
        packet.segment = packet.number = number
        packet.time_s = at_s - 0.05
        packet.flag = pushed
        return index

    def _let_pass(self, until_s: float) -> None:
        """Let the timer expire, and take the acknowledgements that have been sent."""
        net = self.net
        while net.events and net.next_s <= until_s:
            net.now = net.next_s
            kind = net.next_kind
            who = pop_event(net)
            if kind == DELAY_TIMER:
                on_delay_timer(net, self.connection)
            else:
                self.sent.append((net.now, net.packet_list[who]))


def after_first(back: Back) -> None:
    """Let the first sixteen segments be over, each of which is acknowledged at once."""
    for number in range(16):
        back.arrive(0.001 * number, number)


def test_the_first_ones_at_once_then_every_second_and_a_lone_one_late() -> None:
    back = Back()
    after_first(back)
    for number in range(16, 21):
        back.arrive(0.1, number)
    told = back.told()
    assert [number for _, number, _ in told[:16]] == list(range(1, 17))
    assert told[16:] == [(0.1, 18, 0), (0.1, 20, 0), (0.14, 21, 0)]
    assert back.connection.expected == 21


def test_what_is_pushed_at_once() -> None:
    back = Back()
    after_first(back)
    back.arrive(0.1, 16, pushed=True)
    assert back.told()[16:] == [(0.1, 17, 0)]


def test_a_gap_at_once_and_what_fills_it() -> None:
    back = Back()
    after_first(back)
    back.arrive(0.1, 17)
    back.arrive(0.101, 19)
    back.arrive(0.102, 16)
    back.arrive(0.103, 18)
    assert back.told()[16:] == [(0.1, 16, 1), (0.101, 16, 2), (0.102, 18, 2), (0.103, 20, 2)]
    assert back.connection.beyond_head == 17
    assert back.net.segment_list[17].beyond == 19
    assert back.connection.expected == 20


def test_from_the_fourth_of_a_gap_on_they_are_gathered() -> None:
    back = Back()
    after_first(back)
    for i in range(8):
        back.arrive(0.1 + 1e-4 * i, 17 + i)
    assert back.told()[16:] == [(0.1, 16, 1), (0.1001, 16, 2), (0.1002, 16, 3), (0.1013, 16, 8)]


def test_what_had_arrived_is_told_again() -> None:
    back = Back()
    after_first(back)
    back.arrive(0.1, 3)
    told = back.told()
    assert told[16] == (0.1, 16, 0)
    assert back.sent[16][1].flag
    assert back.connection.received_bytes == 16 * SEGMENT_BYTES, "nothing is delivered twice"


def test_after_silence_they_are_acknowledged_at_once_again() -> None:
    back = Back()
    after_first(back)
    back.arrive(0.1, 16)
    back.arrive(5.0, 17)
    assert back.told()[16:] == [(0.14, 17, 0), (5.0, 18, 0)]


def test_small_ones_count_by_their_bytes() -> None:
    back = Back()
    after_first(back)
    for i in range(4):
        back.arrive(0.1, 16 + i, size_bytes=400)
    assert back.told()[16:] == [(0.1, 20, 0)], "1 600 bytes are more than a segment"
