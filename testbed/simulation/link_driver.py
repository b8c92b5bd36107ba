"""Changes the WAN links during a run: by their traces and by background datagrams.

Datagrams do not yield to TCP, and may cross several links. A link drops datagrams that it has no room for. Datagrams
that it drops or loses, at random or while it is down, do not reach the next link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from testbed.plan.model import Plan
from testbed.settings.run import Background
from testbed.settings.series import Series
from testbed.simulation.clock import Clock
from testbed.simulation.link_monitor import LinkLog, LinkMonitor, LinkUser
from testbed.simulation.paths import PathTable, WanLink, changes
from testbed.traffic import bursts

_MOST_PASSES = 100  # limit for streams that cross links in a circle; otherwise each pass settles one link of each path


@dataclass(slots=True)
class DatagramStream:
    """A stream of background datagrams. ``path``: numbers of its links. ``rate_bps``: present sending rate."""

    path: tuple[int, ...]
    rate_bps: float = 0.0


def asked_bps(streams: Sequence[DatagramStream], links: Sequence[WanLink]) -> dict[int, float]:
    """Return the total rate of the datagrams that arrive at each link of the streams' paths."""
    asked = dict.fromkeys((number for stream in streams for number in stream.path), 0.0)
    for _ in range(_MOST_PASSES):
        before, asked = asked, dict.fromkeys(asked, 0.0)
        for stream in streams:
            rate_bps = stream.rate_bps
            for number in stream.path:
                asked[number] += rate_bps
                rate_bps *= links[number].passing_share(before[number])
        if asked == before:
            break
    return asked


class LinkDriver:
    """Applies changes to the WAN links, tells ``user`` of them, and writes ``replay`` events to ``log``."""

    def __init__(self, clock: Clock, paths: PathTable, user: LinkUser, monitor: LinkMonitor, log: LinkLog) -> None:
        self._clock = clock
        self._paths = paths
        self._user = user
        self._monitor = monitor
        self._log = log
        self._datagrams: list[DatagramStream] = []

    def start_traces(self, start_s: float) -> None:
        """Follow all traces; their time 0 is ``start_s``, the start of training. Steps in the past are skipped."""
        for link in self._paths.links:
            for what in ("rate", "delay", "loss", "state", "corruption"):
                series: Series | None = getattr(link.plan, f"{what}_trace")
                if series is not None:
                    steps = changes(series, self._clock.now - start_s)
                    self._clock.follow(steps, start_s, partial(self._apply, link, what))

    def _apply(self, link: WanLink, what: str, planned_s: float, value: float) -> None:
        self._monitor.sample((link,))  # count the bytes carried at the old rate
        self._log.write(
            "replay", self._clock.now, link=link.plan.name, planned_t=planned_s, late_s=0.0, what=what, value=value
        )
        passed = link.passes
        link.take(what, self._paths.made_bps(value) if what == "rate" else value)
        self._changed(link, what, passed)
        if self._datagrams:
            self._share_datagrams()
        self._monitor.sample((link,))

    def _changed(self, link: WanLink, what: str, passed: bool) -> None:
        for path in dict.fromkeys(self._paths.crossing(link)):
            path.refresh()
        self._user.link_changed(link, what, passed)

    def start_background(self, plan: Plan, start_s: float) -> None:
        """Start all background traffic of the Plan; its time 0 is ``start_s``, the start of training.

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
        """Let background datagrams take their share of each link."""
        for number, asked in asked_bps(self._datagrams, self._paths.links).items():
            link = self._paths.links[number]
            if asked != link.taken_bps:
                link.count_taken(self._clock.now)
                link.taken_bps = asked
                self._changed(link, "rate", link.passes)


def _rates(traffic: Background) -> Iterator[tuple[float, float]]:
    """Yield (time in s, rate in bit/s from that time on)."""
    for begin_s, end_s in bursts(traffic):
        yield begin_s, traffic.rate_bps
        if end_s < math.inf:
            yield end_s, 0.0
