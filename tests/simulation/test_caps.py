"""Caps that come and go: the solver passes over those that limit nobody. Nothing comes out otherwise, to the bit."""

from __future__ import annotations

import math
from random import Random

import pytest

from testbed.simulation.clock import Clock
from testbed.simulation.flows.network import FlowClass, FlowNetwork
from tests.simulation.test_flows import SOLVERS

CLASSES = 8


class Thorough(FlowNetwork):
    """Solves all anew whenever a cap changes, as a link of the class has."""

    def set_cap(self, flow_class: FlowClass, cap: float) -> None:
        super().set_cap(flow_class, cap)
        self.set_capacity(flow_class.path[0], self.capacity(flow_class.path[0]))


def _play(seed: int, kind: type[FlowNetwork], compiled: bool) -> list[tuple[int, float]]:
    """Classes with a link of their own each, into one port: when each flow ends."""
    draw, clock, ends = Random(seed), Clock(), []
    network = kind(clock, [*(draw.uniform(5, 40) for _ in range(CLASSES)), 60.0], compiled)
    classes = [network.flow_class((i, CLASSES), draw.choice([1.0, 1.7])) for i in range(CLASSES)]

    def start(number: int) -> None:
        network.start(classes[number], draw.uniform(10, 400), lambda: ends.append((number, clock.now)))

    for _ in range(60):
        clock.at(draw.uniform(0, 100), start, draw.randrange(CLASSES))
    for _ in range(120):
        change = classes[draw.randrange(CLASSES)], draw.choice([math.inf, draw.uniform(30, 90), draw.uniform(1, 30)])
        clock.at(draw.uniform(0, 150), lambda change: network.set_cap(*change), change)
    clock.run()
    return ends


@pytest.mark.parametrize("compiled", SOLVERS)
def test_a_cap_that_limits_nobody_changes_nothing(compiled: bool) -> None:
    for seed in range(15):
        ends = _play(seed, FlowNetwork, compiled)
        assert len(ends) == 60
        assert ends == _play(seed, Thorough, compiled), seed
