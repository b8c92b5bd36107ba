"""Data in both directions of a link: what acknowledgements that wait behind data cost, and what they take."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from testbed.plan.build import build_plan
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.connections import SimulatedNetwork
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.two_way_traffic import ACKNOWLEDGEMENT_SHARE

SCENARIO = """
version: 1
name: both-ways
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 5 Mbit/s, delay: 20 ms, queue: 64 KB}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""
EMULATED = "simulation.network=emulated"
LAN = 4 * 0.0001  # of both data centres, there and back
SIZE = 20e6
UNLIMITED = TcpModel(slow_start=False, setup_round_trips=0.0)


class Network:
    """The scenario's network, and when what was sent over it has arrived."""

    def __init__(self, *overrides: str, model: TcpModel = UNLIMITED) -> None:
        self.clock, self._model = Clock(), model
        plan = build_plan(loads(SCENARIO, overrides=list(overrides)), "simulate")
        self._network = SimulatedNetwork(plan, self.clock, model, float("inf"), False, {})
        self.flows = self._network.flows
        self.arrived: dict[str, float] = {}

    def connect(self, source: str, target: str) -> TcpConnection:
        path, links = self._network.paths.between(f"{source}/worker0", f"{target}/worker0")
        connection = TcpConnection(self.clock, self._network.flows, path, links, self._model, self._deliver)
        connection.emulated = self._network.paths.emulated(links)
        return connection

    def _deliver(self, item: Any) -> None:
        self.arrived[item] = self.clock.now

    def set_capacity(self, number: int, capacity: float, _: Any) -> None:
        self.flows.set_capacity(number, capacity)

    def ends_s(self, senders: str, size_bytes: float = SIZE) -> dict[str, float]:
        """Return when so much has arrived of each of ``senders`` that send to each other at the same time."""
        for source in senders:
            self.connect(source, "ab".replace(source, "")).send(size_bytes, 0.0, source)
        self.clock.finish()
        return self.arrived


# ---- links --------------------------------------------------------------------------------------------------------


def test_two_transfers_that_meet_take_longer_by_their_acknowledgements() -> None:
    """Without windows, nothing else."""
    alone, both = Network(EMULATED).ends_s("a"), Network(EMULATED).ends_s("ab")
    assert both["a"] == pytest.approx(alone["a"] / (1 - ACKNOWLEDGEMENT_SHARE), rel=1e-3)
    assert both["b"] == pytest.approx(both["a"], rel=1e-12)
    assert pytest.approx(0.0218, abs=1e-4) == ACKNOWLEDGEMENT_SHARE, "66 of 3028 bytes"


def test_windows_that_have_yet_to_open_do_not_open_sooner_for_data_that_comes_back() -> None:
    """A window that waits for its acknowledgements anyway sends no faster afterwards."""
    fast = (EMULATED, "links[*].rate=100 Mbit/s", "links[*].delay=100 ms", "links[*].queue=2 MB")
    cubic = TcpModel(setup_round_trips=0.0)
    alone, both = Network(*fast, model=cubic).ends_s("a", 326e3), Network(*fast, model=cubic).ends_s("ab", 326e3)
    assert alone["a"] <= both["a"] < alone["a"] + 0.05


def test_two_windows_that_meet_take_longer_by_their_round_trip() -> None:
    """CUBIC's windows of equal connections fill path and queue after their first loss."""
    cubic = TcpModel(setup_round_trips=0.0)
    alone, both = Network(EMULATED, model=cubic).ends_s("a"), Network(EMULATED, model=cubic).ends_s("ab")
    rate = 5e6 / 8 * cubic.goodput
    product_bytes = rate * (0.04 + LAN) - 2 * (burst_bytes(5e6) + FRAME_BYTES) * cubic.goodput
    window_bytes = 65536 * cubic.goodput + rate * (0.04 + LAN)
    longest = (1 + product_bytes / (2 * 0.7 * window_bytes)) / (1 - ACKNOWLEDGEMENT_SHARE)
    shortest = (1 + product_bytes / (2 * window_bytes)) / (1 - ACKNOWLEDGEMENT_SHARE)
    assert shortest - 0.01 < both["a"] / alone["a"] < longest + 0.01, (shortest, longest)


def test_the_last_window_needs_no_acknowledgement() -> None:
    """So of two windows one is slower, by half of that of a long transfer."""
    cubic = TcpModel(setup_round_trips=0.0, initial_window_bytes=60e3)  # opens the path at once
    rate = 5e6 / 8 * cubic.goodput
    alone, both = (Network(EMULATED, model=cubic).ends_s(senders, 120e3) for senders in ("a", "ab"))
    product_bytes = rate * (0.04 + LAN) - 2 * (burst_bytes(5e6) + FRAME_BYTES) * cubic.goodput
    slower = (1 + product_bytes / 120e3) / (1 - ACKNOWLEDGEMENT_SHARE)
    assert both["a"] / alone["a"] == pytest.approx((1 + slower) / 2, abs=0.02)


@pytest.mark.parametrize(("burst_bytes_", "waits"), [(60e3, True), (100.0, False)])
def test_the_end_of_a_transfer_waits_for_acknowledgements_behind_a_burst(burst_bytes_: float, waits: bool) -> None:
    """150 kB in windows of 120 kB: the last 30 kB need acknowledgements, and those come when the burst has passed."""
    model = TcpModel(setup_round_trips=0.0, initial_window_bytes=120e3)  # opens the path at once
    network = Network(EMULATED, "links[0].delay=100 ms", "links[0].queue=200 KB", model=model)
    rate, bucket_bytes = 5e6 / 8 * model.goodput, (burst_bytes(5e6) + FRAME_BYTES) * model.goodput
    network.connect("a", "b").send(150e3, 0.0, "a")
    other = network.connect("b", "a")
    network.clock.at(0.1, lambda _: other.send(burst_bytes_, 0.0, "b"))
    network.clock.finish()
    acknowledged_s = 0.1 + (burst_bytes_ - 2 * bucket_bytes) / rate + 0.1
    sent_s = acknowledged_s + 30e3 / rate if waits else (150e3 - bucket_bytes) / rate
    assert network.arrived["a"] == pytest.approx(sent_s + 0.1, abs=0.012), "buckets let pass 7 ms each"


def test_a_transfer_that_ends_gives_the_other_its_link_back() -> None:
    network = Network(EMULATED)
    network.connect("b", "a").send(SIZE / 2, 0.0, "b")
    network.connect("a", "b").send(SIZE, 0.0, "a")
    network.clock.finish()
    alone_s = Network(EMULATED).ends_s("a")["a"]
    assert network.arrived["a"] == pytest.approx(alone_s * (1 + ACKNOWLEDGEMENT_SHARE / 2), rel=2e-3)


def test_after_an_outage_windows_that_meet_are_slower_again() -> None:
    """Of links that are down, a cycle has no end."""
    ends = []
    for size_bytes in (SIZE, 1.5 * SIZE):
        network = Network(EMULATED, model=TcpModel(setup_round_trips=0.0))
        rate = network.flows.capacity(0)
        for at_s, capacity in ((5.0, 1e-6), (6.0, rate)):
            for number in (0, 1):
                network.clock.at(at_s, partial(network.set_capacity, number, capacity))
        ends.append(network.ends_s("ab", size_bytes)["a"])
    assert (ends[1] - ends[0]) / (SIZE / 2 / rate) > 1.05


def test_a_link_ten_times_slower_than_its_reverse_carries_ten_times_the_acknowledgements() -> None:
    faster = "links[0].reverse={rate: 50 Mbit/s}"
    alone, both = Network(EMULATED, faster).ends_s("a"), Network(EMULATED, faster)
    both.connect("b", "a").send(20 * SIZE, 0.0, "b")  # for longer
    both.connect("a", "b").send(SIZE, 0.0, "a")
    both.clock.finish()
    assert both.arrived["a"] == pytest.approx(alone["a"] / (1 - 10 * ACKNOWLEDGEMENT_SHARE), rel=5e-3)


def test_a_tenth_of_a_link_is_left_where_acknowledgements_alone_would_fill_it() -> None:
    network = Network(EMULATED, "links[0].reverse={rate: 1 Gbit/s}")
    network.connect("b", "a").send(200 * SIZE, 0.0, "b")
    network.connect("a", "b").send(SIZE / 20, 0.0, "a")
    network.clock.finish()
    assert network.arrived["a"] == pytest.approx(10 * SIZE / 20 / (5e6 / 8 * UNLIMITED.goodput), rel=0.02)


def test_only_where_an_emulation_is_predicted() -> None:
    assert Network().ends_s("ab") == pytest.approx(dict.fromkeys("ab", Network().ends_s("a")["a"]), rel=1e-12)
    host = "simulation.host={cores: 2, message: 1 us, stream: 100 Gbit/s}"
    assert Network(host).ends_s("ab") == Network(EMULATED).ends_s("ab")
