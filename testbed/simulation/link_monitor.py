"""The WAN links over time: traces and background traffic that change them, and samples of what they carry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from testbed.plan.model import BackgroundPlan, LinkPlan, Plan, Series
from testbed.results.events import EventLog, microseconds
from testbed.simulation.clock import Clock
from testbed.simulation.datagrams import DatagramStream, asked_bps
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.packets.network import PacketNetwork
from testbed.simulation.paths import PathTable, SitePath, WanLink, changes
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.validity import doubts
from testbed.traffic import bursts

_DOWN_BYTES_PER_S = 1e-6  # capacity of a link that is down; not 0, so that every flow has an end
_SAMPLE_INTERVAL_S = 0.5  # virtual time
_SAMPLED_LINKS = 200  # with more links, samples are rarer, so that their number does not grow

Place = tuple[str, str, int]  # of a connection: sender, receiver, and which of the flow groups between them


class LinkSample(msgspec.Struct, gc=False):
    """A ``link`` event, which is made and written in half the time of a dictionary: large networks have millions."""

    t: float
    kind: str
    node: str
    link: str
    configured_bps: float
    bytes: int
    dropped_packets: int = 0
    backlog_bytes: int = 0


class LinkMonitor:
    """Applies changes to the WAN links, and writes ``link`` and ``replay`` events to ``log``.

    Bytes are those of Ethernet frames, as an interface counts them: background traffic is among them.
    """

    def __init__(
        self, clock: Clock, network: FlowNetwork, paths: PathTable, log: EventLog, packets: PacketNetwork | None = None
    ) -> None:
        self._clock, self._network, self._paths, self._log, self._packets = clock, network, paths, log, packets
        self._sampling = False
        self._connections: dict[int, dict[TcpConnection, None]] = {link.number: {} for link in paths.links}
        self._by_path: dict[SitePath, dict[TcpConnection, None]] = {}
        self._places: dict[Place, tuple[SitePath, TcpConnection]] = {}
        self._replaced: dict[TcpConnection, tuple[SitePath, Place]] = {}  # by another one; they still send
        self._carried = [0.0] * len(paths.links)  # by link: payload of its flows, as last counted
        self._datagrams: list[DatagramStream] = []  # background traffic

    def add(self, connection: TcpConnection, path: SitePath, links: tuple[int, ...], place: Place) -> None:
        """Add a connection over these links. It replaces the one before of its ``place``."""
        if place in self._places:
            before_path, before = self._places[place]
            self._replaced[before] = before_path, place
        self._places[place] = path, connection
        self._forget_replaced()
        self._by_path.setdefault(path, {})[connection] = None
        for number in links:
            if number in self._connections:
                self._connections[number][connection] = None
                connection.flow.watched = True

    def _forget_replaced(self) -> None:
        """Forget connections that are replaced and have sent all: else each checkpoint and restart would leave some."""
        for connection, (path, place) in list(self._replaced.items()):
            if not connection.busy:
                self._places[place][1].take_over(connection)  # of several in a row, the newest counts for all
                del self._replaced[connection], self._by_path[path][connection]
                for number in connection.flow.path:
                    self._connections.get(number, {}).pop(connection, None)

    def forget_bursts(self) -> None:
        """Let the largest burst of each connection be that of training: first values may be larger than any later."""
        for connections in self._connections.values():
            for connection in connections:
                connection.largest_burst_bytes = 0.0

    def doubts(self, model: TcpModel) -> list[str]:
        """Return where the TCP model may be off for these connections; see ``validity``."""
        return doubts(self._paths.links, self._connections, model)

    def start_sampling(self, from_s: float = -math.inf) -> None:
        """Sample at every interval, from now or ``from_s`` on, until the run stalls. Called again, go on after a stall.

        With n > 200 links the interval is (n / 200)² times as long.
        """
        if not self._sampling:
            self._sampling = True
            if from_s > self._clock.now:  # a resumed run has no network before
                self._clock.at_background(from_s, self._on_interval)
            else:
                self._on_interval(None)

    def _on_interval(self, _: Any) -> None:
        self.sample()
        if self._clock.stalled:  # nothing changes before the next deadline, which may be far
            self._sampling = False
        else:
            factor = max(1.0, len(self._paths.links) / _SAMPLED_LINKS) ** 2
            self._clock.at_background(self._clock.now + _SAMPLE_INTERVAL_S * factor, self._on_interval)

    def sample(self, links: Sequence[WanLink] = ()) -> None:
        """Write one ``link`` event per WAN link, or for each of these."""
        self._count()
        at_s = microseconds(self._clock.now)
        for link in links or self._paths.links:
            sample = LinkSample(at_s, "link", self._log.node, link.plan.name, link.rate_bps, 0)
            link.count_taken(self._clock.now)
            if self._packets is None:
                sample.bytes = round(self._carried[link.number] / self._paths.goodput + link.taken_bytes)
            else:
                carried = self._packets.links[link.number]
                sample.bytes = carried.sent_bytes + round(link.taken_bytes)
                sample.dropped_packets = carried.dropped_packets + carried.lost_packets
                sample.backlog_bytes = carried.backlog_bytes
            self._log.append(sample)

    def _count(self) -> None:
        """Add what flow classes have carried since the last count. Idle ones are counted again when they carry more."""
        carrying, wan = self._network.carrying, len(self._carried)
        moved = list(carrying)
        carrying.clear()
        for flow in moved:
            total = self._network.delivered_bytes(flow)
            more, flow.counted = total - flow.counted, total
            for number in flow.path:
                if number < wan:
                    self._carried[number] += more
            if flow.flows:
                carrying[flow] = None

    def start_traces(self, start_s: float) -> None:
        """Follow all traces; their time 0 is ``start_s``, the start of training. Steps in the past are skipped."""
        for link in self._paths.links:
            plan: LinkPlan = link.plan
            for what in ("rate", "delay", "loss", "state", "corruption"):
                series: Series | None = getattr(plan, f"{what}_trace")
                if series is not None:
                    steps = changes(series, self._clock.now - start_s)
                    self._clock.follow(steps, start_s, partial(self._apply, link, what))

    def _apply(self, link: WanLink, what: str, planned_s: float, value: float) -> None:
        self.sample((link,))  # so that bytes carried at the old rate are counted at it
        self._log.write(
            "replay", self._clock.now, link=link.plan.name, planned_t=planned_s, late_s=0.0, what=what, value=value
        )
        passed = link.passes
        link.take(what, self._paths.made_bps(value) if what == "rate" else value)
        if what in ("state", "rate"):
            self._set_capacity(link)
        elif self._packets is not None:
            self._packets.changed(link)
        self._forget_replaced()
        crossing = dict.fromkeys(self._paths.crossing(link))
        for path in crossing:
            path.refresh()
        for connection in self._connections[link.number]:
            if what != "state":
                connection.path_changed()
            if link.passes != passed:
                connection.state_changed()
        affected = crossing if what == "delay" or link.passes != passed else ()
        for path in affected:  # whose acknowledgements cross the link
            if path.reverse is not None and path.reverse not in crossing:
                for connection in self._by_path.get(path.reverse, ()):
                    if what == "delay":
                        connection.path_changed()
                    else:
                        connection.state_changed()
        if self._datagrams:
            self._share_datagrams()
        self.sample((link,))

    def start_background(self, plan: Plan, start_s: float) -> None:
        """Start all background traffic of the Plan; its time 0 is ``start_s``, the start of training.

        Datagrams do not yield to TCP, so they take their rate from the links they cross, as far as they get there.
        Background TCP is not simulated; the scenario refuses it.
        """
        numbers = {link.plan.name: link.number for link in self._paths.links}
        for traffic in plan.background:
            path = plan.network.between(traffic.source, traffic.target)
            stream = DatagramStream(tuple(numbers[name] for name in path))
            self._datagrams.append(stream)
            self._clock.follow(_rates(traffic), start_s, partial(self._send_datagrams, stream))

    def _send_datagrams(self, stream: DatagramStream, _at_s: float, rate_bps: float) -> None:
        stream.rate_bps = rate_bps
        self._share_datagrams()

    def _share_datagrams(self) -> None:
        """Let background datagrams take from each link what gets there of them."""
        for number, asked in asked_bps(self._datagrams, self._paths.links).items():
            if asked != self._paths.links[number].taken_bps:
                self._take(self._paths.links[number], asked)

    def _take(self, link: WanLink, datagrams_bps: float) -> None:
        link.count_taken(self._clock.now)
        link.taken_bps = datagrams_bps
        self._set_capacity(link)
        for path in self._paths.crossing(link):
            path.refresh()
        for connection in self._connections[link.number]:
            connection.path_changed()

    def _set_capacity(self, link: WanLink) -> None:
        left_bps = link.left_bps if link.up else 0.0
        self._network.set_capacity(link.number, max(self._paths.capacity(left_bps), _DOWN_BYTES_PER_S))
        if self._packets is not None:
            self._packets.changed(link)


def _rates(traffic: BackgroundPlan) -> Iterator[tuple[float, float]]:
    """Yield (time in s, rate in bit/s from then on)."""
    for begin_s, end_s in bursts(traffic):
        yield begin_s, traffic.rate_bps
        if end_s < math.inf:
            yield end_s, 0.0
