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
from testbed.simulation.two_way_traffic import ACKNOWLEDGEMENT_SHARE, used_share

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


# ---- the share ----------------------------------------------------------------------------------------------------


def test_like_windows_leave_both_links_idle_for_a_round_trip_in_each_cycle() -> None:
    """A cycle is T + T' + RTT, and T what either window takes."""
    assert used_share(0.1, 0.1, 0.04) == pytest.approx(1 - 0.04 / 0.24)


def test_the_larger_window_fills_its_link_and_delays_the_others() -> None:
    assert used_share(0.15, 0.1, 0.04) == 1.0
    assert used_share(0.1, 0.15, 0.04) == pytest.approx(0.1 / 0.15)
    both = [used_share(0.1, 0.14 + more, 0.04) for more in (-1e-9, 1e-9)]
    assert both[0] == pytest.approx(both[1]), "both formulas meet"


def test_what_the_buckets_let_pass_fills_the_idle_time() -> None:
    assert used_share(0.1, 0.1, -1.0) == 1.0


# ---- links --------------------------------------------------------------------------------------------------------


def test_two_transfers_that_meet_take_longer_by_their_acknowledgements() -> None:
    """Without windows, nothing else."""
    alone, both = Network(EMULATED).ends_s("a"), Network(EMULATED).ends_s("ab")
    assert both["a"] == pytest.approx(alone["a"] / (1 - ACKNOWLEDGEMENT_SHARE), rel=1e-3)
    assert both["b"] == pytest.approx(both["a"], rel=1e-12)
    assert pytest.approx(0.0218, abs=1e-4) == ACKNOWLEDGEMENT_SHARE, "66 of 3028 bytes"


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
