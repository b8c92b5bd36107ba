"""Bursts that overflow the queue before a link: how much passes, who loses, and when the rest arrives."""

from __future__ import annotations

import pytest

from testbed.plan.model import LinkPlan
from testbed.simulation.clock import Clock
from testbed.simulation.drop_tail import DropTailQueue
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.paths import SitePath, WanLink
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each

EXACT = 1e-9
SEGMENT = 1448
RATE, ACCESS, RTT_S, QUEUE = 10e6, 1e9, 0.1, 100_000  # bytes, bytes per second
ROOM = QUEUE / (1 - RATE / ACCESS)  # of a burst, as the queue drains meanwhile


class Bottleneck:
    """Connections of one host over one link; each has a window of ``window_bytes`` at the start."""

    def __init__(self, control: str = "cubic", goodput: float = 1.0) -> None:
        self.clock = Clock()
        self.network = FlowNetwork(self.clock, [ACCESS, RATE], 4)
        plan = LinkPlan(name="a>b", source="a", target="b", rate_bps=8e7, delay_s=RTT_S / 2, queue_bytes=QUEUE)
        link = WanLink(number=1, plan=plan, rate_bps=8e7, delay_s=RTT_S / 2, drop_tail=DropTailQueue(self.clock))
        self.path = SitePath("wan", (link,), 0.0)
        self.path.refresh()
        beta = {"reno": 0.5, "cubic": 0.7, "bbr": 1.0}[control]
        self.model = TcpModel(setup_round_trips=0, congestion_control=control, window_after_loss=beta, goodput=goodput)
        self.arrived: dict[object, float] = {}

    def connect(self, window_bytes: float, links: tuple[int, ...] = (0, 1)) -> TcpConnection:
        connection = TcpConnection(self.clock, self.network, self.path, links, self.model, self._on_arrival)
        connection._window.size_bytes = window_bytes
        return connection

    def _on_arrival(self, item: object) -> None:
        self.arrived[item] = self.clock.now

    def send(self, connection: TcpConnection, size_bytes: float, item: str, at_s: float = 1.0) -> None:
        self.clock.at(at_s, lambda _: connection.send(size_bytes, 0, item))

    def run(self) -> dict[object, float]:
        """Return how long after 1 s each item has arrived."""
        self.clock.run()
        return {item: at_s - 1 for item, at_s in self.arrived.items()}


def test_a_burst_that_fits_takes_the_line_rate() -> None:
    net = Bottleneck()
    net.send(net.connect(3e5), ROOM - 1, "m")
    assert net.run() == {"m": pytest.approx(RTT_S / 2 + (ROOM - 1) / RATE, rel=EXACT)}


def test_what_a_burst_loses_is_sent_a_round_later() -> None:
    """A window of 300 kB: 101 kB fill the queue, and of the rest one part in a hundred gets in."""
    net = Bottleneck()
    net.send(net.connect(3e5), 3.05e5, "m")
    passed = ROOM + (3e5 - ROOM) * RATE / ACCESS
    assert net.run() == {"m": pytest.approx(RTT_S / 2 + RTT_S + (3.05e5 - passed) / RATE, rel=EXACT)}


def test_the_lost_end_of_a_message_is_found_late_and_repaired_from_one_segment_on() -> None:
    """One segment got into the full queue: its acknowledgement tells. Then 1, 2, … 64 segments, a round trip each."""
    net = Bottleneck()
    net.send(net.connect(3e5), 3e5, "m")
    passed = ROOM + (3e5 - ROOM) * RATE / ACCESS
    known_s = RTT_S + ROOM / RATE + RTT_S / 4 + RTT_S
    left = 3e5 - passed - 127 * SEGMENT
    assert net.run() == {"m": pytest.approx(RTT_S / 2 + known_s + 7 * RTT_S + left / RATE, rel=EXACT)}


def test_a_queue_that_takes_nothing_when_full_costs_a_probe() -> None:
    """110 kB: 0.06 segments get into the full queue. A probe leaves two smoothed round trips after the last answer."""
    net = Bottleneck()
    net.send(net.connect(3e5), 1.1e5, "m")
    passed = ROOM + (1.1e5 - ROOM) * RATE / ACCESS
    told = (1.1e5 - ROOM) * RATE / ACCESS / SEGMENT
    wait_s = told * RTT_S / 4 + (1 - told) * (2 * RTT_S + ROOM / RATE)
    known_s = RTT_S + ROOM / RATE + wait_s + RTT_S
    left = 1.1e5 - passed - 3 * SEGMENT
    assert net.run() == {"m": pytest.approx(RTT_S / 2 + known_s + 2 * RTT_S + left / RATE, rel=EXACT)}


def test_bursts_of_one_instant_share_the_loss() -> None:
    net = Bottleneck()
    for item in ("a", "b"):
        net.send(net.connect(1e5), 1e5, item)
    first, second = sorted(net.run().values())
    assert first == pytest.approx(second, rel=0.01), "100 kB each, of which the queue takes half"
    assert second > RTT_S / 2 + 2e5 / RATE + 3 * RTT_S


def test_a_burst_behind_another_one_loses_what_finds_no_room() -> None:
    net = Bottleneck()
    net.send(net.connect(8e4), 8e4, "before")
    net.send(net.connect(8e4), 8e4, "behind", at_s=1.001)
    arrived = net.run()
    assert arrived["before"] < RTT_S / 2 + 1.6e5 / RATE + 1e-3
    assert arrived["behind"] > 3 * RTT_S, "70 kB of the first one were in the queue"
    late = Bottleneck()
    late.send(late.connect(8e4), 8e4, "before")
    late.send(late.connect(8e4), 8e4, "behind", at_s=1.2)
    assert late.run()["behind"] == pytest.approx(0.2 + RTT_S / 2 + 8e4 / RATE, rel=EXACT), "the queue was empty again"


def test_after_losses_a_connection_sends_a_window_per_round_trip() -> None:
    """Reno's 200 and 102 kB are halved twice: 300 kB take 101, 76, 76 and 47 kB, not 30 ms."""
    net = Bottleneck("reno")
    connection = net.connect(2e5)
    net.send(connection, 3e5, "first")
    net.send(connection, 3e5, "second", at_s=3.0)
    arrived = net.run()
    assert 2 + 3.5 * RTT_S < arrived["second"] < 2 + 3.6 * RTT_S


def test_a_message_behind_a_lost_end_tells_of_the_loss() -> None:
    """As keys of one model that follow one another within a round trip; a gap between two of them changes nothing."""
    net = Bottleneck()
    connection = net.connect(3e5)
    net.send(connection, 2e3, "a small key first, with a gap behind it")
    net.send(connection, 2.5e5, "key", at_s=1.005)
    net.send(connection, 1e5, "next key", at_s=1.01)
    arrived = net.run()
    assert RTT_S / 2 + RTT_S < arrived["key"] < RTT_S / 2 + 2 * RTT_S
    alone = Bottleneck()
    alone.send(alone.connect(3e5), 2.5e5, "key", at_s=1.005)
    assert alone.run()["key"] > 8 * RTT_S


def test_bbr_knows_no_such_queue() -> None:
    net = Bottleneck("bbr")
    net.send(net.connect(2e6), 3e5, "m")
    net.run()
    assert net.path.links[0].drop_tail is not None
    assert net.path.links[0].drop_tail._senders == {}


def test_the_queue_takes_its_bytes_of_frames() -> None:
    """Of 100 kB in frames, 94 kB are payload."""
    for goodput, late in ((1.0, False), (0.94, True)):
        net = Bottleneck(goodput=goodput)
        net.send(net.connect(3e5), 0.97 * QUEUE, "m")
        assert (net.run()["m"] > RTT_S) is late


def test_parts_of_a_burst_of_which_the_queue_has_drained_the_first_lose_nothing() -> None:
    """As values that a server sends one by one, when each is complete: 80 kB, and 50 ms later 80 kB more."""
    net = Bottleneck()
    connection = net.connect(3e5)
    net.send(connection, 8e4, "first")
    net.send(connection, 8e4, "second", at_s=1.05)
    assert net.run()["second"] == pytest.approx(0.05 + RTT_S / 2 + 8e4 / RATE, rel=EXACT)


def test_what_has_left_the_queue_makes_room_for_the_burst_of_another_connection() -> None:
    """A window of 90 kB: after 30 ms at most 63 of them wait in the queue of 100 kB, so 30 kB of another one get in."""
    net = Bottleneck()
    net.send(net.connect(9e4), 3e5, "long")
    net.send(net.connect(3e5), 3e4, "short", at_s=1.03)
    assert net.run()["short"] < 0.03 + RTT_S
    crowded = Bottleneck()
    crowded.send(crowded.connect(9e4), 3e5, "long")
    crowded.send(crowded.connect(3e5), 3e4, "short", at_s=1.001)
    assert crowded.run()["short"] > 2 * RTT_S, "89 of its 90 kB are still there"


@for_each(("size_bytes", "loses"), [(4.5e4, False), (8e4, True)])
def test_bursts_overflow_the_queue_of_a_wider_link_before_the_narrowest(size_bytes: float, loses: bool) -> None:
    """50 kB wait before the first link, of 20 MB/s, and 100 kB before the second, of half of that."""
    net = Bottleneck()
    net.network = FlowNetwork(net.clock, [ACCESS, 2 * RATE, RATE], 4)
    links = []
    for number, (rate_bps, queue_bytes) in enumerate(((1.6e8, QUEUE // 2), (8e7, QUEUE)), start=1):
        plan = LinkPlan(name=f"{number}", source="a", target="b", rate_bps=rate_bps, delay_s=RTT_S / 4,
                        queue_bytes=queue_bytes)  # fmt: skip
        links.append(WanLink(number=number, plan=plan, rate_bps=rate_bps, delay_s=RTT_S / 4,
                             drop_tail=DropTailQueue(net.clock)))  # fmt: skip
    net.path = SitePath("wan", tuple(links), 0.0)
    net.path.refresh()
    net.send(net.connect(3e5, (0, 1, 2)), size_bytes, "m")
    assert (net.run()["m"] > RTT_S / 2 + size_bytes / RATE + RTT_S / 2) is loses


def test_a_burst_that_begins_in_an_outage_waits_in_no_queue() -> None:
    """Its repair would end when the link that is down has drained its queue, in 10^11 s: the network never rested."""
    net = Bottleneck()
    connection = net.connect(3e5)
    (link,) = net.path.links

    def turn(up: bool) -> None:
        link.take("state", up)
        net.path.refresh()
        net.network.set_capacity(1, RATE if up else 1e-6)
        connection.state_changed()

    net.clock.at(0.5, lambda _: turn(False))
    net.send(connection, 3e5, "m", at_s=1.0)
    net.send(connection, 3e5, "more", at_s=1.01)
    net.clock.at(2.0, lambda _: turn(True))
    assert net.run()["more"] < 4.0
    assert net.clock.now < 100.0, "nothing is scheduled any more"
