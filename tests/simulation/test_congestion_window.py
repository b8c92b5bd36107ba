"""The congestion window alone: growth by need, rounds, overflow and idle time."""

from __future__ import annotations

import math

import pytest

from testbed.simulation.congestion_window import CongestionWindow
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
def test_beyond_path_and_queue_a_loss_shrinks_it_but_not_below_the_path(control: str, kept: float) -> None:
    for queue_bytes in (1e5, 1e4):
        pipe = Pipe(1e6, 0.1, queue_bytes)
        cwnd = window(pipe, congestion_control=control, window_after_loss=kept)
        cwnd.next_round(0.0, 0.0)
        assert cwnd.next_round(0.1, 1.2e5), "240 kB would be sent next"
        assert cwnd.left_bytes(1.2e5) == max(kept * (1e5 + queue_bytes), 1e5)


def test_idle_time_halves_it_per_timeout_down_to_its_initial_size() -> None:
    cwnd = window(slow_start_after_idle=True)
    cwnd.next_round(0.0, 0.0)
    assert cwnd.grow(0.1, 8 * W0), "16 W0 fill the path"
    cwnd.after_idle(0.65, math.inf, 8 * W0)  # two timeouts of 0.1 + 0.2 s
    assert not cwnd.open
    cwnd.next_round(0.75, 8 * W0)
    assert cwnd.left_bytes(8 * W0) == 4 * W0
    cwnd.after_idle(60.0, math.inf, 8 * W0)
    cwnd.next_round(61.0, 8 * W0)
    assert cwnd.left_bytes(8 * W0) == W0


def test_after_an_outage_a_loss_based_window_is_one_segment() -> None:
    for control, size_bytes in (("cubic", 1448.0), ("bbr", W0)):
        cwnd = window(congestion_control=control)
        cwnd.after_outage(0.0)
        cwnd.next_round(1.0, 0.0)
        assert cwnd.left_bytes(0.0) == size_bytes
