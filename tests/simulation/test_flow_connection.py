"""Connections: the formulas of ``testbed.simulation.flows.connection``, one by one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from testbed.realtime import connecting
from testbed.settings.run import Transport
from testbed.simulation import handshake
from testbed.simulation.clock import Clock
from testbed.simulation.flows import dispatch, sending
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.flows.records import Pipe
from testbed.simulation.flows.window import loss_limit, sawtooth_share
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each
from tests.simulation.links import path_over, wan_link

EXACT = 1e-9
WARM = TcpModel(slow_start=False, setup_round_trips=0, sharing_exponent=0)
W0 = 14_480.0


class Wire:
    """Connections over links of given capacities (bytes per second), all with one path's delay and queue."""

    def __init__(self, capacities: list[float], delay_s: float = 0.0, queue_bytes: float = math.inf) -> None:
        self.clock = Clock()
        self.network = FlowNetwork(self.clock, capacities)
        self.path = SitePath("wan", (), delay_s)
        if queue_bytes < math.inf:  # before the last link
            link = wan_link(8 * capacities[-1], delay_s, int(queue_bytes), number=len(capacities) - 1)
            self.path = SitePath("wan", (link,), 0.0)
        self.path.refresh()
        self.arrived: list[tuple[object, float]] = []

    def connect(self, model: TcpModel, links: tuple[int, ...] = (0,), path: SitePath | None = None) -> FlowConnection:
        return FlowConnection(self.clock, self.network, path or self.path, links, model, self._on_arrival)

    def _on_arrival(self, item: object) -> None:
        self.arrived.append((item, self.clock.now))

    def times(self) -> list[float]:
        self.clock.run()
        return [at_s for _, at_s in self.arrived]


def rounds(size: float, rate: float, rtt_s: float, window: float = W0) -> int:
    """K of simulation theory: rounds in which the window, and not the rate, limits."""
    sent = 0.0
    for k in itertools.count():
        if window >= min(rate * rtt_s, size - sent) * (1 - 1e-12):
            return k
        sent += window
        window *= 2
    raise AssertionError


def test_a_warm_transfer_takes_delay_and_size_over_rate() -> None:
    wire = Wire([1e6], 0.03)
    wire.connect(WARM).send(5e5, 0, "m")
    assert wire.times() == pytest.approx([0.53], rel=EXACT)


def test_messages_of_a_connection_follow_one_another_by_priority() -> None:
    wire = Wire([100.0])
    connection = wire.connect(WARM)
    for item, priority in (("first", 0), ("b", 0), ("c", 0), ("urgent", 5)):
        connection.send(100, priority, item)
    assert wire.times() == pytest.approx([1, 2, 3, 4], rel=EXACT)
    assert [item for item, _ in wire.arrived] == ["first", "urgent", "b", "c"]


def test_a_connection_is_one_flow_however_much_it_has_queued() -> None:
    wire = Wire([100.0])
    many, one = wire.connect(WARM), wire.connect(WARM)
    for i in range(5):
        many.send(100, 0, i)
    one.send(200, 0, "one")
    assert wire.times() == pytest.approx([2, 4, 4, 5, 6, 7], rel=EXACT)


@for_each("rate", [2.5e6, 12.5e6, 25e6])
@for_each("rtt_s", [0.01, 0.05, 0.2])
@for_each("size", [1e4, 1e5, 1e6, 1e7])
def test_a_cold_transfer_pays_slow_start_in_rounds(rate: float, rtt_s: float, size: float) -> None:
    wire = Wire([rate], rtt_s / 2)
    wire.connect(TcpModel(setup_round_trips=0)).send(size, 0, "m")
    k = rounds(size, rate, rtt_s)
    expected = rtt_s / 2 + k * rtt_s + (size - W0 * (2**k - 1)) / rate
    assert wire.times() == pytest.approx([expected], rel=EXACT)


def test_the_slow_start_formula_on_one_case_by_hand() -> None:
    """100 kB at 10 MB/s and 100 ms: 14.48, 28.96 kB in two rounds, the remaining 56.56 kB fit the window of 57.92."""
    wire = Wire([10e6], 0.05)
    wire.connect(TcpModel(setup_round_trips=0)).send(100_000, 0, "m")
    assert wire.times() == pytest.approx([0.05 + 0.2 + 56_560 / 10e6], rel=EXACT)


def test_set_up_costs_its_round_trips_once() -> None:
    wire = Wire([1e6], 0.05)
    connection = wire.connect(TcpModel(setup_round_trips=3))
    connection.send(1000, 0, "a")
    connection.send(1000, 0, "b")
    assert wire.times() == pytest.approx([0.3 + 0.05 + 0.001, 0.3 + 0.05 + 0.002], rel=EXACT)


def twice(model: TcpModel, idle_s: float, size: float = 3e6) -> tuple[float, float]:
    """Durations of two equal transfers over 10 MB/s and 100 ms RTT, the second after an idle time."""
    wire = Wire([1e9, 10e6], 0.05)
    connection = wire.connect(model, (0, 1))
    connection.send(size, 0, 1)
    while not wire.arrived:
        wire.clock.step()
    first = wire.clock.now
    start = first + idle_s
    wire.clock.at(start, lambda _: connection.send(size, 0, 2))
    return first, wire.times()[1] - start


def test_a_warm_window_is_kept_over_idle() -> None:
    cold, warm = twice(TcpModel(setup_round_trips=0), 10.0)
    assert cold > 0.8
    assert warm == pytest.approx(0.05 + 0.3, rel=EXACT)


def test_with_restart_after_idle_a_loss_based_connection_is_cold_again() -> None:
    model = TcpModel(setup_round_trips=0, slow_start_after_idle=True)
    cold, again = twice(model, 10.0)
    assert again == pytest.approx(cold, rel=EXACT)
    assert twice(model, 0.2)[1] == pytest.approx(0.05 + 0.3, rel=EXACT), "shorter than RTO = 0.3 s"


def test_bbr_does_not_restart_after_idle() -> None:
    model = TcpModel(setup_round_trips=0, slow_start_after_idle=True, congestion_control="bbr")
    assert twice(model, 10.0)[1] == pytest.approx(0.35, rel=EXACT)


def test_the_window_has_grown_only_as_far_as_was_needed() -> None:
    """20 kB need windows of 14.48 and 5.52 kB, which leaves 28.96 + 5.52: the second round follows a full one.
    Then 100 kB take rounds of 34.48 and 65.52 kB."""
    wire = Wire([10e6], 0.05)
    connection = wire.connect(TcpModel(setup_round_trips=0))
    connection.send(20_000, 0, 1)
    wire.clock.at(5.0, lambda _: connection.send(100_000, 0, 2))
    assert wire.times()[1] == pytest.approx(5.0 + 0.05 + 0.1 + (100_000 - 34_480) / 10e6, rel=EXACT)


def test_bbr_spreads_a_burst_shorter_than_the_path() -> None:
    """At 2/ln 2 initial windows a round trip; CUBIC at the path's rate."""
    for control, takes_s in (("bbr", 10_000 / (2 / math.log(2) * 20_000 / 0.1)), ("cubic", 10_000 / 10e6)):
        wire = Wire([10e6], 0.05)
        model = TcpModel(setup_round_trips=0, congestion_control=control, initial_window_bytes=20_000)
        wire.connect(model).send(10_000, 0, "m")
        assert wire.times() == pytest.approx([0.05 + takes_s], rel=EXACT)


def test_a_window_limit_caps_the_rate() -> None:
    wire = Wire([10e6], 0.05)
    model = TcpModel(setup_round_trips=0, slow_start=False, window_limit_bytes=200_000)
    wire.connect(model).send(1e6, 0, "m")
    assert wire.times() == pytest.approx([0.05 + 1e6 / 2e6], rel=EXACT)


def test_a_connection_limited_by_others_and_not_by_its_window_keeps_no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten cold connections on a short path: each gets its share, and rounds end with the start-up."""
    solves, settle = [], dispatch.settle
    monkeypatch.setattr(dispatch, "settle", lambda net: (solves.append(net), settle(net)))
    wire = Wire([10e6], 0.0005)
    for _ in range(10):
        wire.connect(TcpModel(setup_round_trips=0)).send(1e6, 0, "m")
    assert wire.times()[-1] == pytest.approx(1.0, rel=0.005)
    assert len(solves) < 60, "1000 round-trip times pass"


def test_weights_follow_the_round_trip_time() -> None:
    """Reno: 10 and 40 ms share four to one; BBR: evenly."""
    for control, share in (("reno", 0.8), ("bbr", 0.5)):
        wire = Wire([1e6])
        model = TcpModel.of(Transport(congestion_control=control))
        near, far = SitePath("wan", (), 0.005), SitePath("wan", (), 0.02)
        near.refresh(), far.refresh()
        a, b = wire.connect(model, (0,), near), wire.connect(model, (0,), far)
        a.send(1e7, 0, "a"), b.send(1e7, 0, "b")
        wire.clock.run(until=2.0)
        before = a.carried_bytes, b.carried_bytes
        wire.clock.run(until=3.0)
        assert (a.carried_bytes - before[0]) / 1e6 == pytest.approx(share, rel=EXACT)
        assert (b.carried_bytes - before[1]) / 1e6 == pytest.approx(1 - share, rel=EXACT)


@for_each("sends", ["on", "after idle time"])
def test_weights_follow_a_delay_that_changes(sends: str) -> None:
    """Reno: 40 ms become 10 ms, while it sends or not, and an even share four times the other's."""
    wire, model = Wire([1e6]), TcpModel.of(Transport(congestion_control="reno"))
    moved, far = SitePath("wan", (), 0.02), SitePath("wan", (), 0.02)
    moved.refresh(), far.refresh()
    a, b = wire.connect(model, (0,), moved), wire.connect(model, (0,), far)
    a.send(1e7 if sends == "on" else 1e5, 0, "a"), b.send(1e7, 0, "b")
    wire.clock.run(until=2.0)
    moved.lan_delay_s = 0.005
    moved.refresh()
    a.path_changed()
    if sends != "on":
        a.send(1e7, 0, "more")
    wire.clock.run(until=4.0)
    before = a.carried_bytes, b.carried_bytes
    wire.clock.run(until=5.0)
    assert (a.carried_bytes - before[0]) / 1e6 == pytest.approx(0.8, rel=EXACT)
    assert (b.carried_bytes - before[1]) / 1e6 == pytest.approx(0.2, rel=EXACT)


def test_loss_limits_reno_as_mathis_says_and_bbr_hardly() -> None:
    reno, bbr = (TcpModel.of(Transport(congestion_control=c)) for c in ("reno", "bbr"))
    # measured on Linux at 100 Mbit/s: 43.4 Mbit/s at 10 ms and 1e-3, 2.89 at 50 ms and 1e-2
    assert loss_limit(reno, 0.01, 1e-3, 12.5e6) * 8 / 1e6 == pytest.approx(43.4, rel=0.05)
    assert loss_limit(reno, 0.05, 1e-2, 12.5e6) * 8 / 1e6 == pytest.approx(2.89, rel=0.05)
    assert loss_limit(bbr, 0.05, 1e-2, 12.5e6) == pytest.approx(12.5e6 * 0.99)


def test_losses_limit_cubic_by_its_response_function() -> None:
    """RFC 9438, table 2, C = 0.4: windows in segments at 100 ms; with less loss, Reno's and CUBIC's part."""
    cubic = TcpModel.of(Transport(congestion_control="cubic"))
    for loss, segments in ((1e-2, 12), (1e-4, 187), (1e-6, 5900)):
        assert loss_limit(cubic, 0.1, loss, 1e12) * 0.1 / 1448 == pytest.approx(segments, rel=0.05)


def test_a_short_queue_leaves_the_sawtooth_its_share() -> None:
    bdp_bytes = 1e6
    assert sawtooth_share(Pipe(1e7, 0.1, 0.0), 0.5) == pytest.approx(0.75), "Reno without a queue"
    assert sawtooth_share(Pipe(1e7, 0.1, bdp_bytes), 0.5) == 1.0, "a queue of a bandwidth-delay product"
    assert 0.75 < sawtooth_share(Pipe(1e7, 0.1, bdp_bytes / 4), 0.5) < 1.0


def test_a_message_waits_behind_the_standing_queue_of_a_long_transfer() -> None:
    """(1 + β) / 2·(BDP + Q) - BDP of the other connection stand before the link."""
    wire, path = Wire([1e9, 10e6]), path_over(wan_link(delay_s=0.02, queue_bytes=400_000, number=1))
    model = TcpModel(setup_round_trips=0, goodput=1.0)
    long, short = wire.connect(model, (0, 1), path), wire.connect(model, (0, 1), path)
    short.send(1000, 0, "first")
    long.send(1e8, 0, "long")
    wire.clock.at(5.0, lambda _: short.send(1000, 0, "behind"))
    wire.clock.at(20.0, lambda _: short.send(1000, 0, "alone"))
    wire.clock.run()
    times = {str(item): at_s for item, at_s in wire.arrived}
    queue_s = (0.85 * (400_000 + 400_000) - 400_000) / 10e6
    assert times["behind"] - 5.0 == pytest.approx(0.02 + queue_s + 1000 / 5e6, rel=1e-6)
    assert times["alone"] - 20.0 == pytest.approx(0.02 + 1000 / 10e6, rel=1e-6)


def test_a_burst_that_overflows_a_queue_leaves_a_window_that_fits() -> None:
    """200 kB come at once; a queue of 50 kB takes 55.6 kB of a burst at a tenth of the port's rate."""
    wire = Wire([100e6, 10e6], 0.05, 50_000)
    connection = wire.connect(TcpModel(setup_round_trips=0), (0, 1))
    for number in range(6):
        wire.clock.at(10.0 * number, lambda _: connection.send(200_000, 0, "m"))
    wire.clock.run(until=55.0)
    last_s = wire.arrived[-1][1] - 50.0
    mean_bytes = 0.85 * 50_000 * (1448 / 1514) / 0.9
    assert last_s == pytest.approx(0.05 + 200_000 / mean_bytes * 0.1, rel=0.15), "rounds of one window each"


def test_with_bbr_losses_of_the_last_round_trip_cost_another_one() -> None:
    """Over packets at 20 Mbit/s and 20 ms, 1 % lost: 0.24 RTT for 50 segments, and 0.23 for 300."""
    model = TcpModel.of(Transport(congestion_control="bbr"))
    path = SitePath("wan", (), 0.01)
    path.refresh()
    for segments in (50, 300):
        wire = Wire([2.4e6], 0.01)
        connection = wire.connect(model, path=path)
        connection.send(1448.0 * segments, 0, "cold")
        wire.clock.run(until=2.0)
        took_s = []
        for loss in (0.0, 0.01):
            path.passing = 1 - loss
            connection.path_changed()
            begin_s = wire.clock.now
            connection.send(1448.0 * segments, 0, loss)
            wire.clock.run(until=begin_s + 2.0)
            took_s.append(wire.times()[-1] - begin_s)
        sending_s = 1448.0 * segments / 2.4e6 / 99  # at 99 % of the rate
        assert took_s[1] - took_s[0] - sending_s == pytest.approx(0.26 * 0.02, rel=0.15)


def test_a_capacity_that_falls_below_the_window_and_rises_again() -> None:
    wire = Wire([10e6], 0.005)
    connection = wire.connect(TcpModel(setup_round_trips=0))
    connection.send(1e6, 0, "m")

    def change(capacity: float) -> None:
        wire.network.set_capacity(0, capacity)
        connection.path_changed()

    wire.clock.at(0.05, lambda _: change(0.0))
    wire.clock.at(1.05, lambda _: change(10e6))
    alone = Wire([10e6], 0.005)
    alone.connect(TcpModel(setup_round_trips=0)).send(1e6, 0, "m")
    assert wire.times()[0] == pytest.approx(alone.times()[0] + 1.0, rel=1e-6)


def cut(wire: Wire, connection: FlowConnection, at_s: float, for_s: float, path: SitePath | None = None) -> None:
    """The path (default: that of the data) is down from ``at_s`` on, for ``for_s``."""

    def turn(up: bool) -> None:
        (path or wire.path).up = up
        connection.state_changed()

    wire.clock.at(at_s, lambda _: turn(False))
    wire.clock.at(at_s + for_s, lambda _: turn(True))


@for_each(("for_s", "found_s"), [(0.1, 0.62), (0.3, 0.86), (0.5, 1.34), (1.0, 2.3), (200.0, 243.26)])
def test_a_path_that_was_down_is_found_by_a_retransmission(for_s: float, found_s: float) -> None:
    """Two RTTs of 40 ms after the last acknowledgement, at 0.54 s, by a probe; then after RTO, 0.24 s.

    Further intervals double, up to two minutes.
    """
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    cut(wire, connection, 0.5, for_s)
    connection.send(1e6, 0, "m")
    assert wire.times() == pytest.approx([found_s + 0.5 + 0.02], rel=1e-6)


def test_acknowledgements_that_are_lost_are_an_outage_too() -> None:
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    wire.path.reverse = SitePath("wan", (), 0.02, delay_s=0.02)
    cut(wire, connection, 0.5, 0.3, wire.path.reverse)
    connection.send(1e6, 0, "m")
    assert wire.times() == pytest.approx([0.86 + 0.5 + 0.02], rel=1e-6), "as if the path itself were down"


def test_who_sends_nothing_during_an_outage_does_not_notice() -> None:
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    cut(wire, connection, 0.5, 1.0)
    connection.send(1e5, 0, "before")
    wire.clock.at(2.0, lambda _: connection.send(1e5, 0, "after"))
    assert wire.times() == pytest.approx([0.12, 2.12], rel=EXACT)


def test_who_begins_during_an_outage_is_silent_from_then_on() -> None:
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    cut(wire, connection, 0.5, 1.0)
    wire.clock.at(1.0, lambda _: connection.send(1e5, 0, "m"))
    assert wire.times() == pytest.approx([1.0 + 0.08 + 0.24 + 0.48 + 0.12], rel=1e-6)


@for_each("way", ["there", "back"])
@for_each(("up_s", "syn_s"), [(0.4, 1.0), (4.3, 5.02), (9.5, 10.06), (60.0, 60.62)])
def test_who_connects_during_an_outage_tries_again_every_second(up_s: float, syn_s: float, way: str) -> None:
    """Not after intervals that double, as retransmissions: of attempts of 5 s each, with pauses of up to 0.5 s."""
    wire = Wire([1e6], 0.02)
    wire.path.reverse = SitePath("wan", (), 0.02, delay_s=0.02)
    connection = wire.connect(TcpModel())
    cut(wire, connection, 0.0, up_s, None if way == "there" else wire.path.reverse)
    wire.clock.at(0.0, lambda _: connection.send(1000, 0, "m"))
    assert wire.times() == pytest.approx([syn_s + 0.12 + 0.02 + 0.001], rel=1e-6)


def test_who_is_killed_while_it_connects_tries_no_more() -> None:
    wire = Wire([1e6], 0.02)
    connection = wire.connect(TcpModel())
    wire.path.up = False
    connection.send(1000, 0, "m")
    wire.clock.at(2.5, lambda _: connection.stop(math.inf))
    assert not wire.times() and wire.clock.now == 3.0


def test_what_changes_while_the_path_is_down_is_not_noticed() -> None:
    """Its timeout follows from the round trips that it has seen."""
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    cut(wire, connection, 0.5, 1.0)

    def delayed(delay_s: float) -> None:
        wire.path.delay_s = delay_s
        connection.path_changed()

    wire.clock.at(0.7, lambda _: delayed(0.4))
    wire.clock.at(1.0, lambda _: connection.send(1e5, 0, "m"))
    wire.clock.at(1.2, lambda _: delayed(0.02))
    assert wire.times() == pytest.approx([1.0 + 0.08 + 0.24 + 0.48 + 0.12], rel=1e-6), "as without a change"


def test_a_path_that_is_down_again_is_found_after_that() -> None:
    wire = Wire([1e6], 0.02)
    connection = wire.connect(WARM)
    cut(wire, connection, 0.5, 0.5)  # would be found 0.84 s after it began
    cut(wire, connection, 1.2, 1.0)
    connection.send(1e6, 0, "m")
    assert wire.times() == pytest.approx([2.3 + 0.5 + 0.02], rel=1e-6)


def test_after_an_outage_a_loss_based_window_opens_anew() -> None:
    wires = [Wire([1e6], 0.05, 1e5) for _ in range(2)]
    ends = []
    for wire, control in zip(wires, ("cubic", "bbr"), strict=True):
        connection = wire.connect(TcpModel(congestion_control=control, setup_round_trips=0))
        cut(wire, connection, 2.0, 0.1)
        connection.send(3e6, 0, "m")
        ends += wire.times()
    assert ends[0] > ends[1] + 0.3, "CUBIC begins with one segment, BBR with what it had"


@for_each(("unsent_bytes", "place"), [(0, 1), (150, 2), (250, 3), (10_000, 4)])
def test_an_urgent_message_overtakes_nothing_that_the_kernel_has_taken(unsent_bytes: float, place: int) -> None:
    """Of 400 bytes, 50 have been sent; the kernel takes whole messages."""
    wire = Wire([100.0])
    connection = wire.connect(replace(WARM, unsent_limit_bytes=unsent_bytes))
    for item in range(4):
        connection.send(100, 0, item)
    wire.clock.run(until=0.5)
    connection.send(100, 5, "urgent")
    wire.times()
    assert [item for item, _ in wire.arrived].index("urgent") == place


def test_inside_a_data_centre_an_urgent_message_overtakes_all_that_has_not_begun() -> None:
    """A LAN has no queue, also where its round trip is so long that a window limits its connections."""
    wire = Wire([1e6])
    connection = wire.connect(TcpModel(setup_round_trips=0), path=SitePath("lan", (), 0.045, delay_s=0.045))
    assert not connection.unlimited
    for item in range(4):
        connection.send(1e6, 0, item)
    wire.clock.run(until=1.8)
    connection.send(1e6, 5, "urgent")
    wire.times()
    assert [item for item, _ in wire.arrived] == [0, 1, "urgent", 2, 3]


def test_a_round_trip_is_the_way_there_and_the_way_back() -> None:
    """Three for the set-up, two for slow start, as by hand above; a change of either way counts."""
    wire = Wire([10e6], 0.01)
    wire.path.reverse = SitePath("wan", (), 0.09, delay_s=0.09)
    wire.connect(TcpModel(setup_round_trips=3)).send(100_000, 0, "m")
    assert wire.times() == pytest.approx([0.3 + 0.2 + 56_560 / 10e6 + 0.01], rel=EXACT)


@for_each("control", ["reno", "cubic", "bbr"])
def test_a_path_without_a_delay(control: str) -> None:
    wire = Wire([10e6])
    path = path_over(wan_link())
    connection = wire.connect(TcpModel(congestion_control=control), path=path)
    assert not connection.unlimited
    connection.send(1e6, 0, "first")
    wire.clock.at(1.0, lambda _: connection.send(1e6, 0, "second"))
    assert wire.times() == pytest.approx([0.1, 1.1])


KERNEL = replace(WARM, unsent_limit_bytes=1000)


def stopped(at_s: float, *until_s: float, messages: tuple[float, ...]) -> Wire:
    """Messages over 100 bytes/s, of which the kernel takes 1000; the process is stopped from ``at_s`` on."""
    wire = Wire([100.0])
    connection = wire.connect(KERNEL)
    for number, size_bytes in enumerate(messages):
        connection.send(size_bytes, 0, number)
    for end_s in until_s:
        wire.clock.at(at_s, lambda _, end_s=end_s: connection.stop(end_s))
    return wire


def test_of_a_stopped_process_the_kernel_sends_what_it_has_taken_and_later_the_rest() -> None:
    # at 10 s, 1000 bytes of 3000 have arrived and 1000 are with the kernel; these have arrived at 20 s
    assert stopped(10, 50, messages=(3000, 100)).times() == pytest.approx([60, 61], rel=EXACT)
    assert stopped(10, 15, messages=(3000, 100)).times() == pytest.approx([30, 31], rel=EXACT), "it has not noticed"
    assert stopped(10, 50, 60, 40, messages=(3000, 100)).times() == pytest.approx([70, 71], rel=EXACT)
    # the kernel takes whole messages here, up to the first that is beyond its limit
    assert stopped(1, 50, messages=(500, 300, 400, 100)).times() == pytest.approx([5, 8, 12, 51], rel=EXACT)


def test_the_last_byte_of_a_stopped_process_leaves() -> None:
    wire = Wire([100.0])
    connection = wire.connect(WARM)
    connection.send(100, 0, "m")
    wire.clock.at(0.995, lambda _: connection.stop(50))
    assert wire.times() == pytest.approx([1.0], rel=EXACT)


def test_what_a_stopped_process_keeps_is_sent_before_what_its_kernel_had_taken_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window that shrinks lets the kernel hold less than it has taken before."""
    wire = Wire([100.0])
    connection = wire.connect(KERNEL)
    for size_bytes, priority, item in ((800, 0, "a"), (300, 0, "b"), (100, 5, "urgent")):
        connection.send(size_bytes, priority, item)
    monkeypatch.setattr(sending, "_taken_bytes", lambda net, it: 100.0)
    wire.clock.at(1, lambda _: connection.stop(50))
    assert wire.times() == pytest.approx([56, 59, 60], rel=EXACT)
    assert [item for item, _ in wire.arrived] == ["a", "b", "urgent"]


def test_of_a_killed_process_nothing_arrives_but_what_the_kernel_has_taken() -> None:
    assert stopped(10, math.inf, messages=(3000, 100)).times() == []
    assert stopped(1, math.inf, messages=(500, 300, 400, 100)).times() == pytest.approx([5, 8, 12], rel=EXACT)


def test_what_a_stopped_process_is_given_to_send_waits() -> None:
    wire = Wire([100.0])
    connection = wire.connect(KERNEL)
    connection.stop(20)
    wire.clock.at(5, lambda _: connection.send(100, 0, "late"))
    assert wire.times() == pytest.approx([21], rel=EXACT)


def test_a_killed_process_sends_no_more() -> None:
    wire = Wire([100.0])
    connection = wire.connect(KERNEL)
    connection.stop(math.inf)
    connection.send(100, 0, "never")
    assert wire.times() == []


@for_each("until_s", [0.01, 0.2])
def test_a_connection_is_set_up_however_short_the_pause_of_its_process_is(until_s: float) -> None:
    wire = Wire([1e6], 0.05)
    connection = wire.connect(TcpModel())
    connection.send(1000, 0, "first")
    connection.stop(until_s)
    assert wire.times() == pytest.approx([0.3 + 0.05 + 1000 / 1e6], rel=1e-3)


def test_simulated_nodes_connect_as_often_as_real_ones() -> None:
    real = (connecting._CONNECT_LIMIT_S, connecting._FIRST_PAUSE_S, connecting._LONGEST_PAUSE_S)
    assert real == (handshake._ATTEMPT_S, handshake._FIRST_PAUSE_S, handshake._LONGEST_PAUSE_S)
