"""What happens beside the roles: traces that change the WAN links, samples of the links, and signs of life."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from testbed.plan.model import LinkPlan, Series
from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowClass, FlowNetwork
from testbed.simulation.paths import PathTable, WanLink, changes_from
from testbed.simulation.recorder import Progress, VirtualEventSink
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.validity import doubts

_PAUSED_BYTES_PER_S = 1e-6  # of a link that is down: flows wait, and go on where they were
_STARVED_SHARE = 0.01  # what datagrams that fill a link leave to others
_SAMPLED_LINKS = 200  # at every interval; more are sampled less often
_STATUS_S = 0.2  # wall time: at most five lines a second


class Links:
    """The WAN links over time. ``add`` tells it of each connection. Writes ``link`` and ``replay`` events to ``log``.

    Bytes are Ethernet frames, as an interface's counters are.
    """

    def __init__(
        self, clock: Clock, network: FlowNetwork, paths: PathTable, log: VirtualEventSink, sample_interval_s: float
    ) -> None:
        self._clock, self._network, self._paths, self._log = clock, network, paths, log
        self._interval_s, self._sampling = sample_interval_s, False
        self._connections: dict[int, list[TcpConnection]] = {link.number: [] for link in paths.links}
        self._carried = [0.0] * len(paths.links)  # by link: what its flows had carried when last looked at
        self._known: dict[FlowClass, float] = {}  # by flow: likewise

    def add(self, connection: TcpConnection, links: tuple[int, ...]) -> None:
        """A connection over these links was made."""
        for number in links:
            if number in self._connections:
                self._connections[number].append(connection)
                connection.flow.watched = True

    def add_flow(self, flow: FlowClass, links: Sequence[int]) -> None:
        """A flow beside the connections was made."""
        flow.watched = any(number in self._connections for number in links)

    def doubts(self, model: TcpModel) -> list[str]:
        """What the model of TCP does not claim to know of these connections."""
        return doubts(self._paths.links, self._connections, model)

    def start_sampling(self) -> None:
        """Sample now, and every interval from now on while anybody advances. Called again, it goes on.

        Where there are very many links, the interval is the longer the more there are.
        """
        if not self._sampling:
            self._sampling = True
            self._on_interval(None)

    def _on_interval(self, _: Any) -> None:
        self.sample()
        if self._clock.stalled:  # nothing can change before a deadline, which may be far
            self._sampling = False
        else:
            crowd = max(1.0, len(self._paths.links) / _SAMPLED_LINKS)
            self._clock.at_background(self._clock.now + self._interval_s * crowd**2, self._on_interval)

    def sample(self) -> None:
        """One ``link`` event per WAN link."""
        self._count()
        for link in self._paths.links:
            self._write(link)

    def _sample(self, link: WanLink) -> None:
        self._count()
        self._write(link)

    def _write(self, link: WanLink) -> None:
        self._log.append(
            {
                "t": round(self._clock.now, 6), "kind": "link", "link": link.plan.name, "configured_bps": link.rate_bps,
                "bytes": round(self._carried[link.number] / self._paths.goodput), "dropped_packets": 0,
                "backlog_bytes": 0,
            }
        )  # fmt: skip

    def _count(self) -> None:
        """Add up what flows have carried since the last look; those that have ended need no further look."""
        carrying, wan = self._network.carrying, len(self._carried)
        moved = list(carrying)
        carrying.clear()
        for flow in moved:
            total = self._network.delivered_bytes(flow)
            more, self._known[flow] = total - self._known.get(flow, 0.0), total
            for number in flow.path:
                if number < wan:
                    self._carried[number] += more
            if flow.flows:
                carrying[flow] = None

    def start_traces(self, start_s: float) -> None:
        """Training starts, or started at ``start_s``: time 0 of all traces. What has passed by now is passed over."""
        for link in self._paths.links:
            plan: LinkPlan = link.plan
            for what in ("rate", "delay", "loss", "state", "corruption"):
                series: Series | None = getattr(plan, f"{what}_trace")
                if series is not None:
                    self._follow(link, what, series, start_s)

    def _follow(self, link: WanLink, what: str, series: Series, start_s: float) -> None:
        steps = changes_from(series, self._clock.now - start_s)

        def apply(planned_s: float, value: float) -> None:
            self._apply(link, what, planned_s, value)
            arm()

        def arm() -> None:
            step = next(steps, None)
            if step is None:
                return
            at_s, value = step
            if start_s + at_s <= self._clock.now:
                apply(at_s, value)
            else:
                self._clock.at_background(start_s + at_s, lambda _: apply(at_s, value))

        arm()

    def _apply(self, link: WanLink, what: str, planned_s: float, value: float) -> None:
        self._sample(link)  # so that what was carried at the old rate is counted with it
        self._log.write(
            "replay", self._clock.now, link=link.plan.name, planned_t=planned_s, late_s=0.0, what=what, value=value
        )
        if what == "state":
            link.up = value > 0
            self._set_capacity(link)
        elif what == "rate":
            link.rate_bps = value
            self._set_capacity(link)
        elif what == "delay":
            link.delay_s = value
        else:
            setattr(link, what, value)  # loss, corruption
        for path in self._paths.crossing(link):
            path.refresh()
        for connection in self._connections[link.number]:
            connection.state_changed() if what == "state" else connection.path_changed()
        self._sample(link)

    def take(self, links: tuple[int, ...], rate_bps: float) -> None:
        """From now on, others' datagrams take so much of these links (give it back, if negative)."""
        for number in links:
            link = self._paths.links[number]
            link.taken_bps += rate_bps
            self._set_capacity(link)
            for connection in self._connections[number]:
                connection.path_changed()

    def _set_capacity(self, link: WanLink) -> None:
        left_bps = max(link.rate_bps - link.taken_bps, _STARVED_SHARE * link.rate_bps) if link.up else 0.0
        self._network.set_capacity(link.number, max(self._paths.capacity(left_bps), _PAUSED_BYTES_PER_S))


class ProgressReporter:
    """Signs of life for whoever watches, by wall time."""

    def __init__(self, clock: Clock, progress: Progress, report_nodes: Callable[[], None]) -> None:
        self._clock, self._progress, self._report_nodes = clock, progress, report_nodes
        self._start_s = self._last_s = time.perf_counter()
        self._last_now = 0.0

    def tick(self) -> None:
        """Report if it is time to."""
        wall_s = time.perf_counter()
        if wall_s - self._last_s < _STATUS_S:
            return
        now = self._clock.now
        rate = (now - self._last_now) / (wall_s - self._last_s)
        self._progress(
            {
                "kind": "status", "t": now, "node": "simulation", "simulated_s": now, "rate": rate,
                "wall_s": wall_s - self._start_s,
            }
        )  # fmt: skip
        self._report_nodes()
        self._last_s, self._last_now = wall_s, now
