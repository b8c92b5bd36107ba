"""The token buckets of emulated links and ports against tokens counted one by one."""

from __future__ import annotations

import math
import random
from unittest.mock import Mock

import pytest

from testbed.plan.model import LinkPlan
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.emulated_link import EmulatedLink, EmulatedPath, PortBucket, TokenBucket
from testbed.simulation.paths import WanLink

RATE_BPS = 20e6
DEPTH = burst_bytes(RATE_BPS) + FRAME_BYTES
PLAN = LinkPlan(name="a>b", source="a", target="b", rate_bps=RATE_BPS, delay_s=0.03, queue_bytes=100_000)


def test_it_fills_while_nobody_sends_and_not_beyond_its_depth() -> None:
    bucket = TokenBucket(1.0)
    assert bucket.enter(5.0, 1e6, RATE_BPS) == DEPTH
    bucket.leave(6.0)
    assert bucket.enter(6.001, 1e6, RATE_BPS) == pytest.approx(2500)
    bucket.leave(7.0)
    assert bucket.enter(8.0, 4000, RATE_BPS) == pytest.approx(3999), "the last byte is left to the sender"
    bucket.leave(8.0)
    assert bucket.enter(8.0, 1e6, RATE_BPS) == pytest.approx(DEPTH - 3999)


def test_who_comes_while_another_sends_gets_what_is_left() -> None:
    bucket = TokenBucket(1.0)
    assert bucket.enter(1.0, 5000, RATE_BPS) == pytest.approx(4999)
    assert bucket.enter(1.5, 1e6, RATE_BPS) == pytest.approx(DEPTH - 4999), "it does not fill meanwhile"
    bucket.leave(2.0)
    assert bucket.enter(2.5, 1e6, RATE_BPS) == 0.0, "the other still sends"
    bucket.leave(3.0)
    bucket.leave(3.0)
    assert bucket.enter(3.0 + 1e-3, 1e6, RATE_BPS) == pytest.approx(2500)


@pytest.mark.parametrize("seed", range(5))
def test_it_lets_pass_what_a_real_one_would(seed: int) -> None:
    """Against tokens that are earned all the time and spent by whole bursts at the link's rate."""
    draw = random.Random(seed)
    bucket, now_s, tokens, seen_s = TokenBucket(1.0), 1.0, float(DEPTH), 1.0
    for _ in range(50):
        size = draw.uniform(100, 40_000)
        tokens = min(DEPTH, tokens + RATE_BPS / 8 * (now_s - seen_s))
        expected_s = max(0.0, size - 1 - tokens) * 8 / RATE_BPS
        took_s = (size - 1 - bucket.enter(now_s, size, RATE_BPS)) * 8 / RATE_BPS
        assert took_s == pytest.approx(expected_s, abs=1e-9)
        tokens = max(0.0, tokens - (size - 1))
        now_s = seen_s = now_s + took_s
        bucket.leave(now_s)
        now_s += draw.choice([0.0, 1e-3, 5e-3, math.pi])


def test_a_port_fills_while_it_sends_slower_than_it_could() -> None:
    port = PortBucket(RATE_BPS, 1.0)
    assert port.enter(5.0, DEPTH + 2500) == DEPTH
    assert port.enter(5.0, 1e3) == 0.0, "what is missing is sent first"
    assert port.enter(5.002, 1e6) == pytest.approx(1500), "all was sent after 1.4 ms"
    assert port.enter(7.0, 4000) == pytest.approx(3999), "the last byte is left to the sender"


def test_what_passes_at_once_passes_everywhere_on_the_path() -> None:
    ports = PortBucket(1e9, 1.0), PortBucket(1e9, 1.0)
    link = EmulatedLink(WanLink(number=0, plan=PLAN, rate_bps=RATE_BPS, delay_s=0.03), 1.0)
    path, sender = EmulatedPath(ports, (link,)), Mock()
    assert path.enter(sender, 1.0, 1e6) == DEPTH, "the narrowest decides"
    path.leave(sender, 1.4)
    assert path.enter(sender, 1.4, 1e6) == 0.0
    assert EmulatedPath(ports, ()).enter(sender, 9.0, 1e6) == burst_bytes(1e9) + FRAME_BYTES, (
        "a LAN has its ports alone"
    )
