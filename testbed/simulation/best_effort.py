"""Best-effort messages in virtual time: paced, served after everything reliable, lost in queues and on the way.

A message leaves its sender when nothing waits on the reliable connection, no faster than the pace of the path
(``testbed.best_effort``). A ``Carrier`` takes it to the other node, or loses it: ``FlowCarrier``, or that of packets
(``testbed.simulation.packets.datagrams``).

Over flows, it then waits in its channel's queue at the bottleneck, and is lost if that is full. It is served with what
reliable connections leave: the weight of its flow is six orders of magnitude smaller than theirs, and the lower channel
goes first. Links lose each of its datagrams with probability p, so a message of n datagrams arrives with probability
(1 - p)^n. What leaves while the path is down is lost, and so is what waits when it goes down. Queues shared with other
senders are not modelled.

Not modelled: the handshake of the connection that its keys come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from testbed.best_effort import BestEffortQueue, datagrams
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows import FlowClass, FlowNetwork
from testbed.simulation.paths import SitePath

_WEIGHT = 1e-6  # relative to a reliable connection: practically only residual capacity
_CHANNEL_WEIGHT = 1e-2  # of one channel relative to the one below, where several senders meet


@dataclass(slots=True)
class Item:
    """A message on its way. ``size_bytes``: of the Ethernet frames of its datagrams."""

    envelope: Envelope
    size_bytes: int
    datagrams: int


class Carrier(Protocol):
    """Takes messages from one node to another."""

    def carry(self, item: Item, channel: int) -> None: ...


class Reliable(Protocol):
    """The reliable connection between the same nodes. ``on_idle()`` is called when it has nothing left to send."""

    on_idle: Callable[[], None] | None

    @property
    def busy(self) -> bool: ...


class BestEffort:
    """One direction between two nodes, beside their reliable ``connection``. ``pace_bps``: of frames, at most."""

    def __init__(self, clock: Clock, connection: Reliable, pace_bps: float, carrier: Carrier) -> None:
        self._clock, self._connection, self._carrier = clock, connection, carrier
        self._pace_bytes_per_s = pace_bps / 8
        self._queue: BestEffortQueue[Item] = BestEffortQueue()  # at the sender
        self._free_s = 0.0  # when the next item may leave
        self._timer = False
        self._draining: list[VirtualFuture[None]] = []
        connection.on_idle = self._pump

    def send(self, envelope: Envelope) -> None:
        """Queue a message."""
        count, size_bytes = datagrams(envelope.message)
        item = Item(envelope, size_bytes, count)
        self._queue.post(item, envelope.message, size_bytes)
        self._pump()

    async def drain(self) -> None:
        """See ``testbed.world.World.drain``."""
        if len(self._queue) or self._clock.now < self._free_s:
            drained: VirtualFuture[None] = VirtualFuture(self._clock)
            self._draining.append(drained)
            self._pump()
            await drained

    def stop(self, until_s: float) -> None:
        """Send nothing until then, as the process is stopped; infinity: as it has ended."""
        self._free_s = max(until_s, self._free_s)

    def _pump(self, _: Any = None) -> None:
        if self._timer or self._connection.busy or self._free_s == math.inf:
            return  # called again by the timer, or when the connection is idle
        if self._clock.now < self._free_s:
            self._timer = True
            self._clock.at(self._free_s, self._on_timer)
            return
        following = self._queue.pop()
        if following is not None:
            item, channel = following
            self._free_s = self._clock.now + item.size_bytes / self._pace_bytes_per_s
            self._carrier.carry(item, channel)
            self._pump()
            return
        draining, self._draining = self._draining, []
        for drained in draining:
            drained.set_result(None)

    def _on_timer(self, _: Any) -> None:
        self._timer = False
        self._pump()


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Settings of one direction between two nodes.

    goodput   bytes of the flow network per byte of Ethernet frame
    weight    of the reliable connection
    random    stream of its own, for losses
    on_flow   called with every flow class that is made
    """

    goodput: float
    weight: float
    random: Random
    on_flow: Callable[[FlowClass, Sequence[int]], None]


class FlowCarrier:
    """Carries messages over the flow network. ``deliver``: what has arrived."""

    def __init__(
        self, clock: Clock, network: FlowNetwork, path: SitePath, links: Sequence[int], settings: FlowSettings,
        deliver: Callable[[Envelope], None],
    ) -> None:  # fmt: skip
        self._clock, self._network, self._path, self._links = clock, network, path, links
        self._settings, self._deliver = settings, deliver
        self._flows: dict[int, FlowClass] = {}  # by channel
        self._waiting: dict[int, list[tuple[Item, int]]] = {}  # by channel, at the bottleneck: and the path's outages
        self._queued_bytes: dict[int, float] = {}  # by channel, the item in service included
        self._serving = False

    def carry(self, item: Item, channel: int) -> None:
        """Queue a message at the bottleneck, or lose it there."""
        if not self._path.up:
            return  # lost
        queued_bytes = self._queued_bytes.get(channel, 0.0)
        if queued_bytes and queued_bytes + item.size_bytes > self._path.queue_bytes:
            return  # the queue is full: lost
        self._queued_bytes[channel] = queued_bytes + item.size_bytes
        self._waiting.setdefault(channel, []).append((item, self._path.outages))
        self._serve()

    def _serve(self) -> None:
        if self._serving:
            return
        channel = min((channel for channel, waiting in self._waiting.items() if waiting), default=None)
        if channel is not None:
            self._serving = True
            item, outages = self._waiting[channel].pop(0)
            self._network.start(
                self._flow(channel), item.size_bytes * self._settings.goodput,
                lambda: self._on_served(item, channel, outages),
            )  # fmt: skip

    def _flow(self, channel: int) -> FlowClass:
        if channel not in self._flows:
            weight = self._settings.weight * _WEIGHT * _CHANNEL_WEIGHT ** (channel - 1)
            self._flows[channel] = flow = self._network.flow_class(self._links, weight)
            self._settings.on_flow(flow, self._links)
        return self._flows[channel]

    def _on_served(self, item: Item, channel: int, outages: int) -> None:
        self._serving = False
        self._queued_bytes[channel] -= item.size_bytes
        if outages == self._path.outages and (
            self._path.loss <= 0 or self._settings.random.random() < (1 - self._path.loss) ** item.datagrams
        ):
            self._clock.at(self._clock.now + self._path.delay_s, lambda _: self._deliver(item.envelope))
        self._serve()
