"""Setting a connection up: frames that wait and are lost as all others are."""

from __future__ import annotations

import pytest

from tests.for_each import for_each
from tests.simulation.packets.pair import Pair

RATE_BPS = 8e6
DELAY_S = 0.05
USUAL_S = 7 * DELAY_S  # there and back three times, and the first message


def arrival_s(pair: Pair) -> float:
    pair.send(0.0, ("first", 100))
    pair.clock.at(10.0, lambda _: setattr(pair.clock, "stopped", True))  # SYNs are sent for ever
    pair.clock.finish()
    return pair.arrivals["first"]


def test_a_connection_is_set_up_late_where_others_fill_the_queue() -> None:
    pair = Pair(RATE_BPS, DELAY_S, 10**6)
    pair.engine.send_datagrams(pair.sender.path, [1000] * 150, 0, lambda: None)
    assert arrival_s(pair) == pytest.approx(0.15 + USUAL_S, abs=5e-3), "the SYN has waited, and no other frame"
    assert pair.sender.rtt_s == pytest.approx(0.15 + 2 * DELAY_S, abs=5e-3)
    assert pair.sender.least_s == pytest.approx(2 * DELAY_S, abs=1e-3)


# a SYN is sent again after a second; the others after three round trips, of which 0.2 s are the least deviation
@for_each(("frame", "later_s"), [(-2, 1.0), (-1, 0.3), (0, 0.3)])
def test_a_lost_frame_of_the_initiator_is_sent_again(frame: int, later_s: float) -> None:
    pair = Pair(RATE_BPS, DELAY_S, 10**6, lose=lambda number: number == frame)
    assert arrival_s(pair) == pytest.approx(later_s + USUAL_S, abs=1e-3)


# when the first, second or third answer is on its way back, and when it is sent again
@for_each(("lost_s", "later_s"), [(0.05, 1.0), (0.15, 0.3), (0.25, 0.3)])
def test_a_lost_answer_is_sent_again(lost_s: float, later_s: float) -> None:
    pair = Pair(RATE_BPS, DELAY_S, 10**6)
    back = pair.engine.link(pair.links[1])
    pair.clock.at(lost_s - 0.01, lambda _: setattr(back, "losses", 1.0))
    pair.clock.at(lost_s + 0.01, lambda _: setattr(back, "losses", 0.0))
    assert arrival_s(pair) == pytest.approx(later_s + USUAL_S, abs=1e-3)


def test_who_is_killed_connects_no_more() -> None:
    pair = Pair(RATE_BPS, DELAY_S, 10**6, lose=lambda number: number == -2)
    pair.clock.at(0.5, lambda _: pair.connection.stop(float("inf")))
    pair.send(0.0, ("never", 100))
    pair.clock.finish()
    assert pair.arrivals == {}
    assert pair.sent == -2, "the first SYN only"
