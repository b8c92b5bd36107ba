"""When segments are acknowledged: RFC 1122, 4.2.3.2 and RFC 5681, 4.2."""

from __future__ import annotations

from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.segment import SEGMENT_BYTES, Acknowledgement, TcpSegment


class Back:
    """The way back: what is acknowledged, and when."""

    def __init__(self) -> None:
        self.clock, self.sent, self.delivered = Clock(), list[tuple[float, Acknowledgement]](), list[Any]()
        self.receiver = TcpReceiver(self.clock, self, lambda it: None, self.delivered.append, 0.1)  # type: ignore[arg-type]

    def send(self, size_bytes: int, receive: Any, argument: Acknowledgement) -> None:
        self.sent.append((self.clock.now, argument))

    def arrive(self, at_s: float, number: int, pushed: bool = False, size_bytes: int = SEGMENT_BYTES) -> None:
        segment = TcpSegment(number, size_bytes, pushed, [number])
        self.clock.at(at_s, self.receiver.arrive, (segment, at_s - 0.05))

    def told(self) -> list[tuple[float, int, int]]:
        self.clock.finish()
        return [(round(at_s, 6), each.next_number, each.beyond) for at_s, each in self.sent]


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
    assert back.delivered == list(range(21))


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
    assert back.receiver.beyond == [17, 19]
    assert back.delivered == list(range(20)), "in their order"


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
    assert back.sent[16][1].duplicate
    assert back.delivered == list(range(16)), "nothing is delivered twice"


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
