"""The links of an emulated network packet by packet follow the state of the Plan's links."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.flows.links import FlowLinks
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.link_driver import LinkDriver
from testbed.simulation.link_monitor import LinkMonitor
from testbed.simulation.packets.network import PacketNetwork
from testbed.simulation.paths import PathTable
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each
from tests.simulation.test_background import NoLog

SCENARIO = """
version: 1
name: two
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 30 ms, queue: 64 KB}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
simulation: {network: packets}
"""


def only_over(network: PacketNetwork, link: int) -> int:
    """Return a path over one link, between ports that are never busy."""
    engine = network.engine
    return engine.add_path((link,), (engine.add_port(1e15), engine.add_port(1e15)), 0.0)


@for_each(("what", "down", "up"), [("state", 0.0, 1.0), ("rate", 0.0, 20e6)])
def test_a_link_that_is_down_loses_what_leaves_its_queue_and_what_is_delayed_arrives(
    what: str, down: float, up: float
) -> None:
    clock, arrived = Clock(), list[Any]()
    plan = build_plan(loads(SCENARIO), "simulate")
    paths = PathTable(plan, 1.0)
    network = PacketNetwork(clock, plan, paths, TcpModel())
    link = paths.links[0]

    path = only_over(network, 0)

    def send(name: str) -> None:
        network.engine.send_datagrams(path, [1514], 0, lambda: arrived.append(name))

    def take(value: float) -> None:
        link.take(what, value)
        network.link_changed(link, what, passed=True)

    clock.at(1.0, lambda _: send("before"))
    clock.at(1.02, lambda _: take(down))
    for number in range(20):  # more than the bucket holds: some would still wait when the link comes up
        clock.at(1.03, lambda _, number=number: send(f"during {number}"))
    clock.at(1.5, lambda _: take(up))
    clock.at(1.51, lambda _: send("after"))
    clock.finish()
    assert arrived == ["before", "after"]


@for_each(("network", "rates_bps"), [("packets", (64e3, 64e3)), ("flows", (32e3, 10e3))])
def test_a_predicted_link_is_as_fast_as_an_emulated_one(network: str, rates_bps: tuple[float, float]) -> None:
    values = ("rate=32 kbit/s", "queue=16 KB", "rate_trace=[{at: 0 s, rate: 32 kbit/s}, {at: 1 s, rate: 10 kbit/s}]")
    patience = "timeouts.dead_after=3 h"  # the queues of such links take long to drain
    overrides = (f"simulation.network={network}", patience, *(f"topology.links[0].{value}" for value in values))
    plan, clock, log = build_plan(loads(SCENARIO, overrides=overrides), "simulate"), Clock(), NoLog()
    paths, model = PathTable(plan, 1.0), TcpModel()
    flows = None if network == "packets" else FlowNetwork(clock, paths.capacities())
    user = PacketNetwork(clock, plan, paths, model) if flows is None else FlowLinks(clock, flows, paths)
    monitor = LinkMonitor(clock, paths.links, user, log)  # type: ignore[arg-type]
    LinkDriver(clock, paths, user, monitor, log).start_traces(0.0)  # type: ignore[arg-type]
    clock.run(until=2.0)
    found = [sample.configured_bps for sample in log.samples if sample.link == "a>b"]
    assert (found[0], found[-1]) == rates_bps
    if flows is not None:
        assert flows.capacity(0) == rates_bps[1] / 8


def test_a_sample_counts_packets_that_are_lost_on_the_way() -> None:
    plan, clock, log = build_plan(loads(SCENARIO), "simulate"), Clock(), NoLog()
    paths = PathTable(plan, 1.0)
    packets = PacketNetwork(clock, plan, paths, TcpModel())
    paths.links[0].take("loss", 1.0)
    packets.link_changed(paths.links[0], "loss", passed=True)
    packets.engine.send_datagrams(only_over(packets, 0), 60 * [1514], 0, lambda: None)
    dropped = packets.engine.link(0).dropped_packets
    assert 0 < dropped < 60, "by the queue, of 64 KB"
    clock.finish()
    LinkMonitor(clock, paths.links, packets, log).sample()  # type: ignore[arg-type]
    assert [sample.dropped_packets for sample in log.samples] == [60, 0]


def transfer_s(there_ms: int, back_ms: int, control: str) -> float:
    """When 3 MB arrive that are sent at 0."""
    clock, arrived = Clock(), list[float]()
    values = ("rate=100 Mbit/s", "queue=4 MB", f"delay={there_ms} ms", f"reverse={{delay: {back_ms} ms}}")
    plan = build_plan(loads(SCENARIO, overrides=[f"topology.links[0].{value}" for value in values]), "simulate")
    paths = PathTable(plan, 1.0)
    network = PacketNetwork(clock, plan, paths, TcpModel(congestion_control=control, unsent_limit_bytes=131_072))
    connection = network.connect("a/worker0", "b/worker0", lambda item: arrived.append(clock.now))
    connection.send(3_000_000, 0, "all")
    clock.finish()
    return arrived[0]


@for_each("control", ["cubic", "bbr"])
def test_a_round_trip_is_the_way_there_and_the_way_back(control: str) -> None:
    even_s = transfer_s(50, 50, control)
    assert transfer_s(10, 90, control) == pytest.approx(even_s - 0.04, rel=0.02)
    assert transfer_s(90, 10, control) == pytest.approx(even_s + 0.04, rel=0.02)


def test_datagrams_that_would_fill_a_link_leave_some_of_it() -> None:
    clock, arrived = Clock(), list[float]()
    plan = build_plan(loads(SCENARIO), "simulate")
    paths = PathTable(plan, 1.0)
    network = PacketNetwork(clock, plan, paths, TcpModel())
    paths.links[0].taken_bps = 30e6
    network.link_changed(paths.links[0], "rate", passed=True)
    path = only_over(network, 0)
    for _ in range(20):
        network.engine.send_datagrams(path, [1514], 0, lambda: arrived.append(clock.now))
    clock.finish()
    assert len(arrived) == 20
    assert arrived[-1] - arrived[-2] == pytest.approx(1514 * 8 / 0.2e6), "a hundredth of its rate"


def test_the_seed_and_the_connection_decide_which_segments_are_read_soon() -> None:
    found = []
    for seed in (1, 1, 2):
        plan = build_plan(loads(SCENARIO, overrides=[f"seed={seed}"]), "simulate")
        network = PacketNetwork(Clock(), plan, PathTable(plan, 1.0), TcpModel())
        ends = (("a/worker0", "b/worker0"), ("b/worker0", "a/worker0"))
        found.append([network.connect(*each, lambda _: None).record.chance for each in ends])
    first, again, other = found
    assert first == again
    assert len({*first, *other}) == 4
