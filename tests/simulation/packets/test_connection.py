"""A connection packet by packet: against a real kernel's times, and against RFCs where packets are lost."""

from __future__ import annotations

import math
from typing import Any

import pytest

from testbed.simulation.packets.congestion import CUBIC, begin_congestion, begin_cubic_anew, grow, observe_delay
from testbed.simulation.packets.records import NONE, Connection
from testbed.simulation.packets.scoreboard import out
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.packets.sender import wake_sender
from testbed.simulation.packets.timers import timeout_s
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each
from tests.simulation.packets.pair import MODEL, Pair

FRAME_HEADERS_BYTES = 121  # of a value of one key, in what travels


def test_first_values_take_what_they_take_with_a_real_kernel() -> None:
    """An exact run (Linux 7.3, CUBIC) of the quickstart at 5 Mbit/s, 100 ms and a queue of 137 500 bytes: the first
    values of a server, ten keys, arrived so long after they were sent, 600 ms of them for setting up."""
    measured_s = {0: 0.7000, 2: 1.1095, 4: 1.4335, 6: 1.6592, 8: 1.6687}
    sizes = (1600, 64, 51_200, 128, 131_072, 1024, 131_072, 512, 5120, 40)
    pair = Pair(5e6, 0.1, 137_500)
    pair.send(0.0, *((key, size + FRAME_HEADERS_BYTES) for key, size in enumerate(sizes)))
    pair.clock.finish()
    for key, at_s in measured_s.items():
        assert pair.arrivals[key] == pytest.approx(at_s, rel=0.003), key


def test_who_connects_while_the_path_is_down_tries_again_every_second() -> None:
    pair = Pair(1e9, 0.05, 10**7)
    pair.there.losses = 1.0
    pair.send(0.0, ("all", 100))
    pair.clock.at(60.0, lambda _: setattr(pair.there, "losses", 0.5))
    pair.clock.finish()
    assert pair.arrivals["all"] == pytest.approx(60.62 + 0.3 + 0.05, abs=1e-4)


def test_a_window_doubles_each_round_trip() -> None:
    pair = Pair(1e9, 0.05, 10**7)
    pair.send(0.0, ("all", 100 * SEGMENT_BYTES))
    pair.clock.finish()
    # 10 + 20 + 40 segments in three round trips, and the rest in the fourth
    assert pair.arrivals["all"] == pytest.approx(0.3 + 3 * 0.1 + 0.05, abs=0.003)


def test_a_path_may_be_longer_than_any_on_earth() -> None:
    pair = Pair(1e9, 400.0, 10**7)
    pair.send(0.0, ("all", 2 * SEGMENT_BYTES))
    pair.clock.finish()
    assert pair.arrivals["all"] == pytest.approx(3 * 800.0 + 400.0, abs=0.1)


@for_each(("control", "beta"), [("cubic", 0.7), ("reno", 0.5)])
def test_an_overflow_is_repaired_and_leaves_a_part_of_the_window(control: str, beta: float) -> None:
    model = TcpModel(congestion_control=control, unsent_limit_bytes=131_072)
    pair = Pair(20e6, 0.02, 60_000, model)
    pair.send(0.0, ("first", 400 * SEGMENT_BYTES))
    peak = 0

    def look(_: Any) -> None:
        nonlocal peak
        peak = max(peak, pair.sender.window)
        if pair.sender.threshold == math.inf:
            pair.clock.at(pair.clock.now + 1e-3, look)

    pair.clock.at(0.13, look)
    pair.clock.finish()
    assert pair.there.dropped_packets > 0
    assert pair.sent == 400, "nothing is sent again that was not lost"
    assert pair.sender.threshold == pytest.approx(beta * peak, rel=0.05)
    assert pair.sender.window >= pair.sender.threshold


def test_a_lost_segment_is_sent_again_a_round_trip_later() -> None:
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number == 3)
    pair.send(0.0, ("all", 10 * SEGMENT_BYTES))
    pair.clock.finish()
    assert pair.arrivals["all"] == pytest.approx(0.3 + 0.05 + 0.1, abs=0.01)
    assert pair.sent == 11


@for_each(("lost", "least_s"), [((10,), 0.3), ((9, 10), 0.2 + 0.1)])
def test_a_lost_end_is_probed_for(lost: tuple[int, ...], least_s: float) -> None:
    """After two round trips (RFC 8985, 7.2), and then RACK finds the segment before; of one segment alone after the
    timeout of 300 ms, as its acknowledgement may be delayed."""
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number in lost)
    pair.send(0.0, ("all", 10 * SEGMENT_BYTES))
    pair.clock.finish()
    assert pair.arrivals["all"] == pytest.approx(0.3 + 0.1 + least_s + 0.05, abs=0.025)  # two ticks, and a little
    assert pair.sender.threshold == (math.inf if lost == (10,) else 12), (
        "0.7 of 18; a probe's answer alone shows no loss"
    )
    pair.send(5.0, ("next", 1000))
    pair.clock.finish()
    assert pair.sender.threshold < math.inf, "but what follows does"


def test_of_a_lost_burst_all_is_sent_again() -> None:
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: 3 <= number <= 12)
    pair.send(0.0, *((number, SEGMENT_BYTES) for number in range(10)))
    pair.clock.finish()
    assert list(pair.arrivals) == list(range(10)), "in their order"
    assert 1.0 < pair.arrivals[9] < 5.0, "probe, timeouts and slow start take their time"


def after_an_outage() -> Pair:
    """Messages before and during an outage of five seconds, whose queue holds two segments back."""
    pair = Pair(100e6, 0.05, 4000)
    pair.send(0.0, ("before", 1000))
    pair.clock.at(1.0, lambda _: pair.up(False))
    pair.send(1.1, ("during", 20_000))
    pair.clock.at(6.0, lambda _: pair.up(True))
    pair.clock.finish()
    return pair


def test_an_outage_ends_with_the_first_retransmission_that_gets_through() -> None:
    pair = after_an_outage()
    assert pair.arrivals["before"] < 0.4
    # what the small queue held arrives at once; the rest, when a timeout that doubles each time has expired
    assert 6.1 < pair.arrivals["during"] < 6.0 + 6.0
    assert pair.connection.at_rest


def test_a_timeout_of_late_segments_is_undone() -> None:
    pair = Pair(100e6, 0.05, 10**6)
    pair.send(0.0, ("before", 60 * SEGMENT_BYTES))
    pair.clock.at(2.0, lambda _: pair.up(True, delay_s=1.0))
    pair.send(2.01, ("late", 20 * SEGMENT_BYTES))
    windows: list[int] = []
    pair.clock.at(1.9, lambda _: windows.append(pair.sender.window))
    pair.clock.finish()
    assert pair.arrivals["late"] == pytest.approx(3.01, abs=0.02)
    assert pair.sender.window >= windows[0], "nothing was lost"


def test_after_idle_time_the_window_is_kept_unless_asked_otherwise() -> None:
    model = TcpModel(unsent_limit_bytes=131_072, slow_start_after_idle=True)
    took_s = []
    for each in (MODEL, model):
        pair = Pair(1e9, 0.05, 10**7, each)
        pair.send(0.0, ("first", 200 * SEGMENT_BYTES))
        pair.send(30.0, ("second", 100 * SEGMENT_BYTES))
        pair.clock.finish()
        took_s.append(pair.arrivals["second"] - 30.0)
    assert took_s[0] == pytest.approx(0.05, abs=0.003)
    assert took_s[1] == pytest.approx(0.05 + 3 * 0.1, abs=0.005), "it begins with ten segments"


def test_a_limit_of_the_window_is_kept() -> None:
    pair = Pair(1e9, 0.05, 10**7, TcpModel(window_limit_bytes=20.0 * SEGMENT_BYTES, unsent_limit_bytes=131_072))
    pair.send(0.0, ("all", 110 * SEGMENT_BYTES))
    pair.clock.finish()
    # 10 + 20 + 20 + 20 + 20 + 20, and the last of one burst waits for a late acknowledgement
    assert pair.arrivals["all"] == pytest.approx(0.3 + 5 * 0.1 + 0.05 + 0.05, abs=0.003)


def test_what_is_urgent_overtakes_what_the_socket_has_not_taken() -> None:
    pair = Pair(5e6, 0.01, 10**6)
    for number in range(10):
        pair.clock.at(0.5, lambda _, number=number: pair.connection.send(50_000, 0, number))
    pair.clock.at(0.0, lambda _: pair.connection.send(100, 0, "set up"))
    pair.clock.at(0.6, lambda _: pair.connection.send(1000, 1, "urgent"))
    pair.clock.finish()
    order = list(pair.arrivals)
    # at 0.6 s about 60 kB have left; 131 kB more have been taken by the socket
    assert 3 <= order.index("urgent") - 1 <= 6


def urgent_after(size_bytes: int, unsent_limit_bytes: int) -> int:
    """Return how many messages of this size arrive before an urgent one, of a full second's work for the link."""
    pair = Pair(8e6, 0.001, 10**6, TcpModel(unsent_limit_bytes=unsent_limit_bytes))
    pair.send(0.0, ("set up", 100))
    pair.send(0.5, *((number, size_bytes) for number in range(1_000_000 // size_bytes)))
    pair.clock.at(0.5001, lambda _: pair.connection.send(100, 1, "urgent"))
    pair.clock.finish()
    return list(pair.arrivals).index("urgent") - 1


def test_messages_are_taken_in_batches() -> None:
    """The socket takes what it may hold unsent, fills the buffer that it has begun, and the batch under way is left.

    Nine messages are a batch of 64 KiB.
    """
    assert urgent_after(8000, 65_536) == 2 * 9
    assert urgent_after(8000, 131_072) == 3 * 9


def test_a_small_limit_makes_batches_small() -> None:
    assert urgent_after(1000, 4096) == 14 * 5, "a buffer of 65 160 bytes, and the rest of a batch of 4096"


def test_two_connections_share_a_link_about_evenly() -> None:
    first = Pair(20e6, 0.02, 125_000)
    second = Pair(20e6, 0.02, 125_000, over=first)
    for pair in (first, second):
        pair.send(0.0, ("all", 3_000_000))
    first.clock.finish()
    both_s, arrivals = 6_000_000 / (20e6 / 8 * 1448 / 1514), [pair.arrivals["all"] for pair in (first, second)]
    assert both_s < max(arrivals) < 1.3 * both_s, "the link is used, but for the first loss"
    assert min(arrivals) > 0.6 * both_s


def test_what_is_written_while_the_host_is_busy_fills_the_last_segment() -> None:
    """TCP small queues: the end of a burst shares a segment with what is written 50 µs later."""
    pair = Pair(1e9, 0.01, 10**7)
    pair.send(0.0, ("before", 300 * SEGMENT_BYTES))
    before = []
    pair.clock.at(2.9, lambda _: before.append(pair.sent))
    pair.send(3.0, ("burst", 120 * SEGMENT_BYTES + 100))
    pair.send(3.00005, ("more", 100))
    pair.clock.finish()
    assert pair.sent - before[0] == 121
    assert pair.arrivals["more"] == pair.arrivals["burst"]


def test_hystart_looks_at_the_first_round_trip_of_a_large_window() -> None:
    pair = Pair(1e9, 0.05, 10**7, TcpModel(initial_window_bytes=16.0 * SEGMENT_BYTES))
    pair.send(0.0, ("all", 16 * SEGMENT_BYTES))
    delays_s: list[float] = []
    pair.clock.at(0.31, lambda _: delays_s.append(pair.sender.delay_s))
    pair.clock.finish()
    assert delays_s == [pytest.approx(0.1)], "of the set-up"
    assert pair.arrivals["all"] == pytest.approx(0.3 + 0.05, abs=0.003)


@for_each("lost", [0, 30])
def test_what_has_arrived_is_not_kept(lost: int) -> None:
    pair, kept = Pair(100e6, 0.01, 10**6, lose=lambda number: number == lost), list[int]()
    net = pair.engine.net

    def look(_: Any) -> None:
        kept.append(len(net.segment_list) - net.free_segments - out(pair.sender))

    for number in range(100):
        pair.send(0.02 * number, (number, 5 * SEGMENT_BYTES))
        pair.clock.at(0.1 + 0.02 * number, look)
    pair.clock.finish()
    assert set(kept) == {0}
    assert (pair.sender.earliest, pair.sender.beyond_head) == (NONE, NONE)
    assert (net.free_packets, net.free_frames) == (len(net.packet_list), len(net.frame_list))


def test_what_is_written_behind_a_probe_is_no_timeout() -> None:
    """The ninth of ten was sent 350 ms ago, longer than the timeout, but the probe is under way.

    Only what lies ahead bounds the time of a probe (Linux: ``tcp_schedule_loss_probe``).
    """
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number in (9, 10))
    pair.send(0.0, ("all", 10 * SEGMENT_BYTES))
    pair.send(0.65, ("more", 1000))
    pair.clock.finish()
    assert pair.arrivals["all"] == pytest.approx(0.3 + 0.1 + 0.2 + 0.1 + 0.05, abs=0.025), "RACK finds it by the probe"
    assert pair.sent == 13


def test_a_timer_rings_although_its_tick_is_rounded_down() -> None:
    """``timer_s`` may be an instant before now, by a rounding error."""
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number == 1)
    pair.send(0.0, ("first", 1000))

    def round_down(_: Any) -> None:
        pair.sender.timer_s = pair.clock.now - 1e-12
        wake_sender(pair.engine.net, pair.sender)

    pair.clock.at(0.31, round_down)
    pair.clock.finish()
    assert pair.arrivals["first"] == pytest.approx(0.31 + 0.05, abs=0.001)


def test_after_a_segment_is_found_to_be_lost_its_timeout_begins_anew() -> None:
    """Not the time of the probe holds that would have been sent else (Linux: ``tcp_rack_reo_timeout``)."""
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number in (9, 11))
    pair.send(0.0, ("all", 10 * SEGMENT_BYTES))
    pair.clock.finish()
    # sent again after a round trip and a quarter; that is lost, too, and the timeout is 0.3 s
    assert pair.arrivals["all"] == pytest.approx(0.3 + 0.125 + 0.3 + 0.05, abs=0.01)


def test_an_acknowledged_retransmission_ends_the_doubling_of_timeouts() -> None:
    """By its timestamp (RFC 7323, 4.1): Karn's algorithm takes no other sample of it."""
    pair = Pair(100e6, 0.05, 10**6, lose=lambda number: number in (1, 2, 3))
    pair.send(0.0, ("all", 1000))
    pair.clock.finish()
    assert pair.sent == 4
    assert timeout_s(pair.sender) == pytest.approx(0.3, abs=0.01)
    assert pair.sender.smoothed_s == pytest.approx(0.1 + 0.05 / 8, abs=0.001), "acknowledged after 50 ms"


def test_what_was_lost_is_found_after_a_timeout_that_was_undone() -> None:
    """A small queue holds two segments of twelve back for five seconds, and has dropped the others."""
    pair = after_an_outage()
    assert pair.arrivals["during"] < 6.0 + 5 * 0.1, "RACK finds them by what is sent next"


@for_each("control", ["reno", "cubic", "bbr"])
def test_a_path_without_a_delay(control: str) -> None:
    pair = Pair(100e6, 0.0, 10**6, TcpModel(congestion_control=control, unsent_limit_bytes=131_072))
    pair.send(0.0, ("first", 100_000))
    pair.send(1.0, ("second", 100_000))
    pair.clock.finish()
    for name, at_s in (("first", 0.0), ("second", 1.0)):
        assert pair.arrivals[name] - at_s == pytest.approx(8 * 100_000 * 1514 / 1448 / 100e6, rel=0.2)


def test_a_timeout_forgets_the_least_delay() -> None:
    """Linux: ``bictcp_reset``. On a longer path slow start would end at its first samples."""
    cubic = Connection(control=CUBIC, window=20, threshold=math.inf)
    begin_congestion(cubic)
    observe_delay(cubic, 0.0, 0.02, 1e6)
    cubic.following = 100
    begin_cubic_anew(cubic, 5.0)
    cubic.threshold = 15.0
    grow(cubic, 5.0, 1)  # while none is known
    cubic.threshold = math.inf
    cubic.following = 200
    for number in range(20):
        cubic.first = 101 + number
        observe_delay(cubic, 5.1 + 0.1 * number, 0.2, 1e6)
    assert cubic.threshold == math.inf


def stopped(*until_s: float, size_bytes: int = 3_000_000) -> Pair:
    """A message over 10 Mbit/s and 10 ms, of which the process is stopped half a second after it has begun."""
    pair = Pair(10e6, 0.01, 25_000)
    pair.send(0.0, ("all", size_bytes), ("next", 1000))
    for end_s in until_s:
        pair.clock.at(0.56, lambda _, end_s=end_s: pair.connection.stop(end_s))
    pair.clock.finish()
    return pair


def test_of_a_stopped_process_the_kernel_sends_what_it_has_taken_and_later_the_rest() -> None:
    went_on = stopped().arrivals["next"]
    held = stopped(5.56).arrivals["next"]
    # the socket has up to 128 KiB and a buffer, and the path one window: some 0.15 s of the five pass with these
    assert 4.75 < held - went_on < 4.95
    assert stopped(5.56, 3.0).arrivals["next"] == pytest.approx(held, abs=0.01)
    assert stopped(0.6).arrivals["next"] == pytest.approx(went_on, abs=0.01), "the link has not noticed"


def test_of_a_killed_process_nothing_arrives_but_what_the_socket_has_taken() -> None:
    assert stopped(math.inf).arrivals == {}
    assert stopped(math.inf, size_bytes=600_000).arrivals.keys() == {"all", "next"}
