"""Parked flow classes: with and without parking, results are equal to the bit."""

from __future__ import annotations

from random import Random

import pytest

from testbed.simulation.clock import Clock
from testbed.simulation.flows import classes
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.flows.records import Network
from tests.simulation.test_flows import SOLVERS


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    """How often classes are parked, by Python."""
    parked = list[Network]()
    park = classes._park
    monkeypatch.setattr(classes, "_park", lambda net: (parked.append(net), park(net))[1])
    return parked


def _play(seed: int, network: FlowNetwork, clock: Clock) -> list[tuple[int, float, float]]:
    """Flows of a few classes, now and then, over links that change: when each ends, and what its class had carried."""
    draw, ends = Random(seed), []
    links = 5
    classes = [
        network.flow_class(
            draw.sample(range(links), draw.randint(1, 3)), draw.choice([1.0, 1.7]), draw.choice([3.3, 50.0])
        )
        for _ in range(6)
    ]

    def start(number: int) -> None:
        flow, copies = classes[number], draw.choice([1, 1, 3])

        def done() -> None:
            ends.append((number, clock.now, network.delivered_bytes(flow)))
            if draw.random() < 0.4:
                start(draw.randrange(len(classes)))

        network.start(flow, draw.uniform(1.0, 40.0), done, copies)
        if draw.random() < 0.1:
            start(draw.randrange(len(classes)))

    for _ in range(150):
        at_s = round(draw.uniform(0, 2000), 1)
        kind = draw.random()
        if kind < 0.8:
            clock.at(at_s, start, draw.randrange(len(classes)))
        elif kind < 0.9:
            clock.at(at_s, lambda cap: network.set_cap(classes[draw.randrange(6)], cap), draw.uniform(1, 60))
        else:
            clock.at(at_s, lambda capacity: network.set_capacity(draw.randrange(links), capacity), draw.uniform(2, 40))
    clock.run()
    return ends


@pytest.mark.parametrize("compiled", SOLVERS)
def test_parking_changes_no_result(compiled: bool, parked: list[Network]) -> None:
    for seed in range(10):
        ends = []
        for parks in (True, False):
            clock = Clock()
            network = FlowNetwork(clock, [10.0, 20.0, 7.0, 13.0, 30.0], compiled)
            network.net.parks = parks
            ends.append(_play(seed, network, clock))
        assert ends[0] == ends[1]
    assert compiled or len(parked) > 125


def test_a_parked_class_has_no_rate_and_leaves_its_links_to_others(parked: list[Network]) -> None:
    clock, ends = Clock(), []
    network = FlowNetwork(clock, [10.0, 4.0])
    first, second = network.flow_class((0, 1)), network.flow_class((0,))
    network.start(first, 8.0, lambda: ends.append(clock.now))
    clock.run()
    assert (ends, len(parked)) == ([2.0], 1)
    network.start(second, 10.0, lambda: ends.append(clock.now))
    clock.run()
    assert ends == [2.0, 3.0], "the whole link is the second one's"
    network.set_capacity(0, 2.0)
    network.start(first, 8.0, lambda: ends.append(clock.now))
    clock.run()
    assert ends == [2.0, 3.0, 7.0]
