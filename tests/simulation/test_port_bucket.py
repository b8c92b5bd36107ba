"""The token bucket of a node's port, and what it does to a LAN's transfers in an emulated network."""

from __future__ import annotations

import pytest

from testbed.plan.build import build_plan
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.connections import SimulatedNetwork
from testbed.simulation.port_bucket import PortBucket
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

RATE_BPS = 20e6
DEPTH = burst_bytes(RATE_BPS) + FRAME_BYTES
SCENARIO = """
version: 1
name: lan
seed: 1
topology: {data_centers: [{name: a, central: true, workers: 2, lan: {rate: 20 Mbit/s}}], links: []}
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""


def test_it_fills_while_it_sends_slower_than_it_could() -> None:
    port = PortBucket(RATE_BPS, 1.0)
    assert port.enter(5.0, DEPTH + 2500) == DEPTH
    assert port.enter(5.0, 1e3) == 0.0, "what is missing is sent first"
    assert port.enter(5.002, 1e6) == pytest.approx(1500), "all was sent after 1.4 ms"
    assert port.enter(7.0, 4000) == pytest.approx(3999), "the last byte is left to the sender"


@pytest.mark.parametrize(("overrides", "at_once_bytes"), [(["simulation.network=emulated"], DEPTH), ([], 0)])
def test_a_message_passes_as_far_as_both_ports_let_it(overrides: list[str], at_once_bytes: int) -> None:
    clock, arrived_s = Clock(), list[float]()
    plan = build_plan(loads(SCENARIO, overrides=overrides), "simulate")
    model = TcpModel(goodput=1.0, setup_round_trips=0.0)
    network = SimulatedNetwork(plan, clock, model, float("inf"), False, {})
    path, links = network.paths.between("a/worker0", "a/worker1")
    connection = TcpConnection(clock, network.flows, path, links, model, lambda _: arrived_s.append(clock.now))
    connection.port_buckets = network.paths.port_buckets(links)
    connection.send(100_000, 0, "m")
    clock.finish()
    assert arrived_s == pytest.approx([path.delay_s + (100_000 - at_once_bytes) * 8 / RATE_BPS])
