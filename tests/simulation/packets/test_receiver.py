"""When segments are acknowledged, and how the window grows: as Linux 7.3 does (``net/ipv4/tcp_input.c``)."""

from __future__ import annotations

import math
from itertools import pairwise

from testbed.simulation.clock import Clock
from testbed.simulation.machine.events import pop_event
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.events import DELAY_TIMER, READ
from testbed.simulation.packets.pools import take_packet
from testbed.simulation.packets.receiver import begin_receiver, on_delay_timer, on_read, receive
from testbed.simulation.packets.records import NONE, Connection, Packet, Segment
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES

RTT_S = 0.1


class Back:
    """The way back: what is acknowledged, and when. ``answers``: begin in ping-pong mode, as after a handshake.

    ``chance``: which segments the program reads soon.
    """

    def __init__(self, answers: bool = True, count: int = 400, chance: int = 0) -> None:
        self.engine = PacketEngine(Clock(), compiled=False)
        net = self.net = self.engine.net
        ports = self.engine.add_port(1e15), self.engine.add_port(1e15)
        self.connection = Connection(
            back=self.engine.add_path((), ports, 0.0),
            rtt_s=RTT_S,
            beyond_head=NONE,
            most_buffer_bytes=1 << 40,
            chance=chance,
        )
        begin_receiver(self.connection, 0.0)
        self.connection.ping_pong = answers
        net.segment_list = [Segment(number=number, next=number + 1) for number in range(count)]
        net.packet_list = [Packet(next=number + 1) for number in range(2 * count)]
        net.free_packet = 0
        self.sent: list[tuple[float, Packet]] = []
        self._arrivals: list[tuple[float, int, bool]] = []

    def arrive(self, at_s: float, number: int, pushed: bool = False, size_bytes: int = SEGMENT_BYTES) -> None:
        self.net.segment_list[number].size_bytes = size_bytes
        self._arrivals.append((at_s, number, pushed))

    def stream(self, first: int, count: int, at_s: float = 0.1, every_s: float = 1e-3) -> float:
        """Let so many segments arrive one after another; return when the last one does."""
        for place in range(count):
            self.arrive(at_s + place * every_s, first + place)
        return at_s + (count - 1) * every_s

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
        packet.size_bytes = self.net.segment_list[number].size_bytes + HEADER_BYTES
        packet.time_s = at_s - RTT_S / 2
        packet.stamp_s = math.floor(at_s / RTT_S - 1) * RTT_S
        packet.flag = pushed
        return index

    def _let_pass(self, until_s: float) -> None:
        """Let timers expire and the program read, and take the acknowledgements that have been sent."""
        net = self.net
        while net.events and net.next_s < until_s:
            net.now = net.next_s
            kind = net.next_kind
            who = pop_event(net)
            if kind == DELAY_TIMER:
                on_delay_timer(net, self.connection)
            elif kind == READ:
                on_read(net, self.connection)
            else:
                self.sent.append((net.now, net.packet_list[who]))


def numbers(told: list[tuple[float, int, int]]) -> list[int]:
    return [number for _, number, _ in told]


def grown(back: Back) -> float:
    """Let 120 segments arrive, fifteen in a round-trip time, until the window no longer grows; return when.

    The program then reads no more in a round-trip time than before.
    """
    return back.stream(0, 120, every_s=RTT_S / 15)


def test_who_has_answered_acknowledges_every_second_one_until_one_is_late() -> None:
    back = Back()
    back.stream(0, 5)
    back.stream(5, 3, at_s=0.2)
    told = back.told()
    assert numbers(told) == [2, 4, 5, 6, 7, 8]
    assert told[2] == (0.15, 5, 0), "a tick after the fourth tick from 0.104 s on"
    assert told[3] == (0.2, 6, 0), "as the window grows"


def test_while_the_window_grows_each_is_acknowledged_and_then_every_second_one() -> None:
    back = Back(answers=False)
    grown(back)
    told = numbers(back.told())
    assert told[:16] == list(range(1, 17))
    assert back.connection.quick == 0
    assert [later - former for former, later in pairwise(told[-6:-1])] == [2, 2, 2, 2]


def test_what_is_pushed_at_once_unless_it_has_answered() -> None:
    for answers, late_s in ((False, 0.0), (True, 0.04)):
        back = Back(answers)
        grown(back)
        back.connection.ping_pong = answers
        back.arrive(1.0, 120, pushed=True)
        back.told()
        at_s = back.sent[-1][0]
        assert back.sent[-1][1].number == 121
        assert late_s <= at_s - 1.0 <= late_s + (0.0101 if late_s else 0.0)


def test_a_second_small_one_is_told_at_once_in_any_case() -> None:
    back = Back()
    back.arrive(0.1, 0, size_bytes=100, pushed=True)
    back.arrive(0.101, 1, size_bytes=100, pushed=True)
    assert back.told() == [(0.101, 2, 0)]


def test_of_what_arrives_at_one_instant_the_window_lets_little_be_told_before_it_is_read() -> None:
    third = []
    for chance in range(0, 1 << 16, 1 << 8):
        back = Back(chance=chance)
        back.stream(0, 10)
        back.stream(10, 5, at_s=0.2, every_s=0.0)
        told = back.told()
        assert numbers(told)[:5] == [2, 4, 6, 8, 10]
        third.append(numbers(told)[5])
    assert set(third) == {13, 14, 15}, "never 12: the window would shrink by what is not read"
    assert third.count(13) == len(third) / 4, "the share of programs that have read three segments"


def test_a_gap_at_once_and_what_fills_it() -> None:
    back = Back()
    back.stream(0, 16)
    back.arrive(0.2, 17)
    back.arrive(0.201, 19)
    back.arrive(0.202, 16)
    back.arrive(0.203, 18)
    assert back.told()[-4:] == [(0.2, 16, 1), (0.201, 16, 2), (0.202, 18, 2), (0.203, 20, 2)]
    assert back.connection.beyond_head == 17
    assert back.net.segment_list[17].beyond == 19
    assert back.connection.expected == 20


def test_from_the_fourth_of_a_gap_on_they_are_gathered() -> None:
    back = Back()
    back.stream(0, 16)
    for i in range(8):
        back.arrive(0.2 + 1e-4 * i, 17 + i)
    assert back.told()[-4:] == [(0.2, 16, 1), (0.2001, 16, 2), (0.2002, 16, 3), (0.2013, 16, 8)]


def test_what_had_arrived_is_told_again_and_ends_ping_pong_mode() -> None:
    back = Back()
    back.stream(0, 16)
    back.arrive(0.2, 3)
    told = back.told()
    assert told[-1] == (0.2, 16, 0)
    assert back.sent[-1][1].flag
    assert back.connection.received_bytes == 16 * SEGMENT_BYTES, "nothing is delivered twice"
    assert not back.connection.ping_pong
    assert back.connection.quick > 1


def test_after_silence_they_are_acknowledged_at_once_again() -> None:
    back = Back(answers=False)
    end_s = grown(back)
    back.arrive(end_s + 0.1, 120)
    back.arrive(end_s + 5.0, 121)
    back.told()
    assert back.sent[-1][0] == end_s + 5.0
    assert back.connection.quick > 10


def test_the_delay_follows_the_time_between_segments() -> None:
    back = Back()
    connection = back.connection
    for number in range(4):
        back.arrive(0.1 + 0.035 * number, number)
    back.told()
    assert connection.delay_ticks > 4


def test_the_window_never_ends_earlier_than_before_and_doubles_with_what_is_read() -> None:
    back = Back(answers=False)
    begun_bytes = back.connection.window_bytes
    for round_, count in enumerate((10, 20, 40, 80, 160)):
        back.stream(sum((10, 20, 40, 80, 160)[:round_]), count, at_s=0.1 * (round_ + 1), every_s=1e-4)
    back.told()
    edges = [each.edge_bytes for _, each in back.sent]
    assert edges == sorted(edges)
    assert back.connection.window_bytes > 4 * begun_bytes
