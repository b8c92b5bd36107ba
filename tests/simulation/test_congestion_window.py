"""The congestion window alone: growth by need, rounds, overflow and idle time."""

from __future__ import annotations

import math

import pytest

from testbed.simulation.congestion_window import BurstRepair, CongestionWindow
from testbed.simulation.pacing import Pipe
from testbed.simulation.tcp_model import TcpModel

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


@pytest.mark.parametrize(("control", "kept"), [("reno", 0.5), ("cubic", 0.7)])
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


@pytest.mark.parametrize(("control", "beta"), [("reno", 0.5), ("cubic", 0.7)])
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


def test_after_an_outage_a_loss_based_window_is_one_segment() -> None:
    for control, size_bytes in (("cubic", 1448.0), ("bbr", W0)):
        cwnd = window(congestion_control=control)
        cwnd.after_outage(0.0)
        cwnd.next_round(1.0, 0.0)
        assert cwnd.left_bytes(0.0) == size_bytes
