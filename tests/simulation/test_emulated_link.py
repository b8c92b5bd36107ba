"""An emulated link: its token bucket against tokens counted one by one, and the share that acknowledgements take."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from testbed.plan.build import build_plan
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.emulated_link import ACKNOWLEDGEMENT_SHARE, EmulatedLink, TokenBucket
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.paths import PathTable
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

RATE_BPS = 20e6
DEPTH = burst_bytes(RATE_BPS) + FRAME_BYTES
SIZE, SLOW_BPS = 1e6, 10e6
SCENARIO = """
version: 1
name: acknowledgements
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""
HOST = "simulation.host={cores: 2, message: 1 us, stream: 100 Gbit/s}"


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


def both_ways() -> tuple[EmulatedLink, EmulatedLink]:
    there, back = EmulatedLink(1.0), EmulatedLink(1.0)
    there.reverse, back.reverse = back, there
    return there, back


def acknowledgements(link: EmulatedLink, size_bytes: float) -> float:
    return link.enter(0.0, size_bytes, SLOW_BPS)[1]


def test_one_way_alone_has_none_to_carry() -> None:
    there, _ = both_ways()
    assert acknowledgements(there, SIZE) == 0.0
    assert acknowledgements(there, SIZE) == 0.0
    assert acknowledgements(EmulatedLink(1.0), SIZE) == 0.0, "of a link without a way back"


def test_what_meets_on_the_way_is_acknowledged_once() -> None:
    there, back = both_ways()
    assert acknowledgements(there, SIZE) == 0.0
    assert acknowledgements(back, SIZE / 4) == pytest.approx(ACKNOWLEDGEMENT_SHARE * SIZE / 4), (
        "as long as it is under way itself"
    )
    assert acknowledgements(back, 3 * SIZE) == pytest.approx(ACKNOWLEDGEMENT_SHARE * SIZE), "no more than comes"
    there.leave(0.0, SIZE)
    assert acknowledgements(back, SIZE) == 0.0
    assert pytest.approx(0.0218, abs=1e-4) == ACKNOWLEDGEMENT_SHARE, "66 of 3028 bytes"


def ends_s(senders: str, *overrides: str) -> dict[str, float]:
    """When 1 MB has arrived, of each of ``senders`` that send to each other at the same time."""
    plan = build_plan(loads(SCENARIO, overrides=list(overrides)), "simulate")
    clock, model = Clock(), TcpModel(slow_start=False, setup_round_trips=0.0)
    paths = PathTable(plan, model.goodput)
    network = FlowNetwork(clock, paths.capacities(), paths.longest)
    arrived: dict[str, float] = {}

    def deliver(item: Any) -> None:
        arrived[item] = clock.now

    for source in senders:
        path, links = paths.between(f"{source}/worker0", f"{'ab'.replace(source, '')}/worker0")
        TcpConnection(clock, network, path, links, model, deliver).send(SIZE, 0.0, source)
    clock.finish()
    return arrived


def test_two_transfers_that_meet_take_longer_by_their_acknowledgements() -> None:
    alone, both = ends_s("a", HOST), ends_s("ab", HOST)
    more_s = ACKNOWLEDGEMENT_SHARE * SIZE / (SLOW_BPS / 8 * TcpModel().goodput)
    assert both["a"] == pytest.approx(alone["a"], rel=1e-12)  # who comes first has nothing to acknowledge yet
    assert both["b"] == pytest.approx(alone["a"] + more_s, rel=1e-9)


def test_only_where_an_emulation_is_predicted() -> None:
    assert ends_s("ab") == pytest.approx(dict.fromkeys("ab", ends_s("a")["a"]), rel=1e-12)
