"""Outages and background datagrams in virtual time: what they leave to a flow that wants everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.benchmarks.sample_plans import plan
from testbed.plan.model import Plan
from testbed.settings.run import Background
from testbed.settings.series import Series
from testbed.simulation.clock import Clock
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.flows.links import FlowLinks
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.link_driver import DatagramStream, LinkDriver, asked_bps
from testbed.simulation.link_monitor import LinkMonitor, LinkSample
from testbed.simulation.paths import PathTable
from testbed.simulation.tcp_model import TcpModel
from tests.engine.runs import run
from tests.for_each import for_each
from tests.links import with_link


class NoLog:
    """Stands for the event log. ``samples``: of links."""

    node = "network"

    def __init__(self) -> None:
        self.samples: list[LinkSample] = []

    def append(self, event: LinkSample) -> None:
        self.samples.append(event)

    def write(self, kind: str, t: float, **fields: Any) -> None:
        pass


class Network:
    """The flow network, and what drives and samples its links."""

    def __init__(self, settings: Plan) -> None:
        self.settings, self.clock, self.paths = settings, Clock(), PathTable(settings, 1.0)
        self.flows = FlowNetwork(self.clock, self.paths.capacities())
        self.log = NoLog()
        self.connections = FlowLinks(self.clock, self.flows, self.paths)
        self.monitor = LinkMonitor(self.clock, self.paths.links, self.connections, self.log)  # type: ignore[arg-type]
        self.links = LinkDriver(self.clock, self.paths, self.connections, self.monitor, self.log)  # type: ignore[arg-type]

    def connect(self, source: str = "dc0/worker0", target: str = "dc1/worker0") -> FlowConnection:
        path, numbers = self.paths.between(source, target)
        connection = FlowConnection(self.clock, self.flows, path, numbers, TcpModel(), lambda item: None)
        self.connections.add(connection, path, numbers, (source, target, 0))
        return connection


def time_to_send(settings: Plan, size_bits: float) -> float:
    """When a flow from dc0 to dc1 ends that begins at 0 and takes all that there is."""
    network, ended = Network(settings), list[float]()
    clock, flows = network.clock, network.flows
    network.links.start_traces(0.0)
    network.links.start_background(settings, 0.0)
    number = next(link.number for link in network.paths.links if link.plan.name == "dc0>dc1")
    flows.start(flows.flow_class((number,)), size_bits / 8, lambda: ended.append(clock.now))
    while not ended:
        clock.step()
    return ended[0]


BASE = plan({("dc0", "dc1"): {"rate_bps": 10e6}})


def traffic(**values: Any) -> Background:
    return Background(**({"kind": "constant", "source": "dc0", "target": "dc1", "rate_bps": 6e6} | values))


def test_datagrams_take_their_rate_while_they_last() -> None:
    assert time_to_send(BASE, 20e6) == pytest.approx(2.0)
    assert time_to_send(replace(BASE, background=(traffic(),)), 20e6) == pytest.approx(5.0)
    some = replace(BASE, background=(traffic(start_s=0.5, stop_s=1.5),))
    assert time_to_send(some, 20e6) == pytest.approx(2.6)  # 5 Mbit, then 4, then 11
    assert time_to_send(replace(BASE, background=(traffic(source="dc1", target="dc0"),)), 20e6) == pytest.approx(2.0)


def test_datagrams_that_fill_a_link_leave_little() -> None:
    full = replace(BASE, background=(traffic(rate_bps=20e6, stop_s=10.0),))
    assert time_to_send(full, 20e6) == pytest.approx(10 + (20e6 - 10 * 0.1e6) / 10e6)


@for_each(("rate_bps", "got_bps"), [(6e6, 6e6), (20e6, 9.9e6)])
def test_links_count_datagrams_as_an_interface_does(rate_bps: float, got_bps: float) -> None:
    down = Series(times_s=(0.0, 1.0, 2.0), values=(1.0, 0.0, 1.0))
    settings = replace(BASE, background=(traffic(rate_bps=rate_bps, start_s=0.5, stop_s=3.5),))
    network = Network(with_link(settings, "dc0>dc1", state_trace=down))
    network.links.start_traces(0.0)
    network.links.start_background(network.settings, 0.0)
    network.clock.run(until=5.0)
    network.monitor.sample()
    sent = {sample.link: sample.bytes for sample in network.log.samples}
    assert sent == {"dc0>dc1": round(2 * got_bps / 8), "dc1>dc0": 0}, "two seconds, without the outage"


def test_the_narrowest_link_of_a_path_is_the_one_that_datagrams_leave_least_of() -> None:
    pairs = {("dc0", "dc2"): {"rate_bps": 20e6, "queue_bytes": 4_000_000}, ("dc2", "dc1"): {"queue_bytes": 40_000}}
    routes = {"dc0>dc1": ("dc0>dc2", "dc2>dc1"), "dc1>dc0": ("dc1>dc2", "dc2>dc0")}
    routes |= {name: (name,) for name in ("dc0>dc2", "dc2>dc1", "dc1>dc2", "dc2>dc0")}
    pairs["dc2", "dc1"]["rate_bps"] = 10e6
    beside = traffic(target="dc2", rate_bps=19.5e6, start_s=1.0, stop_s=2.0)
    network = Network(replace(plan(pairs, sites=3, routes=routes), background=(beside,)))
    connection = network.connect()
    network.links.start_background(network.settings, 0.0)
    queues = []
    for until_s in (0.5, 1.5, 2.5):
        network.clock.run(until=until_s)
        queues.append(connection.pipe.queue_bytes)
    assert queues == pytest.approx([40_000 * TcpModel().goodput, 4e6 * TcpModel().goodput, 40_000 * TcpModel().goodput])


def test_datagrams_that_a_link_drops_do_not_get_to_the_next_one() -> None:
    """Of 95 Mbit/s, 9.9 pass a link of 10; half of these while it loses half, and none while it is down."""
    pairs = {("dc0", "dc2"): {"rate_bps": 10e6}, ("dc2", "dc1"): {"rate_bps": 100e6}}
    routes = {"dc0>dc1": ("dc0>dc2", "dc2>dc1"), "dc1>dc0": ("dc1>dc2", "dc2>dc0")}
    settings = plan(pairs, sites=3, routes=routes | {name: (name,) for name in ("dc2>dc1", "dc1>dc2")})
    settings = with_link(
        replace(settings, background=(traffic(rate_bps=95e6), traffic(source="dc2", rate_bps=1e6, stop_s=4.5))),
        "dc0>dc2",
        loss_trace=Series(times_s=(0.0, 1.0, 2.0), values=(0.0, 0.5, 0.0)),
        rate_trace=Series(times_s=(0.0, 3.0), values=(10e6, 20e6)),
        state_trace=Series(times_s=(0.0, 2.0, 3.0), values=(1.0, 0.0, 1.0)),
    )
    network = Network(settings)
    network.links.start_traces(0.0)
    network.links.start_background(settings, 0.0)
    first, second = (
        next(link for link in network.paths.links if link.plan.name == name) for name in ("dc0>dc2", "dc2>dc1")
    )
    taken = []
    for until_s in (0.5, 1.5, 2.5, 3.5, 5.0):
        network.clock.run(until=until_s)
        taken.append(second.taken_bps)
        assert first.taken_bps == 95e6
    assert taken == pytest.approx([10.9e6, 5.95e6, 1e6, 20.8e6, 19.8e6])


def test_streams_of_datagrams_in_a_circle_share_its_links() -> None:
    """Each link has one that begins there, and what the link before it lets pass of another one."""
    names = [f"dc{number}" for number in range(3)]
    pairs = {("dc0", "dc1"): {}, ("dc1", "dc2"): {}, ("dc0", "dc2"): {}}
    settings = plan(pairs, sites=3)
    paths = PathTable(settings, 1.0)
    by_name = {link.plan.name: link.number for link in paths.links}
    circle = [by_name[f"{names[i]}>{names[(i + 1) % 3]}"] for i in range(3)]
    streams = [DatagramStream((circle[i], circle[(i + 1) % 3]), 20e6) for i in range(3)]
    asked = asked_bps(streams, paths.links)
    passes = asked[circle[0]] - 20e6
    assert list(asked.values()) == pytest.approx([20e6 + passes] * 3)
    assert passes == pytest.approx(20e6 * 0.99 * 20e6 / (20e6 + passes))


def test_an_outage_is_a_pause() -> None:
    down = Series(times_s=(0.0, 1.0, 4.0), values=(1.0, 0.0, 1.0))
    assert time_to_send(with_link(BASE, "dc0>dc1", state_trace=down), 20e6) == pytest.approx(5.0)


def test_a_rate_of_0_is_an_outage_too() -> None:
    rates = Series(times_s=(0.0, 1.0, 4.0), values=(10e6, 0.0, 20e6))
    assert time_to_send(with_link(BASE, "dc0>dc1", rate_trace=rates), 20e6) == pytest.approx(4.5)
    down = Series(times_s=(0.0, 2.0, 5.0), values=(1.0, 0.0, 1.0))
    both = with_link(BASE, "dc0>dc1", rate_trace=rates, state_trace=down)
    assert time_to_send(both, 20e6) == pytest.approx(5.5), "up again when neither has it down"


def test_a_rate_trace_goes_on_under_datagrams_and_outages() -> None:
    rates = Series(times_s=(0.0, 1.0), values=(10e6, 16e6))
    settings = with_link(replace(BASE, background=(traffic(),)), "dc0>dc1", rate_trace=rates)
    assert time_to_send(settings, 24e6) == pytest.approx(3.0)  # 4 Mbit, then 10 a second


def test_a_runs_rounds_take_longer_beside_background_traffic(tmp_path: Path) -> None:
    rounds = ("training.model={kind: mlp, hidden: 64}", "training.rounds=6")
    background = "background=[{kind: constant, from: east, to: hub, rate: 19 Mbit/s}]"
    alone = run(tmp_path / "alone", *rounds).round_s("hub/worker0")
    assert run(tmp_path / "beside", *rounds, background).round_s("hub/worker0") > 1.05 * alone


def test_a_connection_counts_for_those_that_it_replaces() -> None:
    """Else each checkpoint and each restart of a node would leave one that changes of its links concern for ever."""
    network = Network(BASE)
    generations = [network.connect()]
    for _ in range(3):
        generations[-1].send(1e6, 0, "m")
        network.clock.finish()
        generations.append(network.connect())
    (link,) = (link for link in network.paths.links if link.plan.name == "dc0>dc1")
    assert list(network.connections._connections[link.number]) == generations[-1:]
    assert [list(found) for found in network.connections._by_path.values()] == [generations[-1:]]
    assert generations[-1].carried_bytes == pytest.approx(3e6)


def test_a_replaced_connection_is_heeded_until_it_has_sent_all() -> None:
    network = Network(BASE)
    before = network.connect()
    before.send(1e6, 0, "m")
    network.clock.run(until=0.5)
    network.connect()
    (number,) = (link.number for link in network.paths.links if link.plan.name == "dc0>dc1")
    assert before in network.connections._connections[number]
    network.clock.finish()
    network.connections._forget_replaced()
    assert before not in network.connections._connections[number]


def test_what_the_first_of_three_still_sends_counts_for_the_last() -> None:
    network = Network(BASE)
    network.connect().send(1e6, 0, "m")
    network.clock.run(until=0.5)
    network.connect()
    last = network.connect()  # the one before has sent nothing, and is forgotten first
    network.clock.finish()
    network.connections._forget_replaced()
    assert last.carried_bytes == pytest.approx(1e6)


def test_a_delay_of_the_way_back_changes_the_round_trip() -> None:
    longer = Series(times_s=(0.0, 1.0), values=(0.01, 0.2))
    network = Network(with_link(BASE, "dc1>dc0", delay_trace=longer))
    connections = [network.connect(), network.connect("dc1/worker0", "dc0/worker0")]
    before_s = connections[0].rtt_s
    network.links.start_traces(0.0)
    network.clock.run(until=2.0)
    assert [each.rtt_s for each in connections] == pytest.approx([before_s + 0.19] * 2)
