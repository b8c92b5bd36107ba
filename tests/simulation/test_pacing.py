"""BBR's pacing in one formula, against the kernel's own steps, packet train by packet train."""

import random

import pytest

from testbed.simulation.pacing import Pacing, Pipe
from tests.for_each import for_each

SEGMENT = 1448
GAIN = 2.885 * 0.99 * 1500 / 1448


class Kernel:
    """tcp_update_skb_after_send of tcp_output.c: ``wstamp_s`` is when the next train may leave."""

    def __init__(self, rate: float, train: int) -> None:
        self.rate, self.train, self.wstamp_s = rate, train, float("-inf")

    def burst(self, now_s: float, size_bytes: int) -> float:
        """Send it; returns when its last train leaves."""
        left_s = now_s
        while size_bytes > 0:
            train = min(size_bytes, self.train)
            left_s = max(now_s, self.wstamp_s)
            credit_s = max(0.0, left_s - self.wstamp_s)
            cost_s = train / self.rate
            self.wstamp_s = left_s + cost_s - min(cost_s / 2, credit_s)
            size_bytes -= train
        return left_s


@for_each("seed", range(40))
def test_bursts_leave_when_the_kernel_would_let_them(seed: int) -> None:
    draw = random.Random(seed)
    segments, rtt_s = draw.choice([1, 2, 4]), draw.uniform(0.02, 0.3)
    rate = {1: 100_000.0, 2: 1e6, 4: 4.4 * SEGMENT * 1024}[segments]
    pacing, kernel = Pacing(SEGMENT), Kernel(rate, segments * SEGMENT)
    pacing.rate = rate
    now_s = 1.0
    for _ in range(6):
        size = draw.randint(1, 40 * SEGMENT)
        pacing.begin(now_s)
        left_s = pacing.last_leaves_s(size)
        assert left_s == pytest.approx(kernel.burst(now_s, size), rel=1e-12)
        pacing.ended(left_s, size)
        now_s = left_s + draw.choice([0.0, 1e-4, 3e-3, rtt_s])


def test_the_rate_is_the_best_seen_times_the_gain_and_never_falls() -> None:
    pacing = Pacing(SEGMENT)
    pacing.observe(14_480, 0.0, 0.1)
    assert pacing.rate == pytest.approx(GAIN * 144_800)
    pacing.observe(28_960, 0.02, 0.1)
    assert pacing.rate == pytest.approx(GAIN * 28_960 / 0.12)
    pacing.observe(1_000, 0.0, 0.1)
    assert pacing.rate == pytest.approx(GAIN * 28_960 / 0.12)


@for_each(
    ("products", "queue_products", "expected"),
    [(2.0, 1.1, (2, 2)), (2.0, 1.5, (0, 0)), (2.6, 1.1, (2, 2)), (2.6, 1.5, (2, 2)), (3.5, 1.1, (0, 0))],
)
def test_bursts_that_overflow_the_queue_wait_two_round_trips_for_their_losses_until_the_path_is_known(
    products: float, queue_products: float, expected: tuple[int, int]
) -> None:
    """As seen in emulated transfers: after the first burst of a connection, the next two, and no more."""
    product, rtt_s = 125_000.0, 0.2
    pipe = Pipe(product / rtt_s, rtt_s, queue_products * product)
    pacing, size = Pacing(SEGMENT), products * product
    pacing.filled(size, pipe)
    for round_trips in (*expected, 0, 0):
        room = pipe.queue_bytes / (1 - 1 / GAIN)
        passed = room + (size - room) / GAIN
        wanted_s = round_trips * rtt_s - (size - passed) / pipe.capacity if round_trips else 0.0
        assert pacing.recovery_s(0.0, size, size, pipe) == pytest.approx(wanted_s)
        pacing.filled(size, pipe)


def test_only_the_first_message_that_does_not_fit_waits() -> None:
    pacing, pipe = Pacing(SEGMENT), Pipe(1e6, 0.1, 100_000.0)
    assert pacing.recovery_s(0.0, 100_000, 300_000, pipe) == 0.0
    assert pacing.recovery_s(100_000, 100_000, 300_000, pipe) > 0.0
    assert pacing.recovery_s(200_000, 100_000, 300_000, pipe) == 0.0
