"""Samples the bytes that WAN links carry, and their queues and drops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from testbed.results.events import EventLog, microseconds
from testbed.simulation.clock import Clock
from testbed.simulation.paths import WanLink

_SAMPLE_INTERVAL_S = 0.5  # virtual time
_SAMPLED_LINKS = 200  # with more links, samples are rarer, so that their number does not grow


class LinkSample(msgspec.Struct, gc=False):
    """A ``link`` event. It takes half as long to make and write as a dictionary; large networks have millions."""

    t: float
    kind: str
    node: str
    link: str
    configured_bps: float
    bytes: int
    dropped_packets: int = 0
    backlog_bytes: int = 0


class LinkCounters(NamedTuple):
    """Counters of a link: bytes of frames without background datagrams, packets dropped or lost, bytes queued now."""

    sent_bytes: float
    dropped_packets: int = 0
    backlog_bytes: int = 0


class LinkUser(Protocol):
    """The network model that uses the links: flows or packets.

    ``link_changed(link, what, passed)`` is called when the quantity ``what`` of a link (named like its trace) has
    changed; ``passed``: whether any packet got through before.
    """

    def counters(self, links: Sequence[WanLink]) -> list[LinkCounters]: ...
    def link_changed(self, link: WanLink, what: str, passed: bool) -> None: ...


class LinkLog:
    """Writes events of links to the log ``links`` of every job that is on the network at that time."""

    node = "links"

    def __init__(self) -> None:
        self._logs: list[EventLog] = []

    def join(self, log: EventLog) -> None:
        """Write all events to a job's log from now on."""
        self._logs.append(log)

    def leave(self, log: EventLog) -> None:
        """Write no more events to a job's log."""
        self._logs.remove(log)

    def append(self, event: Any) -> None:
        """Append an event, which must not change any more; see ``EventLog``."""
        for log in self._logs:
            log.append(event)

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """Append one event."""
        for log in self._logs:
            log.write(kind, t, **fields)


class LinkMonitor:
    """Writes ``link`` events to ``log``. Bytes are those of Ethernet frames, as an interface counts them, and include
    background traffic."""

    def __init__(self, clock: Clock, links: Sequence[WanLink], user: LinkUser, log: LinkLog) -> None:
        self._clock = clock
        self._links = links
        self._user = user
        self._log = log
        self._sampling = False

    def start_sampling(self, from_s: float = -math.inf) -> None:
        """Sample at every interval, from now or ``from_s`` on, until the run stalls. Call it again after a stall.

        With n > 200 links the interval is (n / 200)² times as long.
        """
        if not self._sampling:
            self._sampling = True
            if from_s > self._clock.now:  # a resumed run has no network before ``from_s``
                self._clock.at_background(from_s, self._on_interval)
            else:
                self._on_interval(None)

    def _on_interval(self, _: Any) -> None:
        self.sample()
        if self._clock.stalled:  # nothing changes before the next deadline, which may be far off
            self._sampling = False
        else:
            factor = max(1.0, len(self._links) / _SAMPLED_LINKS) ** 2
            self._clock.at_background(self._clock.now + _SAMPLE_INTERVAL_S * factor, self._on_interval)

    def sample(self, links: Sequence[WanLink] = ()) -> None:
        """Write one ``link`` event for each of ``links``, or for every WAN link if it is empty."""
        at_s = microseconds(self._clock.now)
        sampled = links or self._links
        for link, carried in zip(sampled, self._user.counters(sampled), strict=True):
            link.count_taken(self._clock.now)
            self._log.append(
                LinkSample(
                    at_s,
                    "link",
                    self._log.node,
                    link.plan.name,
                    link.rate_bps,
                    round(carried.sent_bytes + link.taken_bytes),
                    carried.dropped_packets,
                    carried.backlog_bytes,
                )
            )
