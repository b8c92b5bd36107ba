"""The congestion window alone: growth by need, rounds, overflow and idle time."""

from __future__ import annotations

import math

import pytest

from testbed.simulation.congestion_window import BurstRepair, CongestionWindow, repair_of
from testbed.simulation.pacing import Pipe
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each

W0 = 14_480.0
PIPE = Pipe(1e6, 0.1, math.inf)  # 100 kB fill it


def window(pipe: Pipe = PIPE, **model: object) -> CongestionWindow:
    return CongestionWindow(TcpModel(**model), None, pipe)  # type: ignore[arg-type]


def test_it_doubles_every_round_until_it_fills_the_path() -> None:
    cwnd, delivered, sizes = window(), 0.0, []
    for round_ in range(3):
        opened = cwnd.next_round(0.1 * round_, delivered)
        sizes.append(cwnd.left_bytes(delivered))
        delivered += sizes[-1]
        assert not opened
    assert sizes == [W0, 2 * W0, 4 * W0]
    assert cwnd.next_round(0.3, delivered), "8 W0 are more than 100 kB"
    assert cwnd.open
    assert cwnd.limits is False


def test_a_round_that_sends_less_than_half_a_window_does_not_grow_it() -> None:
    cwnd = window()
    cwnd.next_round(0.0, 0.0)
    cwnd.next_round(0.1, 0.4 * W0)
    assert cwnd.left_bytes(0.4 * W0) == W0


@for_each(("control", "kept"), [("reno", 0.5), ("cubic", 0.7)])
def test_beyond_path_and_queue_a_loss_shrinks_it(control: str, kept: float) -> None:
    for queue_bytes in (1e5, 1e4):
        pipe = Pipe(1e6, 0.1, queue_bytes)
        cwnd = window(pipe, congestion_control=control, window_after_loss=kept)
        cwnd.next_round(0.0, 0.0)
        opened = cwnd.next_round(0.1, 1.2e5)  # 240 kB would be sent next
        assert cwnd.left_bytes(1.2e5) == kept * min(2.4e5, 1e5 + queue_bytes)
        assert opened == (cwnd.size_bytes >= 1e5)


def test_a_round_that_follows_a_full_one_grows_it_by_what_it_sent() -> None:
    cwnd = window()
    cwnd.next_round(0.0, 0.0)
    cwnd.next_round(0.1, W0)
    cwnd.next_round(0.2, 3 * W0)
    assert cwnd.left_bytes(3 * W0) == 4 * W0
    cwnd.grow(0.3, 4 * W0)
    assert cwnd.size_bytes == 5 * W0, "as long as acknowledgements of a full window come"


def test_hystart_leaves_slow_start_after_half_a_round_trip_of_acknowledgements() -> None:
    fast = Pipe(2e6, 0.1, math.inf)  # two segments take 1.4 ms: acknowledgements come in trains
    for control, size_bytes in (("cubic", 1.2e5 + 1e5), ("reno", 2.4e5)):
        cwnd = window(fast, congestion_control=control)
        cwnd.next_round(0.0, 0.0)
        cwnd.grow(0.1, 1.2e5)
        assert cwnd.size_bytes == size_bytes


@for_each(("control", "beta"), [("reno", 0.5), ("cubic", 0.7)])
def test_after_a_loss_it_grows_with_the_time_for_which_it_sends(control: str, beta: float) -> None:
    """Peak of 300 segments. RFC 9438: K = (0.3 · 300 / 0.4)^(1/3) = 6.08 s until CUBIC is there again."""
    cwnd = window(congestion_control=control, window_after_loss=beta)
    cwnd.size_bytes, cwnd._threshold_bytes = 300 * 1448.0, 0.0
    cwnd.lost(1.0, 1e5, BurstRepair(0.1, 2e5), 0.0)
    assert cwnd.size_bytes == pytest.approx(beta * 300 * 1448)
    cwnd.lost(1.05, 1e5, BurstRepair(0.1, 2e5), 0.0)
    assert cwnd.size_bytes == pytest.approx(beta * 300 * 1448), "once per round"
    flat_s = (0.3 * 300 / 0.4) ** (1 / 3)
    for sent_s in (1.0, 3.0, flat_s, 8.0):
        cwnd.after_idle(1.0 + sent_s + 50.0, 50.0, 0.3, 0.0)  # idle time does not count
        cwnd._epoch_s = 1.0
        friendly = 210 + 3 * 0.3 / 1.7 * sent_s / 0.1
        cubic = 300 + 0.4 * (sent_s - flat_s) ** 3
        expected = 150 + sent_s / 0.1 if control == "reno" else max(friendly, cubic)
        assert cwnd.size_bytes / 1448 == pytest.approx(expected)


def test_a_window_of_two_segments_grows_from_there_on() -> None:
    """It is not halved, so it is above W at the loss as convergence reckons it: K is 0."""
    cwnd = window(congestion_control="cubic", window_after_loss=0.7)
    cwnd.size_bytes, cwnd._threshold_bytes, cwnd._peak_bytes = 2 * 1448.0, 0.0, 1e6
    cwnd.lost(1.0, 1448.0, BurstRepair(0.1, 1448.0), 0.0)
    cwnd.after_idle(53.0, 50.0, 0.3, 0.0)
    cwnd._epoch_s = 1.0
    assert cwnd.size_bytes / 1448 == pytest.approx(max(2 + 0.4 * 2**3, 2 + 3 * 0.3 / 1.7 * 2 / 0.1))


def test_idle_time_halves_it_per_timeout_down_to_its_initial_size() -> None:
    cwnd = window(slow_start_after_idle=True)
    cwnd.next_round(0.0, 0.0)
    assert cwnd.grow(0.1, 8 * W0), "16 W0 fill the path"
    cwnd.after_idle(0.65, 0.65, 0.3, 8 * W0)  # two timeouts
    assert not cwnd.open
    cwnd.next_round(0.75, 8 * W0)
    assert cwnd.left_bytes(8 * W0) == 4 * W0
    cwnd.after_idle(60.0, 59.0, 0.3, 8 * W0)
    cwnd.next_round(61.0, 8 * W0)
    assert cwnd.left_bytes(8 * W0) == W0


def test_after_an_outage_a_loss_based_window_is_one_segment_and_then_what_it_is_after_any_loss() -> None:
    for control, size_bytes, later_bytes in (("cubic", 1448.0, 0.7 * W0), ("bbr", W0, 2 * W0)):
        cwnd = window(congestion_control=control)
        cwnd.after_outage(1.0, 0.0)
        cwnd.next_round(1.0, 0.0)
        assert cwnd.left_bytes(0.0) == size_bytes
        cwnd.grow(1.1, W0)
        assert cwnd.size_bytes == pytest.approx(later_bytes)


def opened(round_bytes: float, pipe: Pipe = PIPE, **model: object) -> CongestionWindow:
    """Return a window in slow start that has opened, at the end of a burst of ``round_bytes`` after idle time."""
    cwnd = window(pipe, **model)
    cwnd.size_bytes, cwnd.open = 1.5e5, True
    cwnd.after_idle(1.0, 0.9, 0.3, 5.0)
    cwnd.burst_ended(1.2, 5.0 + round_bytes)
    return cwnd


@for_each(("burst", "size"), [(5e4, 1.5e5), (1e5, 2e5), (1.5e5, 3e5)])
def test_an_open_window_grows_to_twice_the_burst_that_it_lets_out_at_once(burst: float, size: float) -> None:
    cwnd = opened(burst)
    assert (cwnd.size_bytes, cwnd.slow_start) == (size, True)
    cwnd.burst_ended(1.3, 5.0 + burst)
    assert cwnd.size_bytes == size, "nothing more was sent"


def test_a_window_that_opens_within_a_burst_grows_by_the_rest_of_it() -> None:
    """Rounds of W0, 2 W0, 4 W0 and, of 8 W0 that fill the path, 5 W0."""
    wide = Pipe(1e6, 0.101, math.inf)  # the round before had 58 of its 101 kB: too few to leave a queue
    cwnd, delivered = window(wide), 0.0
    for round_ in range(4):
        cwnd.next_round(0.101 * round_, delivered)
        delivered += W0 * 2**round_
    assert cwnd.open
    cwnd.burst_ended(0.5, 12 * W0)
    assert cwnd.size_bytes == 13 * W0
    assert cwnd.slow_start


def test_cubic_leaves_slow_start_where_a_queue_delays_the_first_packets_of_a_round() -> None:
    for control, size in (("reno", 6e5), ("cubic", 3e5)):
        cwnd = opened(1.5e5 + 3e5, congestion_control=control)
        assert (cwnd.size_bytes, cwnd.slow_start) == (size, control == "reno")
    cwnd.burst_ended(1.4, 5.0 + 4.5e5 + 4e5)
    assert cwnd.size_bytes == 3e5 + 4e5 / 20, "before its first loss it grows by a twentieth of what is acknowledged"


def test_hystart_ends_the_growth_of_a_window_within_a_burst_that_loses() -> None:
    for control, most in (("reno", 2e5), ("cubic", 0.0)):
        cwnd = window(congestion_control=control, window_after_loss=0.5)
        cwnd.lost(1.0, 2e5, BurstRepair(0.1, 1e5), 0.0)
        assert cwnd.size_bytes == 0.5 * (W0 + most)


def test_a_change_of_the_path_forgets_no_loss() -> None:
    """A link whose rate follows a trace changes while what was lost is sent again."""
    cwnd = window()
    cwnd.size_bytes = 3e5
    cwnd.path_changed(PIPE)
    assert cwnd.open
    cwnd.lost(1.0, 1e5, BurstRepair(0.5, 1448.0), 0.0)
    cwnd.path_changed(Pipe(1.1e6, 0.1, math.inf))
    assert not cwnd.open
    assert cwnd.left_bytes(0.0) == 1e5
    cwnd.next_round(1.5, 1e5)
    cwnd.path_changed(PIPE)
    assert cwnd.limits
    assert cwnd.left_bytes(1e5) == 1448
    cwnd.after_idle(3.0, 1.0, 0.3, 2e5)
    cwnd.path_changed(PIPE)
    assert cwnd.open, "all has been sent again"


def test_a_repair_is_no_time_to_grow() -> None:
    """CUBIC's window keeps its size while 50, 100 and 200 kB are sent again, a round trip each."""
    cwnd = window(Pipe(1e7, 0.1, math.inf))
    cwnd.size_bytes, cwnd._threshold_bytes = 3e5, 0.0
    cwnd.lost(1.0, 1e5, BurstRepair(0.1, 5e4), 0.0)
    cwnd.next_round(1.1, 1e5)
    before = cwnd.size_bytes
    for now, delivered in ((1.2, 1.5e5), (1.3, 2.5e5), (1.4, 4.5e5)):
        cwnd.next_round(now, delivered)
        assert cwnd.size_bytes == before
    for now, delivered in ((1.5, 6e5), (1.7, 7e5)):
        cwnd.next_round(now, delivered)
    assert cwnd.size_bytes > before


def test_how_the_lost_end_of_a_burst_is_found() -> None:
    """After RTT/4, or by a probe after 2 · 0.15 s, or the timeout of 0.15 + 0.1 s; part of a segment is a chance."""
    for floor_s, probe_s in ((0.2, 0.3), (0.1, 0.25)):
        model = TcpModel(retransmission_floor_s=floor_s)
        for late, wait_s in ((0, probe_s + 0.1), (724, (0.025 + probe_s) / 2 + 0.1), (1448, 0.125), (4344, 0.025)):
            found = repair_of(0.1, 0.1, late, model)
            assert found.wait_s == pytest.approx(0.2 + wait_s)
            assert found.first_bytes == max(late, 1448) if late == 4344 else 1448
